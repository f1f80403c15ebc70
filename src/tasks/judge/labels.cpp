// A label is normalised to one text in small letters, which is then looked up.
#include "tasks/judge/labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/io/agreed_errors.h"
#include "magister/io/dataset/record_json.h"
#include "magister/runtime/chat_prompts.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

std::string normalised(std::string text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  text = begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
  for (char& c : text) c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// One spelling for 1 and 1.0: tables write integers as 1.0 in a column with gaps.
std::string spelling_of(const ordered_json& value) {
  if (value.is_string()) return normalised(value.get<std::string>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 1e6)
      return std::to_string(static_cast<std::int64_t>(number));
  }
  return record_text(value);
}

}  // namespace

JudgeLabels::JudgeLabels(const JudgeConfig& config, const std::vector<VerdictClass>& classes)
    : field_(config.label_field) {
  for (const VerdictClass& one : classes) {
    names_.push_back(one.name);
    spellings_.push_back({normalised(one.name)});
    for (const std::string& word : one.words) spellings_.back().push_back(normalised(word));
  }
  if (config.mode != JudgeMode::kReference) return;
  spellings_[0].insert(spellings_[0].end(), {"true", "1", "y"});
  spellings_[1].insert(spellings_[1].end(), {"false", "0", "n"});
}

std::optional<std::int32_t> JudgeLabels::of(const Record& record) const {
  const ordered_json& value = record_field(record, field_);
  if (value.is_null()) return std::nullopt;
  const std::string label = spelling_of(value);
  const auto found = std::find_if(spellings_.begin(), spellings_.end(), [&](const std::vector<std::string>& known) {
    return std::find(known.begin(), known.end(), label) != known.end();
  });
  MAGISTER_CHECK(found != spellings_.end(), ExitCode::kData,
                 "{}: the label {} is not a verdict (they are {}; agreement could not be counted); "
                 "correct the line, or write null where there is no label",
                 record.where, printable(record_text(value), 60), fmt::join(names_, ", "));
  return static_cast<std::int32_t>(found - spellings_.begin());
}

void JudgeLabels::check(const Communicator& world, const Dataset& dataset) const {
  if (!are_given()) return;
  const IndexRange all = dataset.records();
  const auto border = [&](int rank) {
    return all.begin + all.size() * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(world.size());
  };
  run_agreed(world, [&] {
    dataset.for_each({border(world.rank()), border(world.rank() + 1)}, [&](Record&& record) { of(record); });
  });
}

}  // namespace magister
