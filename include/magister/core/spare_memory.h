// Memory that a process holds without need: what free() left in the allocator, buffers that MKL keeps for this thread's
// next product, and pages of libraries that ran once and of files that were read.
#pragma once

#include <string>
#include <vector>

namespace magister {

// Gives it back to the system, so that it does not add to the peak of what follows. Pages of the program and its
// libraries leave only this process; they come back from the system's page cache at the next touch. Takes some
// milliseconds, so it is called between phases: after libraries are loaded, before and after weights are. No other
// thread may load or unload a library meanwhile. Does nothing where the system does not say which pages were written.
void release_spare_memory() noexcept;

// The same for data of the program and its libraries that nothing has written: of libtorch 5 MiB. Does nothing in a
// process with several threads, since another thread could write a page just before it leaves; signals wait meanwhile.
void release_unwritten_data() noexcept;

// The same for the pages of files that this process maps for reading alone. Their mappings must last meanwhile.
void release_pages_of(const std::vector<std::string>& paths);

}  // namespace magister
