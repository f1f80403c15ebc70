// See not_finite.h.
#include "magister/run/not_finite.h"

#include "magister/core/error.h"

namespace magister {

std::string describe_record(const ResultsFile& file, std::uint64_t sample) {
  std::uint64_t source = 0;
  file.read("/samples/source_index", sample, std::as_writable_bytes(std::span(&source, 1)));
  std::string key(file.row_bytes("/samples/key"), '\0');
  file.read("/samples/key", sample, std::as_writable_bytes(std::span(key)));
  key.erase(std::min(key.find('\0'), key.size()));
  const std::string index = std::to_string(source);
  return key.empty() || key == index ? "record " + index : fmt::format("record {} (key \"{}\")", index, printable(key));
}

void refuse_not_finite(Transformer& model, const std::string& record, std::uint64_t row,
                       const std::vector<TokenId>& tokens) {
  const std::string place = model.first_not_finite(pack_sequences({tokens}));
  fail(ExitCode::kData,
       "{}, row {}: the model's logits are not finite (NaN or infinity, first in {}; they mean nothing, and nothing of "
       "this unit is written); check the weights of {} and the dtype",
       record, row, place, place);
}

}  // namespace magister
