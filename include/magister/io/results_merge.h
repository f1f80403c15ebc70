// Joins the complete files of the slices i/n of one experiment into one: the command `merge`. The order of the parts on
// the command line does not matter; a merge that was killed goes on when it is given again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace magister {

struct MergeReport {
  std::uint64_t num_parts = 0, num_units = 0, num_samples = 0, num_tokens = 0, num_bytes = 0;
};

// Refuses, naming the part: what is not complete or not sound, another experiment, model or data set (every root attribute
// but those of the slice must be equal), slices that overlap or leave records out, a unit whose bytes do not have their
// crc32c; an existing OUT. Nothing of OUT stays behind then. Units keep their rows and order; parts follow each other by
// their records. Local, one process.
MergeReport merge_results(const std::string& out_path, const std::vector<std::string>& part_paths,
                          const std::function<void(std::uint64_t units_done, std::uint64_t units)>& progress = {});

}  // namespace magister
