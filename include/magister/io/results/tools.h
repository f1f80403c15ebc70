// What the commands info, check, export and merge do with a results file. Readers ask HDF5 for the places of the columns
// only and stream the rows as plain bytes, so memory is bounded whatever the file's size, and a hostile file meets checks
// before it meets a size. All functions: local, one process; Error(kData) for what is not a results file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "magister/io/results/schema.h"

namespace magister {

// The file that `path` means: itself, or path + ".partial" when only that stands there. All but merge take both.
std::string existing_results_path(const std::string& path);

// Text of several lines (state, progress, attributes, one line a dataset with type, shape, bytes, units and comment), or
// one JSON object: path, state ("complete" | "partial"), file_bytes, samples, tokens, units, samples_done, tokens_done,
// units_done, attributes by name, datasets in the order of creation. Reads flags and offsets, never rows, and may be asked
// while a run writes the file.
std::string describe_results(const std::string& path, bool json);

// What is wrong with a results file, and how far it is.
struct ResultsCheck {
  std::vector<std::string>
      faults;  // a line each with its place ("unit 3: ..."), at most FaultList::kMaxFaults and the number of the rest
  bool complete = false;
  std::uint64_t units = 0, units_done = 0;  // 0 of 0 where faults of the structure hide them
  bool whole() const { return faults.empty() && complete; }
};

// Verifies everything from the bytes: structure, attributes, offsets, flags, the crc32c of every committed unit, and the
// rules that the file's schema has for its rows.
ResultsCheck check_results(const std::string& path, std::span<const ResultsSchema> schemas);

// A JSON object or a row of CSV a sample, in order, to the file `out` or to standard output ("-"):
//   {"key": text, "source_index": int, "token_ids": [int], "top_id": [[int]], "top_logprob": [[float]], "logsumexp": [float],
//    "target_logprob": [float or null], "entropy": [float], "tail_mass": [float]}
// (each further column of the file under its last name). Floats are the shortest decimals that give the same float32 back;
// NaN and infinities are null. `out` is written as <out>.creating, synced and renamed: whole or absent; an existing `out` is
// Error(kInputOutput), an unfinished results file Error(kData).
// CSV has the same names in its first row and lists as JSON in one cell; what is not finite is empty outside lists.
enum class TextExport { kJsonl, kCsv };
void export_text(const std::string& path, TextExport format, const std::string& out);

// A row a sample, in order, to the new Parquet file `out`: key, source_index, input_ids (as TRL and DistillKit call /tokens/id), of
// teachers token_ids and top_values (lists of lists: DistillKit's names of top_id and top_logprob), assistant_masks (TRL's), and
// every further column under its last name; f16 is written as f32. Needs the plug-in of Arrow's library.
void export_parquet(const std::string& path, const std::string& out);

// Of a teacher's results, as scripts of old read it, to the new HDF5 file `out`: logits_values f16 [N, L, k], logits_indices i32 [N, L, k]
// and seq_lengths i32 [N], L the longest sample; rows behind a sample's end are 0. Values are raw logits (log-probability +
// logsumexp), rounded to f16. Beside it <out>.json: what the numbers are, their shape, and the root attributes.
void export_padded(const std::string& path, const std::string& out);

// Opened, and Error(kData) unless its run is finished.
ResultsReader open_complete_results(const std::string& path);

// Joins the complete files of the slices i/n of one experiment, in any order. Refuses, naming the part: what is not
// complete or not sound, another experiment, model or data set (every root attribute but those of the slice and the
// digests of its own plan, answers and panel must be equal; the whole has one digest over the parts' digests), slices that overlap or leave records out, a unit whose bytes do not have their crc32c; an existing `out`.
// Nothing of `out` stays behind then. Units keep their rows and order. A merge that was killed or met a full disk goes on
// when it is given again, and the bytes are the same.
void merge_results(const std::string& out, const std::vector<std::string>& parts);

// sha256 over the root attributes that all slices of a run have in common, and the merged file too.
std::string run_sha256(const std::string& path);

}  // namespace magister
