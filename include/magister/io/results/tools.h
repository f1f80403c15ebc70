// The commands info, check, export and merge. Readers ask HDF5 only for the places of the columns and stream the rows
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

// Writes one JSON object or one CSV row per sample, in order, to the file `out` or to standard output ("-"):
//   {"key": text, "source_index": int, "token_ids": [int], "top_id": [[int]], "top_logprob": [[float]],
//    "logsumexp": [float], "target_logprob": [float or null], "entropy": [float], "tail_mass": [float]}
// (each further column of the file under its last name). Floats are the shortest decimals that read back as the same
// float32; NaN and infinities are null. `out` is written as <out>.creating, synced and renamed: complete or absent. An
// existing `out` is Error(kInputOutput), an unfinished results file Error(kData).
// CSV has the same names in its first row and lists as JSON in one cell; NaN and infinities are empty outside lists.
enum class TextExport { kJsonl, kCsv };
void export_text(const std::string& path, TextExport format, const std::string& out);

// Writes one row per sample, in order, to the new Parquet file `out`: key, source_index, input_ids (TRL's and
// DistillKit's name of /tokens/id), for teacher logits token_ids and top_values (lists of lists; DistillKit's names of
// top_id and top_logprob), assistant_masks (TRL's), and every further column under its last name. f16 is written as
// f32. Needs the plug-in with Arrow's library.
void export_parquet(const std::string& path, const std::string& out);

// Writes a teacher's results in the layout of older scripts to the new HDF5 file `out`: logits_values f16 [N, L, k],
// logits_indices i32 [N, L, k] and seq_lengths i32 [N], L the longest sample; rows after a sample's end are 0. Values
// are raw logits (log-probability + logsumexp), rounded to f16. <out>.json describes the numbers, their shape, and the
// root attributes.
void export_padded(const std::string& path, const std::string& out);

// Opens the results; Error(kData) unless they are complete.
ResultsReader open_complete_results(const std::string& path);

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
