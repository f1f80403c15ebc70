// The fields that the dataset section names (DatasetConfig).
#include "io/dataset/wanted_fields.h"

#include "magister/core/error.h"

namespace magister {

std::optional<std::vector<std::string>> wanted_fields(const DatasetConfig& config) {
  if (config.whole_record && config.messages_field.empty()) return std::nullopt;
  std::vector<std::string> fields;
  if (config.whole_record) {
    fields.push_back(config.messages_field);
    if (!config.tools_field.empty()) fields.push_back(config.tools_field);
  } else {
    fields.push_back(config.tokens_field.empty() ? config.text_field : config.tokens_field);
  }
  if (!config.key_field.empty()) fields.push_back(config.key_field);
  return fields;
}

void fail_no_column(const std::string& where, const std::string& field, const std::vector<std::string>& columns) {
  const std::string near = nearest_name(field, columns);
  std::string names;
  for (const std::string& name : columns) names += (names.empty() ? "" : ", ") + printable(name, 40);
  fail(ExitCode::kData,
       "{}: there is no column \"{}\" (the experiment asks for it; the file has {}); {}correct the dataset section",
       where, printable(field), names.empty() ? "none" : printable(names, 400),
       near.empty() ? "" : "did you mean \"" + printable(near, 80) + "\"? else ");
}

}  // namespace magister
