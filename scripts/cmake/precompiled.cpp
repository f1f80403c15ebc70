// A target needs a file: its precompiled header is what the modules use (Modules.cmake).
