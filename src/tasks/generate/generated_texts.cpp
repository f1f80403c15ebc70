// Reads texts by number from the columns that a generate task writes.
#include "magister/tasks/generate/generated_texts.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "magister/core/error.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/reader.h"
#include "tasks/generate/columns.h"

namespace magister {

struct GeneratedTexts::Columns {
  explicit Columns(const std::string& path) : file(path) {}
  ResultsReader file;
  std::optional<CheckedUnits> units;
  std::uint64_t texts_a_record = 1;
  std::mutex reading;  // the heap keeps the collection that was read last
  std::optional<ResultsTextColumn> texts;
};

GeneratedTexts::GeneratedTexts(const std::string& path) : columns_(std::make_unique<Columns>(path)) {
  const ResultsReader& file = columns_->file;
  MAGISTER_CHECK(file.complete() && file.text("format") == kGenerateSchema.format, ExitCode::kData,
                 "{}: is not a complete file of texts (there is no text to read); run its generate task first",
                 printable(path));
  columns_->units.emplace(file);
  file.column("/samples/key", ColumnType::kUtf8);
  const ColumnSpec* const text = file.find(generate_column::kText);
  // Files of format version 1 hold strings of a fixed length.
  MAGISTER_CHECK(text != nullptr && (text->type == ColumnType::kText || text->type == ColumnType::kUtf8),
                 ExitCode::kData,
                 "{}: dataset {} is missing or holds no strings (the file was changed); use another file",
                 printable(path), generate_column::kText.path);
  columns_->texts.emplace(file, generate_column::kText.path);
  file.column(generate_column::kLogprob);
  file.column("/tokens/id", ColumnType::kI32);
  if (has_flops()) file.column(generate_column::kPromptTokens);
  if (file.find(generate_column::kGuideKl) != nullptr) file.column(generate_column::kGuideKl);
  const std::uint64_t n = num_texts();
  std::uint64_t count = 1;
  if (n > 1) file.column(generate_column::kTextIndex);
  const auto goes_on = [&] {
    columns_->units->require(count);
    return file.rows(generate_column::kTextIndex, count, 1)[0] == count;
  };
  while (count < n && goes_on()) ++count;
  columns_->texts_a_record = count;
}
GeneratedTexts::~GeneratedTexts() = default;
GeneratedTexts::GeneratedTexts(GeneratedTexts&&) noexcept = default;

std::uint64_t GeneratedTexts::num_texts() const { return columns_->file.num_samples(); }
std::uint64_t GeneratedTexts::texts_a_record() const { return columns_->texts_a_record; }

bool GeneratedTexts::has_same_number_of_texts() const {
  const std::uint64_t n = texts_a_record();
  if (columns_->file.find(generate_column::kRequestModel) == nullptr) return true;
  for (std::uint64_t i = 0; i < num_texts(); ++i) {
    columns_->units->require(i);
    if (columns_->file.rows(generate_column::kTextIndex, i, 1)[0] != i % n) return false;
  }
  return num_texts() % n == 0;
}

std::string GeneratedTexts::text(std::uint64_t i) const {
  columns_->units->require(i);
  const std::lock_guard lock(columns_->reading);
  return columns_->texts->text(i);
}

std::string GeneratedTexts::key(std::uint64_t i) const {
  columns_->units->require(i);
  std::string key(columns_->file.find("/samples/key")->width, '\0');
  columns_->file.read("/samples/key", i, std::as_writable_bytes(std::span(key)));
  key.resize(key.find_last_not_of('\0') + 1);
  return key;
}

void GeneratedTexts::for_each_key(const std::function<void(std::uint64_t, std::string_view)>& visit) const {
  const std::size_t width = columns_->file.find("/samples/key")->width;
  columns_->file.for_each_piece("/samples/key", {0, num_texts()},
                                [&](std::uint64_t first, std::span<const std::byte> bytes) {
                                  for (std::size_t at = 0; at < bytes.size(); at += width) {
                                    const std::string_view key(reinterpret_cast<const char*>(bytes.data()) + at, width);
                                    visit(first + at / width, key.substr(0, key.find_last_not_of('\0') + 1));
                                  }
                                });
}

const std::string& GeneratedTexts::attribute(const std::string& name) const { return columns_->file.text(name); }
TokenizerIdentity GeneratedTexts::tokenizer() const { return tokenizer_of(columns_->file); }

std::uint64_t GeneratedTexts::source_index(std::uint64_t i) const {
  columns_->units->require(i);
  return columns_->file.rows<std::uint64_t>("/samples/source_index", i, 1)[0];
}

// First row of the text, and the row after its last one.
std::vector<std::uint64_t> GeneratedTexts::rows_of(std::uint64_t i) const {
  columns_->units->require(i);
  const auto offset = columns_->file.rows<std::uint64_t>("/samples/offset", i, 2);
  MAGISTER_CHECK(offset[0] <= offset[1], ExitCode::kData,
                 "{}: text {} has rows {} to {} (the file is damaged); run check", printable(columns_->file.path()), i,
                 offset[0], offset[1]);
  return offset;
}

std::uint64_t GeneratedTexts::num_tokens(std::uint64_t i) const {
  const std::vector<std::uint64_t> offset = rows_of(i);
  return offset[1] - offset[0];
}

std::vector<TokenId> GeneratedTexts::tokens(std::uint64_t i) const {
  const std::vector<std::uint64_t> offset = rows_of(i);
  return columns_->file.rows<TokenId>("/tokens/id", offset[0], offset[1] - offset[0]);
}

bool GeneratedTexts::guided() const { return columns_->file.find(generate_column::kGuideKl) != nullptr; }

double GeneratedTexts::sum_of(const char* column, std::uint64_t i) const {
  const std::vector<std::uint64_t> offset = rows_of(i);
  double sum = 0;
  for (const float value : columns_->file.rows<float>(column, offset[0], offset[1] - offset[0])) sum += value;
  return sum;
}

bool GeneratedTexts::has_flops() const { return columns_->file.attribute("flops_a_token") != nullptr; }

double GeneratedTexts::flops(std::uint64_t i) const {
  const ResultsReader& file = columns_->file;
  columns_->units->require(i);
  const std::uint32_t prompt = file.rows(generate_column::kPromptTokens, i, 1)[0];
  return static_cast<double>(num_tokens(i)) * static_cast<double>(file.number("flops_a_token")) +
         static_cast<double>(prompt) * static_cast<double>(file.number("flops_a_prompt_token"));
}

double GeneratedTexts::guide_kl(std::uint64_t i) const { return sum_of(generate_column::kGuideKl.path, i); }

double GeneratedTexts::mean_logprob(std::uint64_t i) const {
  const std::uint64_t count = num_tokens(i);
  return count == 0 ? 0.0 : sum_of(generate_column::kLogprob.path, i) / static_cast<double>(count);
}

}  // namespace magister
