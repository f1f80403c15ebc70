// Refuses rows whose logits are not finite. Nothing of their unit is written, and the message names the record and the
// place in the model where the numbers went wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"
#include "magister/model/transformer.h"

namespace magister {

// Describes the record of a sample of the results: `record 5 (key "abc")`, its index in the data set, and its key if it
// has one. Local.
std::string describe_record(const ResultsFile& file, std::uint64_t sample);

// tokens: the sequence, at least up to the row. Runs them through the model once more to name the layer. Throws
// Error(kData). Collective over the model's group.
[[noreturn]] void refuse_not_finite(Transformer& model, const std::string& record, std::uint64_t row,
                                    const std::vector<TokenId>& tokens);

}  // namespace magister
