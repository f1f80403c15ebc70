// Converts a results file into a format of other tools: the command `export`. Streams: one column of one sample is read
// in pieces, so memory is bounded whatever the file's size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

// "jsonl": a JSON object a sample, in order:
//   {"key": text, "source_index": int, "token_ids": [int], "top_id": [[int]], "top_logprob": [[float]], "logsumexp": [float],
//    "target_logprob": [float or null], "entropy": [float], "tail_mass": [float]}
// Floats are the shortest decimal that gives the same float32 back; NaN and infinities are null.
std::vector<std::string> export_formats();

// The whole export in order through sink, in pieces of about 1 MiB. Only complete files: an unfinished one is
// Error(kData). Returns the number of samples. An unknown format is Error(kUsage). Local.
std::uint64_t export_results(const std::string& path, const std::string& format,
                             const std::function<void(std::string_view piece)>& sink);
// The same into a file: written as <out>.creating, synced, renamed, so that <out> is whole or absent. An existing <out>
// is Error(kInputOutput). Local.
std::uint64_t export_results(const std::string& path, const std::string& format, const std::string& out_path);

}  // namespace magister
