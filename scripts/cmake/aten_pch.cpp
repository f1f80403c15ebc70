// Exists so that ATen/ATen.h is compiled once: every room that uses tensors reuses the precompiled header of this target.
