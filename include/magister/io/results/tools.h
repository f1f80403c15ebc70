// The commands info, check and merge. Readers ask HDF5 only for the places of the columns and stream the rows
// as plain bytes. So memory is bounded for any file size, and a hostile file is checked before its sizes are used. All
// functions: local, one process; Error(kData) if it is not a results file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "magister/io/results/schema.h"

namespace magister {

// The file that `path` means: itself, or path + ".partial" if only that exists. All commands but merge accept both.
std::string existing_results_path(const std::string& path);

// Text of several lines (state, progress, attributes, one line per dataset with type, shape, bytes, units and comment),
// or one JSON object: path, state ("complete" | "partial"), file_bytes, samples, tokens, units, samples_done,
// tokens_done, units_done, attributes by name, datasets in the order of creation. Of the rows it reads only the
// descriptors of texts of any length, or these texts themselves where another program has packed the file. May be
// called while a run writes the file.
std::string describe_results(const std::string& path, bool json);

// The faults of a results file, and how much of it is done.
struct ResultsCheck {
  // One line per fault, with its place ("unit 3: ..."): at most FaultList::kMaxFaults, then the number of the rest.
  std::vector<std::string> faults;
  bool complete = false;
  std::uint64_t units = 0, units_done = 0;  // 0 of 0 if faults of the structure make them unreadable
  bool whole() const { return faults.empty() && complete; }
};

// Verifies everything from the bytes: structure, attributes, offsets, flags, the crc32c of every committed unit, and
// the schema's rules for rows.
ResultsCheck check_results(const std::string& path, std::span<const ResultsSchema> schemas);

// Joins the complete files of the slices i/n of one experiment, given in any order. Refuses, naming the part:
// incomplete or damaged parts; another experiment, model or data set (all root attributes must be equal, except those
// of the slice and the digests of the part's own plan, answers and panel; the whole has one digest over the parts'
// digests); slices that overlap or omit records; a unit whose bytes do not have their crc32c; an existing `out`. A
// refusal leaves no unfinished `out`. Units keep their rows and order. A merge that was killed or met a full disk
// continues when the same command runs again, and the bytes are the same.
void merge_results(const std::string& out, const std::vector<std::string>& parts);

// sha256 over the root attributes that all slices of a run and the merged file have in common.
std::string run_sha256(const std::string& path);

}  // namespace magister
