// See record_columns.h.
#include "tasks/generate/record_columns.h"

#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "magister/io/dataset/record_json.h"
#include "magister/io/results/text_heap_bytes.h"
#include "magister/runtime/record_prompt.h"

namespace magister {
namespace {

const nlohmann::ordered_json& field_of(const Record& record, const std::string& name) {
  static const nlohmann::ordered_json kNone;
  const auto found = record.fields->find(name);
  return found == record.fields->end() ? kNone : *found;
}

std::string text_of(const nlohmann::ordered_json& value, bool json) {
  return json ? record_text(value) : field_as_text(value);
}

// A field as it is in all records.
struct FieldKind {
  bool is_json = false;
  TextHeapBytes as_text, as_json;  // which of them holds is known after the last record
};

}  // namespace

std::optional<TextColumns> record_columns(const Dataset& dataset, const std::vector<std::string>& names,
                                          std::uint64_t texts, std::uint64_t num_texts, const StopPoll& poll) {
  std::vector<FieldKind> kinds(names.size());
  const auto look = [&](Record&& record) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const nlohmann::ordered_json& value = field_of(record, names[i]);
      FieldKind& kind = kinds[i];
      if (!value.is_string() && !value.is_null()) kind.is_json = true;
      kind.as_json.add(without_nul(text_of(value, true)).size(), texts);
      if (!kind.is_json) kind.as_text.add(without_nul(text_of(value, false)).size(), texts);
    }
  };
  dataset.for_each(dataset.records(), look, poll);
  if (poll()) return std::nullopt;
  TextColumns columns;
  std::vector<bool> is_json;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool json = kinds[i].is_json;
    is_json.push_back(json);
    ColumnSpec spec{kRecordGroup + names[i],
                    ColumnType::kText,
                    num_texts,
                    0,
                    json ? "field that the prompt reads, as JSON" : "field that the prompt reads",
                    json ? "JSON" : "",
                    ColumnSpec::Extent::kSamples};
    spec.heap_bytes = (json ? kinds[i].as_json : kinds[i].as_text).bytes();
    columns.specs.push_back(std::move(spec));
  }
  columns.for_each = [&dataset, &poll, names, is_json, texts, num_texts](const TextColumns::Visit& visit) {
    std::uint64_t written = 0;
    const auto give = [&](Record&& record) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        const std::string text = text_of(field_of(record, names[i]), is_json[i]);
        for (std::uint64_t copy = 0; copy < texts; ++copy) visit(i, text);
      }
      written += texts;
    };
    dataset.for_each(dataset.records(), give, poll);
    if (poll()) return false;
    MAGISTER_CHECK(written == num_texts, ExitCode::kData,
                   "the data set has records for {} texts, {} were written (it has changed meanwhile); put it back "
                   "and run the same command again",
                   written, num_texts);
    return true;
  };
  return columns;
}

}  // namespace magister
