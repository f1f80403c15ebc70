// Exists so that ATen/ATen.h is compiled once: every module that uses tensors reuses the precompiled header of this target.
