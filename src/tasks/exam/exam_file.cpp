// The exam in complete results, its exports, and the rules that `check` applies.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/whole_file.h"
#include "tasks/exam/columns.h"
#include "tasks/exam/pack.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// A column of texts, read in order.
class Texts {
 public:
  Texts(const ResultsReader& file, const Column<std::string>& column)
      : file_(file), name_(column.path), texts_(file, column.path) {}
  std::string at(std::uint64_t row) { return texts_.text(row); }
  ordered_json json_at(std::uint64_t row) {
    ordered_json value = ordered_json::parse(at(row), nullptr, false);
    MAGISTER_CHECK(!value.is_discarded(), ExitCode::kData,
                   "{}: {} of version {} is not JSON (the file was changed); run check", printable(file_.path()), name_,
                   row);
    return value;
  }

 private:
  const ResultsReader& file_;
  const char* name_;
  ResultsTextColumn texts_;
};

void read_choices(const ordered_json& written, std::int32_t key, ExamItem& item) {
  if (item.kind == ItemKind::kNumeric) {
    item.value = written.at(0).get<double>();
    item.tolerance = written.at(1).get<double>();
  } else if (item.kind == ItemKind::kShortAnswer) {
    item.accepted = written.get<std::vector<std::string>>();
  } else {
    for (const ordered_json& choice : written) item.choices.push_back({choice.get<std::string>(), ""});
    item.key = static_cast<std::size_t>(std::max(0, key));
  }
}

const ExamExport& format_called(std::string_view name) {
  const ExamExport* const format = find_exam_export(name);
  MAGISTER_ASSERT(format != nullptr);
  return *format;
}

// One file of a format: the first one, where a format has several.
template <std::size_t index>
void export_format(const ResultsReader& file, const ExportedColumns&, const std::string& out) {
  const ExamExport& format = exam_exports()[index];
  const std::vector<ExamFile> files = export_exam(format_called(format.name), exam_of(file));
  if (files.size() == 1) {
    write_text(out, [&](const TextSink& sink) { sink(files[0].bytes); });
    return;
  }
  MAGISTER_CHECK(out != "-", ExitCode::kUsage,
                 "--to {}: standard output (the format has {} files); name a file with --out", format.name,
                 files.size());
  for (const ExamFile& one : files) {
    WholeFile target(out + one.suffix, WholeFile::Existing::kRefused);
    target.write(one.bytes);
    target.keep();
  }
}

template <typename T>
bool has(const ResultsReader& file, const Column<T>& column, FaultList& faults) {
  if (column.fits(file.find(column))) return true;
  faults.add("dataset {} is missing or has another type or shape than exams have", column.path);
  return false;
}

bool check_exam_columns(const ResultsReader& file, FaultList& faults) {
  if (file.find(exam_column::kSlotId) != nullptr) return false;  // a running file has no packed rows to check
  bool right = true;
  for (const auto* const column : {&exam_column::kObjective, &exam_column::kObjectiveText, &exam_column::kReason,
                                   &exam_column::kStem, &exam_column::kChoices, &exam_column::kAnswer,
                                   &exam_column::kExplanation, &exam_column::kSource, &exam_column::kRepeats})
    right &= has(file, *column, faults);
  for (const auto* const column : {&exam_column::kKind, &exam_column::kState, &exam_column::kAskedDifficulty,
                                   &exam_column::kDifficulty, &exam_column::kAskedBloom, &exam_column::kBloom})
    right &= has(file, *column, faults);
  for (const auto* const column :
       {&exam_column::kItem, &exam_column::kAttempt, &exam_column::kReasons, &exam_column::kFailed})
    right &= has(file, *column, faults);
  for (const auto* const column : {&exam_column::kParent, &exam_column::kKey}) right &= has(file, *column, faults);
  for (const auto* const column : {&exam_column::kBlind, &exam_column::kBlindRight, &exam_column::kClosedBook,
                                   &exam_column::kSingleKey, &exam_column::kSupport, &exam_column::kAlignment,
                                   &exam_column::kWording, &exam_column::kSame, &exam_column::kStructure})
    right &= has(file, *column, faults);
  return right;
}

// An accepted version is the last of its item, has no reason against it and a key among its choices.
void check_exam_rows(const ResultsReader& file, const Unit& unit, FaultList& faults) {
  using namespace exam_column;
  Texts choices(file, kChoices);
  const std::uint64_t first = unit.samples.begin, count = unit.samples.size();
  const auto column = [&](const auto& of) { return file.rows(of, first, count); };
  const auto states = column(kState), kinds = column(kKind);
  const auto reasons = column(kReasons);
  const auto keys = column(kKey), parents = column(kParent);
  const auto blind = column(kBlind), closed_book = column(kClosedBook);
  // With the version after the unit's last one.
  const auto attempts = file.rows(kAttempt, first, std::min(count + 1, file.num_samples() - first));
  for (std::uint64_t row = 0; row < count; ++row) {
    const std::uint64_t i = first + row;
    if (states[row] > 2) faults.add("version {}: the state {} is none of 0 to 2", i, states[row]);
    if (kinds[row] > 3) faults.add("version {}: the kind {} is none of 0 to 3", i, kinds[row]);
    if ((states[row] == 0) != (reasons[row] == 0))
      faults.add("version {}: its state {} contradicts its reasons {}", i, states[row], reasons[row]);
    const bool has_next = row + 1 < attempts.size() && attempts[row + 1] == attempts[row] + 1;
    if ((states[row] == 1) != has_next)
      faults.add("version {}: its state {} contradicts the version after it", i, states[row]);
    if (parents[row] != static_cast<std::int32_t>(attempts[row]) - 1)
      faults.add("version {}: its parent is not the version before", i);
    const ordered_json all = ordered_json::parse(choices.at(i), nullptr, false);
    if (!all.is_array())
      faults.add("version {}: its choices are no list", i);
    else if (states[row] == 0 && kinds[row] <= 1 &&
             (keys[row] < 0 || static_cast<std::size_t>(keys[row]) >= all.size()))
      faults.add("version {}: the key {} is not among its {} choices", i, keys[row], all.size());
    for (const float share : {blind[row], closed_book[row]}) {
      if (!std::isnan(share) && !(share >= -1e-4f && share <= 1 + 1e-4f))
        faults.add("version {}: the probability {} is none", i, share);
    }
  }
}

constexpr ColumnNames kNamesOfExam[] = {
    {.path = exam_column::kKind.path, .names = "choice,true_false,short_answer,numeric"},
    {.path = exam_column::kState.path, .names = "accepted,rewritten,rejected"},
    {.path = exam_column::kAskedDifficulty.path, .names = ",easy,medium,hard"},
    {.path = exam_column::kDifficulty.path, .names = ",easy,medium,hard"},
    {.path = exam_column::kAskedBloom.path, .names = ",remember,understand,apply,analyze,evaluate,create"},
    {.path = exam_column::kBloom.path, .names = ",remember,understand,apply,analyze,evaluate,create"}};

}  // namespace

Exam exam_of(const ResultsReader& file) {
  MAGISTER_CHECK(file.text("format") == kExamSchema.format, ExitCode::kData,
                 "{}: holds no exam (this format is for exams alone); export it --to jsonl", printable(file.path()));
  Texts objective(file, exam_column::kObjective), objective_text(file, exam_column::kObjectiveText),
      stem(file, exam_column::kStem), choices(file, exam_column::kChoices),
      explanation(file, exam_column::kExplanation), source(file, exam_column::kSource);
  Exam exam;
  exam.title = file.text("title");
  const auto column = [&](const auto& of) { return file.rows(of, 0, file.num_samples()); };
  const auto states = column(exam_column::kState), kinds = column(exam_column::kKind),
             difficulties = column(exam_column::kDifficulty), asked = column(exam_column::kAskedDifficulty),
             levels = column(exam_column::kBloom), asked_levels = column(exam_column::kAskedBloom);
  const auto items = column(exam_column::kItem);
  const auto keys = column(exam_column::kKey);
  for (std::uint64_t i = 0; i < file.num_samples(); ++i) {
    if (states[i] != 0) continue;
    ExamItem item;
    item.kind = static_cast<ItemKind>(std::min<std::uint8_t>(3, kinds[i]));
    item.objective_number = objective.at(i);
    item.objective_text = objective_text.at(i);
    item.id = fmt::format("{}-{}", item.objective_number, items[i] + 1);
    item.stem = stem.at(i);
    item.explanation = explanation.at(i);
    item.difficulty =
        static_cast<ItemDifficulty>(std::min<std::uint8_t>(3, difficulties[i] != 0 ? difficulties[i] : asked[i]));
    item.bloom = static_cast<BloomLevel>(std::min<std::uint8_t>(6, levels[i] != 0 ? levels[i] : asked_levels[i]));
    try {
      read_choices(choices.json_at(i), keys[i], item);
      const ordered_json cited = source.json_at(i);
      item.cited = {cited.at("path").get<std::string>(), cited.at("number").get<std::uint64_t>(),
                    cited.at("text").get<std::string>()};
    } catch (const nlohmann::json::exception&) {
      fail(ExitCode::kData, "{}: version {} has choices or a source of another form (the file was changed); run check",
           printable(file.path()), i);
    }
    exam.items.push_back(std::move(item));
  }
  return exam;
}

std::span<const ExportFormat> exam_export_formats() {
  // `jsonl` is a table of every kind of results; that of the exam alone is written beside them.
  static constexpr ExportFormat kFormats[] = {{"txt", false, export_format<0>},   {"aiken", true, export_format<1>},
                                              {"gift", true, export_format<2>},   {"moodle", true, export_format<3>},
                                              {"qti21", false, export_format<4>}, {"qti30", false, export_format<5>},
                                              {"html", true, export_format<7>}};
  return kFormats;
}

constinit const ResultsSchema kExamSchema = {.format = "magister.exam",
                                             .columns = check_exam_columns,
                                             .rows = check_exam_rows,
                                             .exported = {.names = kNamesOfExam}};

}  // namespace magister
