// Which root attributes the parts of an array job have of their own, which they make together, and which must be equal.
#pragma once

#include <string>
#include <vector>

#include "io/results/layout.h"

namespace magister {

// Numbers of which the whole has the largest of its parts': the longest key and the longest sample.
bool is_widest_of_parts(const std::string& name);
// Of a part and not of the whole, those, and those that the writer adds itself.
bool is_of_part(const std::string& name);
// Digests of what a part was made from, where every slice has its own: the plan, the answers that were judged, the verdicts of
// a panel, the units that groups of one size computed. The whole has one digest over those of the parts. What must not differ is told by other attributes
// (answers_run_sha256, panel_run_sha256_*, scores_run_sha256_*).
bool is_digest_of_parts(const std::string& name);
// The whole's: sha256 of "merged\n" and a line for each part; where all parts were made from one file, its digest stays.
std::string digest_of_parts(const std::string& name, const std::vector<std::string>& digests);

}  // namespace magister
