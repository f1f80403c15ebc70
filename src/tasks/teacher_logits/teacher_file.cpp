// Two reads per column and sample; offsets were checked when the file was opened.
#include "magister/tasks/teacher_logits/teacher_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/tools.h"
#include "tasks/teacher_logits/columns.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {
namespace {

void require_teacher(const ResultsReader& file) {
  const std::string& format = file.text("format");
  MAGISTER_CHECK(format == kTeacherLogitsSchema.format, ExitCode::kData,
                 "{}: holds {} (a student learns from teacher logits); give the results of a teacher_logits task",
                 printable(file.path()), printable(format));
}

// Older files do not say how large the vocabulary is; then ids outside are refused row by row.
std::uint64_t vocab_size_of(const ResultsReader& file, const StudentVocabulary& student) {
  const bool says = file.attribute("vocab_size") != nullptr;
  return says ? file.number("vocab_size") : static_cast<std::uint64_t>(student.vocab_size);
}

}  // namespace

void require_same_vocabulary(const std::string& teacher, std::uint64_t vocab_size, const TokenizerIdentity& tokenizer,
                             const StudentVocabulary& student) {
  const bool known = tokenizer.is_known() && student.tokenizer.is_known();
  MAGISTER_CHECK(!known || same_tokenizer(tokenizer, student.tokenizer), ExitCode::kData,
                 "{}: tokenizer_sha256 is {}, the student's tokenizer has {}, and they differ in effect (vocabulary, "
                 "merges, normalizer, pre-tokenizer or added tokens differ: its tokens mean other texts); choose a "
                 "student with the teacher's tokenizer",
                 printable(teacher, 4096), printable(tokenizer.sha256), printable(student.tokenizer.sha256));
  MAGISTER_CHECK(
      known || vocab_size == static_cast<std::uint64_t>(student.vocab_size), ExitCode::kData,
      "{}: the teacher's vocabulary has {} entries, the student's {}, and the teacher read ids (nothing says "
      "that both are of one tokenizer: a token would be another one); choose a student with the teacher's "
      "vocabulary",
      printable(teacher, 4096), vocab_size, student.vocab_size);
}

struct TeacherFile::Parts {
  Parts(const std::string& path, const StudentVocabulary& student)
      : file(existing_results_path(path)),
        units((require_teacher(file), file)),
        rows(file),
        student(student),
        stored(file.find(teacher_column::kTopLogprob)->type) {
    require_same_vocabulary(file.path(), vocab_size_of(file, student), tokenizer_of(file), student);
    file.column("/tokens/id", ColumnType::kI32);
    file.column(teacher_column::kTargetLogprob);
    file.column(teacher_column::kEntropy);
    file.column(teacher_column::kTailMass);
    file.column("/samples/key", ColumnType::kUtf8);
    num_tokens = file.rows<std::uint64_t>("/samples/offset", file.num_samples(), 1)[0];
  }
  IndexRange range(std::uint64_t sample) const {
    MAGISTER_CHECK(sample < file.num_samples(), ExitCode::kInternal, "{}: sample {} of {} (there is none); report this",
                   printable(file.path()), sample, file.num_samples());
    const auto offset = file.rows<std::uint64_t>("/samples/offset", sample, 2);
    return {offset[0], offset[1]};
  }
  void check_rows(std::uint64_t sample, const TeacherSample& found, std::uint64_t first_row,
                  const std::vector<float>& target) const;

  ResultsReader file;
  CheckedUnits units;
  TeacherRows rows;
  StudentVocabulary student;
  ColumnType stored;
  std::uint64_t num_tokens = 0;
};

void TeacherFile::Parts::check_rows(std::uint64_t sample, const TeacherSample& found, std::uint64_t first_row,
                                    const std::vector<float>& target) const {
  const std::uint64_t L = found.ids.size(), k = rows.encoding().top_k;
  for (const TokenId id : found.ids) {
    MAGISTER_CHECK(
        id >= 0 && id < student.vocab_size, ExitCode::kData,
        "{}: sample {} has the token {}, the student's vocabulary {} entries (it has no row for it); choose a student "
        "with the teacher's vocabulary, or leave the record out",
        printable(file.path()), sample, id, student.vocab_size);
  }
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  rows.read_top(first_row, L, ids, logprobs);
  for (std::uint64_t t = 0; t < L; ++t) {
    if (std::isnan(target[t])) continue;
    const bool fits =
        t + 1 < L && target_agrees(std::span(ids).subspan(t * k, k), std::span(logprobs).subspan(t * k, k), stored,
                                   found.ids[t + 1], target[t]);
    MAGISTER_CHECK(fits, ExitCode::kData,
                   "{}: row {} of sample {} gives the token that follows it the log-probability {}, its entries give "
                   "another one (rows are shifted, or the text was edited after the teacher had read it); make the "
                   "file again",
                   printable(file.path()), t, sample, target[t]);
  }
}

TeacherFile::TeacherFile(const std::string& path, const StudentVocabulary& student)
    : parts_(std::make_unique<Parts>(path, student)) {}
TeacherFile::~TeacherFile() = default;

std::uint64_t TeacherFile::num_samples() const { return parts_->file.num_samples(); }
std::uint64_t TeacherFile::num_tokens() const { return parts_->num_tokens; }
std::int64_t TeacherFile::width() const { return static_cast<std::int64_t>(parts_->rows.width()); }
bool TeacherFile::sampled() const { return parts_->rows.encoding().kind == TeacherEncoding::Kind::kSampled; }
const std::string& TeacherFile::path() const { return parts_->file.path(); }
const std::string& TeacherFile::model_sha256() const { return parts_->file.text("model_sha256"); }
std::int64_t TeacherFile::vocab_size() const {
  return static_cast<std::int64_t>(vocab_size_of(parts_->file, parts_->student));
}
std::string TeacherFile::encoding() const { return encoding_name(parts_->rows.encoding().kind); }
std::uint64_t TeacherFile::length(std::uint64_t sample) const { return parts_->range(sample).size(); }

std::string TeacherFile::key(std::uint64_t sample) const {
  std::string padded(parts_->file.find("/samples/key")->width, '\0');
  parts_->file.read("/samples/key", sample, std::as_writable_bytes(std::span(padded)));
  return padded.substr(0, padded.find_last_not_of('\0') + 1);
}

TeacherSample TeacherFile::sample(std::uint64_t index) {
  const Parts& parts = *parts_;
  const IndexRange range = parts.range(index);
  const std::uint64_t L = range.size();
  parts_->units.require(index);
  TeacherSample found;
  found.ids = parts.file.rows<TokenId>("/tokens/id", range.begin, L);
  const auto target = parts.file.rows(teacher_column::kTargetLogprob, range.begin, L);
  found.tail_mass = parts.file.rows(teacher_column::kTailMass, range.begin, L);
  found.entropy = parts.file.rows(teacher_column::kEntropy, range.begin, L);
  parts.check_rows(index, found, range.begin, target);
  parts.rows.read(range.begin, L, found.top_ids, found.top_logprobs);
  found.valid.resize(L);
  std::transform(target.begin(), target.end(), found.valid.begin(), [](float value) { return !std::isnan(value); });
  return found;
}

}  // namespace magister
