// Versions and features of the libraries that this program runs with, for --version and doctor.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace magister {

// Returns name and version in a fixed order: MPI, libtorch and its CPU kernels, CUDA, NCCL, the others (such as HDF5),
// compiler.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace magister
