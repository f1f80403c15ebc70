// See record_columns.h. The data set is read once for the kinds of its fields and twice for each field.
#include "tasks/generate/record_columns.h"

#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/dataset/record_json.h"
#include "magister/runtime/record_prompt.h"

namespace magister {
namespace {

const nlohmann::ordered_json& field_of(const Record& record, const std::string& name) {
  static const nlohmann::ordered_json kNone;
  const auto found = record.fields->find(name);
  return found == record.fields->end() ? kNone : *found;
}

}  // namespace

std::optional<std::vector<TextColumn>> record_columns(const Dataset& dataset, const std::vector<std::string>& names,
                                                      std::uint64_t texts, std::uint64_t num_texts,
                                                      const StopPoll& poll) {
  std::vector<bool> is_json(names.size(), false);
  const auto look = [&](Record&& record) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const nlohmann::ordered_json& value = field_of(record, names[i]);
      if (!value.is_string() && !value.is_null()) is_json[i] = true;
    }
  };
  dataset.for_each(dataset.records(), look, poll);
  if (poll()) return std::nullopt;
  std::vector<TextColumn> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool json = is_json[i];
    const auto for_each = [&dataset, &poll, name = names[i], json, texts, num_texts](const TextColumn::Visit& visit) {
      std::uint64_t written = 0;
      const auto give = [&](Record&& record) {
        const nlohmann::ordered_json& value = field_of(record, name);
        for (std::uint64_t text = 0; text < texts; ++text, ++written)
          visit(json ? record_text(value) : field_as_text(value));
      };
      dataset.for_each(dataset.records(), give, poll);
      if (poll()) return false;
      MAGISTER_CHECK(written == num_texts, ExitCode::kData,
                     "the data set has records for {} texts, {} were written (it has changed meanwhile); put it back "
                     "and run the same command again",
                     written, num_texts);
      return true;
    };
    columns.push_back({{kRecordGroup + names[i], ColumnType::kText, num_texts, 0,
                        json ? "field that the prompt reads, as JSON" : "field that the prompt reads",
                        json ? "JSON" : "", ColumnSpec::Extent::kSamples},
                       for_each});
  }
  return columns;
}

}  // namespace magister
