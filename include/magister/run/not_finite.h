// The refusal of rows whose logits are not finite: nothing of their unit is written, and the message says whose row it was and where in the
// model the numbers went wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"
#include "magister/model/transformer.h"

namespace magister {

// `record 5 (key "abc")` of a sample of the results: its place in the data set, and its key where it has one. Local.
std::string describe_record(const ResultsFile& file, std::uint64_t sample);

// tokens: of the sequence, up to the row at least. Runs them through the model once more to name the layer.
// Throws Error(kData). Collective over the model's group.
[[noreturn]] void refuse_not_finite(Transformer& model, const std::string& record, std::uint64_t row,
                                    const std::vector<TokenId>& tokens);

}  // namespace magister
