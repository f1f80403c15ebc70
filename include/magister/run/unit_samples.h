// The samples of a unit as the plan wrote them: the columns that hold them in every task's results, and functions that
// read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"

namespace magister {

// Returns /samples/key, /samples/source_index, /samples/offset and /tokens/id for n samples with T tokens, in this
// order. The comments describe what the offsets count and what the tokens are.
std::vector<ColumnSpec> sample_columns(std::uint64_t num_samples, std::uint64_t num_tokens, std::uint64_t key_bytes,
                                       const std::string& offset_comment, const std::string& tokens_comment);

// Returns the first row of each sample of the unit and the end of the last one, [samples + 1]. Throws Error(kData) for
// offsets outside the unit's rows. Local.
std::vector<std::uint64_t> sample_offsets(const ResultsFile& file, const Unit& unit);
// Returns the tokens of each sample of the unit. Throws as sample_offsets(). Local.
std::vector<std::vector<TokenId>> sample_tokens(const ResultsFile& file, const Unit& unit);

}  // namespace magister
