// Columns of one value per version are written whole: an exam has thousands of versions, not millions.
#include "tasks/exam/pack.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/run/packed_results.h"
#include "magister/run/unit_samples.h"
#include "tasks/exam/columns.h"
#include "tasks/exam/objective_writer.h"
#include "tasks/exam/report.h"

namespace magister {
namespace {

using nlohmann::ordered_json;
using Versions = std::vector<ExamVersion>;

std::string choices_json(const ExamItem& item) {
  ordered_json all = ordered_json::array();
  if (item.kind == ItemKind::kNumeric) {
    all = {item.value, item.tolerance};
  } else if (item.kind == ItemKind::kShortAnswer) {
    all = item.accepted;
  } else {
    for (const ItemChoice& choice : item.choices) all.push_back(choice.text);
  }
  return all.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string source_json(const ExamItem& item) {
  return ordered_json{{"path", item.cited.path}, {"number", item.cited.number}, {"text", item.cited.text}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "\n") + line;
  return all;
}

using TextOf = std::function<std::string(const ExamVersion&)>;

std::vector<TextColumn> text_columns_of(const Versions& versions, std::uint64_t choices, const StopPoll& poll) {
  using namespace exam_column;
  std::vector<TextColumn> columns;
  const auto add = [&](const Column<std::string>& column, const TextOf& text) {
    columns.push_back({column.spec(versions.size()), [&versions, &poll, text](const TextColumn::Visit& visit) {
                         for (const ExamVersion& one : versions) {
                           if (poll()) return false;
                           visit(text(one));
                         }
                         return true;
                       }});
  };
  add(kObjective, [](const ExamVersion& one) { return one.item.objective_number; });
  add(kObjectiveText, [](const ExamVersion& one) { return one.item.objective_text; });
  add(kReason, [choices](const ExamVersion& one) { return joined_lines(reasons_in_words(one.version, choices)); });
  add(kStem, [](const ExamVersion& one) { return one.item.stem; });
  add(kChoices, [](const ExamVersion& one) { return one.version.written ? choices_json(one.item) : "[]"; });
  add(kAnswer, [](const ExamVersion& one) {
    if (!one.version.written) return std::string();
    return one.item.kind == ItemKind::kChoice ? one.item.choices[one.item.key].text : right_answer(one.item);
  });
  add(kExplanation, [](const ExamVersion& one) { return one.item.explanation; });
  add(kRepeats, [](const ExamVersion& one) { return one.repeats; });
  add(kSource, [](const ExamVersion& one) { return one.version.written ? source_json(one.item) : "null"; });
  return columns;
}

struct NumberColumn {
  ColumnSpec spec;
  std::vector<std::byte> bytes;
};

template <typename T, typename Get>
NumberColumn numbers_of(const Column<T>& column, const Versions& versions, const Get& get) {
  std::vector<T> values;
  values.reserve(versions.size());
  for (const ExamVersion& one : versions) values.push_back(static_cast<T>(get(one)));
  const auto bytes = std::as_bytes(std::span(values));
  return {column.spec(versions.size()), {bytes.begin(), bytes.end()}};
}

NumberColumn structure_rows(const Versions& versions, std::uint64_t choices) {
  std::vector<float> values;
  for (const ExamVersion& one : versions) {
    if (!one.version.written) {
      values.insert(values.end(), kNumStructureChecks, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const ExamItem& item = one.version.written->item;
    for (const CheckResult& result : check_structure(item, item.kind == ItemKind::kChoice ? choices : 0))
      values.push_back(static_cast<float>(result.number));
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {exam_column::kStructure.spec(versions.size(), kNumStructureChecks), {bytes.begin(), bytes.end()}};
}

NumberColumn rows_of(const Column<float>& column, const Versions& versions, std::size_t first, std::size_t width) {
  std::vector<float> values;
  for (const ExamVersion& one : versions) {
    const auto begin = one.version.numbers.begin() + static_cast<std::ptrdiff_t>(first);
    values.insert(values.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {column.spec(versions.size(), width), {bytes.begin(), bytes.end()}};
}

std::uint8_t stored_state(ExamState state) { return static_cast<std::uint8_t>(static_cast<int>(state) - 1); }

std::vector<NumberColumn> number_columns_of(const Versions& versions, const ExamSetup& setup) {
  using namespace exam_column;
  const auto check = [&](const Column<float>& column, ExamNumber number) {
    return numbers_of(column, versions, [number](const ExamVersion& one) { return one.version.number(number); });
  };
  const std::size_t choices = setup.config.choices;
  return {
      numbers_of(kItem, versions, [](const auto& one) { return one.version.item; }),
      numbers_of(kAttempt, versions, [](const auto& one) { return one.version.attempt; }),
      numbers_of(kParent, versions, [](const auto& one) { return static_cast<std::int32_t>(one.version.attempt) - 1; }),
      numbers_of(kSeed, versions, [&](const auto&) { return setup.config.seed; }),
      numbers_of(kKind, versions, [](const auto& one) { return one.item.kind; }),
      numbers_of(kState, versions, [](const auto& one) { return stored_state(one.version.state); }),
      numbers_of(kReasons, versions, [](const auto& one) { return one.version.reasons; }),
      numbers_of(
          kKey, versions,
          [](const auto& one) { return one.item.choices.empty() ? -1 : static_cast<std::int32_t>(one.item.key); }),
      numbers_of(kAskedDifficulty, versions, [](const auto& one) { return one.asked.difficulty; }),
      numbers_of(kDifficulty, versions,
                 [](const auto& one) { return measured_difficulty(one.version.number(ExamNumber::kBlind)); }),
      numbers_of(kAskedBloom, versions, [](const auto& one) { return one.asked.bloom; }),
      numbers_of(kBloom, versions, [](const auto& one) { return one.version.bloom + 1; }),
      check(kBlind, ExamNumber::kBlind),
      check(kBlindRight, ExamNumber::kBlindRight),
      check(kClosedBook, ExamNumber::kClosedBook),
      check(kSingleKey, ExamNumber::kSingleKey),
      check(kSupport, ExamNumber::kSupport),
      check(kAlignment, ExamNumber::kAlignment),
      check(kWording, ExamNumber::kWording),
      check(kBloomProbability, ExamNumber::kBloomProbability),
      check(kMass, ExamNumber::kMass),
      check(kSame, ExamNumber::kSame),
      structure_rows(versions, choices),
      numbers_of(kFailed, versions,
                 [&](const auto& one) {
                   return failed_checks(one.version, setup.config.limits_of_checks, setup.config.choices);
                 }),
      rows_of(kLetters, versions, kNumExamNumbers, choices * choices),
      rows_of(kDistractors, versions, kNumExamNumbers + choices * choices, choices - 1),
  };
}

std::string key_of(const ExamVersion& one) { return fmt::format("{}-v{}", one.item.id, one.version.attempt); }

constexpr std::uint64_t kUnitVersions = 1024;

// Keys, places and tokens of all versions.
void write_samples_of(const Versions& versions, std::uint64_t key_bytes, ResultsFile& file) {
  std::string keys;
  std::vector<std::uint64_t> source, offset = {0}, units;
  std::vector<TokenId> ids;
  for (const ExamVersion& one : versions) {
    std::string key = key_of(one);
    key.resize(key_bytes, '\0');
    keys += key;
    source.push_back(one.record);
    if ((source.size() - 1) % kUnitVersions == 0) units.push_back(source.size() - 1);
    ids.insert(ids.end(), one.version.tokens.begin(), one.version.tokens.end());
    offset.push_back(ids.size());
  }
  units.push_back(versions.size());
  file.write("/samples/key", 0, std::as_bytes(std::span(keys)));
  file.write("/samples/source_index", 0, std::as_bytes(std::span(source)));
  file.write("/samples/offset", 0, std::as_bytes(std::span(offset)));
  file.write("/tokens/id", 0, std::as_bytes(std::span(ids)));
  file.write("/commit/unit_begin", 0, std::as_bytes(std::span(units)));
}

}  // namespace

std::uint64_t packed_exam_bytes(const ExamShape& shape) {
  const std::uint64_t a_version = shape.slots * (4 + kTextBytesAToken) + 4 * shape.numbers() + 2048;
  return shape.num_objectives * shape.items * kPlannedVersions * a_version + (1 << 20);
}

bool pack_exam(const WrittenExam& exam, const ExamSetup& setup, const ExamShape& shape, const std::string& results_path,
               const Attributes& root, const StopPoll& poll) {
  const Versions& versions = exam.versions;
  std::vector<TextColumn> texts = text_columns_of(versions, setup.config.choices, poll);
  for (TextColumn& column : texts) {
    if (!measure_texts(column)) return false;
  }
  const std::vector<NumberColumn> numbers = number_columns_of(versions, setup);
  std::uint64_t num_tokens = 0, key_bytes = 1;
  for (const ExamVersion& one : versions) {
    num_tokens += one.version.tokens.size();
    key_bytes = std::max<std::uint64_t>(key_bytes, key_of(one).size());
  }
  ResultsSpec spec;
  spec.columns =
      sample_columns(versions.size(), num_tokens, key_bytes, "rows of version i are offset[i] .. offset[i+1]",
                     "the tokens of the version as the model wrote them");
  for (const TextColumn& column : texts) spec.columns.push_back(column.spec);
  for (const NumberColumn& column : numbers) spec.columns.push_back(column.spec);
  spec.num_units = (versions.size() + kUnitVersions - 1) / kUnitVersions;
  spec.default_plot_column = exam_column::kBlind.path;
  spec.attributes = root;
  spec.attributes.emplace_back("num_samples", static_cast<std::uint64_t>(versions.size()));
  spec.attributes.emplace_back("num_tokens", num_tokens);
  spec.attributes.emplace_back("title", title_of(setup.config));
  spec.attributes.emplace_back("prompts", setup.prompts.templates());
  if (setup.config.auto_objectives > 0)
    spec.attributes.emplace_back("objectives", objective_list_json(exam.objectives, setup.chunks));
  ::unlink((results_path + ".partial").c_str());  // left by a killed attempt; all of it is in the running file
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, results_path, spec);
  write_samples_of(versions, key_bytes, file);
  for (const NumberColumn& column : numbers) file.write(column.spec.path, 0, column.bytes);
  for (const TextColumn& column : texts) {
    if (!write_text_column(column, file)) return false;
  }
  file.freeze();
  commit_all(file);
  file.complete(alone);
  return true;
}

}  // namespace magister
