// What the commands info, check, export and merge do with finished (or partial) results files. All local: one process.
#pragma once

#include <string>
#include <vector>

namespace magister {

// Attributes, datasets and how much is committed, as text for people or as one JSON object.
std::string describe_results(const std::string& path, bool json);

// Verifies a complete or partial file: structure, offsets, flags, every committed unit's checksum, and the rules of the
// rows (order, range of ids, NaN in each sample's last row and nowhere else, target equal to its kept entry). Returns
// the faults, at most 20 and then a count; empty: all is well. Bounded memory.
std::vector<std::string> check_results(const std::string& path);

// One JSON object a sample and line: key, source_index, tokens, top_id, top_logprob, logsumexp, target_logprob (null for
// NaN), entropy, tail_mass. Written beside its final name and renamed; out_path "-" is standard output. Only complete
// files are exported.
void export_jsonl(const std::string& path, const std::string& out_path);

// Joins the parts of one experiment (slices i/n) into one file: same hashes, disjoint and complete cover of the source
// records, every checksum verified while copying. Refused with the part's name and what is wrong; nothing is left behind.
void merge_results(const std::string& out_path, const std::vector<std::string>& part_paths);

}  // namespace magister
