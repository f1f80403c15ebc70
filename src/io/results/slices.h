// Distinguishes the root attributes that each part of an array job has for itself, those that the parts combine, and
// those that must be equal.
#pragma once

#include <string>
#include <vector>

#include "io/results/layout.h"

namespace magister {

// Numbers for which the merged file takes the largest of its parts: the longest key and the longest sample.
bool is_widest_of_parts(const std::string& name);
// Attributes of a part that the merged file does not copy: its experiment, counts and slice, the above, and those that
// the writer adds itself.
bool is_of_part(const std::string& name);
// Digests of a part's own inputs, which differ between slices: the plan, the judged answers, the verdicts of a panel,
// the units that groups of one size computed. The merged file has one digest over the parts' digests. Other attributes
// show what must not differ (answers_run_sha256, panel_run_sha256_*, scores_run_sha256_*).
bool is_digest_of_parts(const std::string& name);
// The merged file's digest: sha256 of "merged\n" and one line per part. If all parts used the same file, its digest is
// kept.
std::string digest_of_parts(const std::string& name, const std::vector<std::string>& digests);

}  // namespace magister
