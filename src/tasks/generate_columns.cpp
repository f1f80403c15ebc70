// Columns of running and packed texts, and the packing: records in blocks, so memory is bounded whatever their number.
#include "tasks/generate_columns.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;
constexpr std::uint64_t kBlock = 512;                // records in memory, or as many as this many bytes hold
constexpr std::uint64_t kBlockBytes = 64 << 20;
constexpr std::uint64_t kUnitTexts = 1024;    // texts a unit of the packed file: what one checksum covers

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<T> read_column(const ResultsFile& file, const char* path, std::uint64_t first, std::uint64_t rows, std::uint64_t width) {
  std::vector<T> values(rows * width);
  file.read(path, first, std::as_writable_bytes(std::span(values)));
  return values;
}

// A block of records of the running file.
struct Block {
  std::uint64_t records = 0;
  std::vector<std::uint32_t> lengths;
  std::vector<TokenId> ids;
  std::span<const TokenId> text(std::uint64_t i, const GenerateShape& shape) const {
    return std::span(ids).subspan(i * shape.slots, lengths[i]);
  }
};

std::uint64_t block_records(const GenerateShape& shape) {
  const std::uint64_t record_bytes = shape.texts * shape.slots * (8 + 8 * shape.top);
  return std::clamp<std::uint64_t>(kBlockBytes / record_bytes, 1, kBlock);
}

// False: poll said that the job should stop.
template <typename Body>
bool for_blocks(const ResultsFile& running, const GenerateShape& shape, const StopPoll& poll, const Body& body) {
  for (std::uint64_t first = 0; first < shape.num_records; first += block_records(shape)) {
    fail_point("task.pack.block");
    if (poll()) return false;
    Block block;
    block.records = std::min(block_records(shape), shape.num_records - first);
    block.lengths = read_column<std::uint32_t>(running, "/generate/length", first, block.records, shape.texts);
    block.ids = read_column<TokenId>(running, "/generate/slot_id", first, block.records, shape.texts * shape.slots);
    for (const std::uint32_t length : block.lengths) {
      MAGISTER_CHECK(length <= shape.slots, ExitCode::kData, "a text of {} tokens in {} slots (the running file is damaged); "
                     "start over with --fresh", length, shape.slots);
    }
    body(first, block);
  }
  return true;
}

struct Totals {
  std::uint64_t tokens = 0, text_bytes = 1;
};

std::vector<ColumnSpec> packed_columns(const GenerateShape& shape, const Totals& totals) {
  const std::uint64_t m = shape.num_records * shape.texts, T = totals.tokens;
  std::vector<ColumnSpec> columns = {
      {"/samples/key", ColumnType::kUtf8, m, shape.key_bytes, "the record's key, or its index in the data set", "", Extent::kSamples},
      {"/samples/source_index", ColumnType::kU64, m, 0, "position of the record in the data set", "", Extent::kSamples},
      {"/samples/offset", ColumnType::kU64, m + 1, 0, "rows of sample i are offset[i] .. offset[i+1] of /tokens and /generate/logprob",
       "", Extent::kFixed},
      {"/tokens/id", ColumnType::kI32, T, 0, "the tokens of the text as the model wrote them, the ending one included", "", Extent::kRows},
      {"/generate/logprob", ColumnType::kF32, T, 0,
       "log-probability of each token under the model itself: before bias, penalty, temperature and truncation", "nat", Extent::kRows},
      {"/generate/text_index", ColumnType::kU32, m, 0, "which of the record's n texts this is; of best_of texts, the best first", "",
       Extent::kSamples},
      {"/generate/finish_reason", ColumnType::kU8, m, 0, "0: an end token or a stop text; 1: max_new_tokens", "", Extent::kSamples},
      {"/generate/prompt_tokens", ColumnType::kU32, m, 0, "length of the prompt", "", Extent::kSamples},
      {"/generate/text", ColumnType::kUtf8, m, totals.text_bytes,
       "the text, without special tokens, up to where a stop text begins; padded with NUL", "", Extent::kSamples},
  };
  if (shape.top > 0) {
    columns.push_back({"/generate/top_id", ColumnType::kI32, T, shape.top,
                       "the most probable tokens where this one was drawn, best first; of equal ones the lower id first", "",
                       Extent::kRows});
    columns.push_back({"/generate/top_logprob", ColumnType::kF32, T, shape.top,
                       "their log-probabilities over the whole vocabulary, under the model itself", "nat", Extent::kRows});
  }
  return columns;
}

}  // namespace

std::uint64_t packed_bytes(const GenerateShape& shape) {
  const std::uint64_t a_text = shape.slots * (8 + 8 * shape.top) + 5;
  return shape.num_tokens * 4 + shape.num_records * (shape.key_bytes + 16 + shape.texts * a_text + 13) + 16;
}

std::vector<ColumnSpec> running_columns(const GenerateShape& shape) {
  const std::uint64_t n = shape.num_records, width = shape.texts * shape.slots;
  std::vector<ColumnSpec> columns = {
      {"/samples/key", ColumnType::kUtf8, n, shape.key_bytes, "the record's key, or its index in the data set", "", Extent::kSamples},
      {"/samples/source_index", ColumnType::kU64, n, 0, "position of the record in the data set", "", Extent::kSamples},
      {"/samples/offset", ColumnType::kU64, n + 1, 0, "rows of prompt i are offset[i] .. offset[i+1] of /tokens", "", Extent::kFixed},
      {"/tokens/id", ColumnType::kI32, shape.num_tokens, 0, "the prompts' tokens", "", Extent::kRows},
      {"/generate/slot_id", ColumnType::kI32, n, width, "tokens of the record's texts, each in its slots", "", Extent::kSamples},
      {"/generate/slot_logprob", ColumnType::kF32, n, width, "their log-probabilities", "nat", Extent::kSamples},
      {"/generate/length", ColumnType::kU32, n, shape.texts, "used slots of each text", "", Extent::kSamples},
      {"/generate/finish_reason", ColumnType::kU8, n, shape.texts, "0: an end token or a stop text; 1: max_new_tokens", "", Extent::kSamples},
  };
  if (shape.top > 0) {
    columns.push_back({"/generate/slot_top_id", ColumnType::kI32, n, width * shape.top, "the most probable tokens of every slot", "",
                       Extent::kSamples});
    columns.push_back({"/generate/slot_top_logprob", ColumnType::kF32, n, width * shape.top, "their log-probabilities", "nat",
                       Extent::kSamples});
  }
  return columns;
}

std::vector<ColumnBytes> running_rows(const std::vector<Generation>& texts, const GenerateShape& shape) {
  std::vector<TokenId> ids(shape.texts * shape.slots, 0);
  std::vector<float> logprobs(ids.size(), 0.0f);
  std::vector<std::uint32_t> lengths(shape.texts, 0);
  std::vector<std::uint8_t> reasons(shape.texts, 0);
  std::vector<TokenId> top_ids(ids.size() * shape.top, 0);
  std::vector<float> top_logprobs(top_ids.size(), 0.0f);
  MAGISTER_ASSERT(texts.size() == shape.texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    MAGISTER_ASSERT(texts[i].tokens.size() <= shape.slots && texts[i].logprobs.size() == texts[i].tokens.size());
    std::copy(texts[i].tokens.begin(), texts[i].tokens.end(), ids.begin() + static_cast<std::ptrdiff_t>(i * shape.slots));
    std::copy(texts[i].logprobs.begin(), texts[i].logprobs.end(), logprobs.begin() + static_cast<std::ptrdiff_t>(i * shape.slots));
    const auto first_top = static_cast<std::ptrdiff_t>(i * shape.slots * shape.top);
    MAGISTER_ASSERT(texts[i].top_ids.size() == texts[i].tokens.size() * shape.top);
    std::copy(texts[i].top_ids.begin(), texts[i].top_ids.end(), top_ids.begin() + first_top);
    std::copy(texts[i].top_logprobs.begin(), texts[i].top_logprobs.end(), top_logprobs.begin() + first_top);
    lengths[i] = static_cast<std::uint32_t>(texts[i].tokens.size());
    reasons[i] = static_cast<std::uint8_t>(texts[i].finish_reason);
  }
  std::vector<ColumnBytes> rows = {{"/generate/slot_id", bytes_of(ids), true},
                                   {"/generate/slot_logprob", bytes_of(logprobs), true},
                                   {"/generate/length", bytes_of(lengths), true},
                                   {"/generate/finish_reason", bytes_of(reasons), true}};
  if (shape.top > 0) {
    rows.push_back({"/generate/slot_top_id", bytes_of(top_ids), true});
    rows.push_back({"/generate/slot_top_logprob", bytes_of(top_logprobs), true});
  }
  return rows;
}

std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens, const StopRules& rules) {
  const auto ends = [&](TokenId id) { return std::find(rules.tokens.begin(), rules.tokens.end(), id) != rules.tokens.end(); };
  if (rules.constrained && !tokens.empty() && ends(tokens.back())) tokens = tokens.first(tokens.size() - 1);
  std::string text = tokenizer.decode(tokens, /*skip_special_tokens=*/true);
  std::size_t end = text.size();
  for (const std::string& stop : rules.texts) end = std::min(end, text.find(stop));
  text.resize(std::min(end, text.size()));
  return text;
}

namespace {

std::optional<Totals> totals_of(const ResultsFile& running, const GenerateShape& shape, const Tokenizer& tokenizer, const StopRules& rules,
                                const StopPoll& poll) {
  Totals totals;
  const bool all = for_blocks(running, shape, poll, [&](std::uint64_t, const Block& block) {
    for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
      totals.tokens += block.lengths[i];
      totals.text_bytes = std::max<std::uint64_t>(totals.text_bytes, text_of(tokenizer, block.text(i, shape), rules).size());
    }
  });
  return all ? std::optional(totals) : std::nullopt;
}

std::vector<std::uint64_t> unit_begins(std::uint64_t num_texts) {
  std::vector<std::uint64_t> begins;
  for (std::uint64_t first = 0; first < num_texts; first += kUnitTexts) begins.push_back(first);
  begins.push_back(num_texts);
  return begins;
}

}  // namespace

bool pack_texts(const ResultsFile& running, const GenerateShape& shape, const std::string& results_path,
                const Attributes& attributes, const Tokenizer& tokenizer, const StopRules& rules, const StopPoll& poll) {
  const std::optional<Totals> found = totals_of(running, shape, tokenizer, rules, poll);
  if (!found) return false;
  const Totals totals = *found;
  const std::uint64_t num_texts = shape.num_records * shape.texts;
  ResultsSpec spec;
  spec.columns = packed_columns(shape, totals);
  spec.num_units = (num_texts + kUnitTexts - 1) / kUnitTexts;
  spec.default_plot_column = "/generate/logprob";
  spec.attributes = attributes;
  spec.attributes.emplace_back("num_samples", num_texts);
  spec.attributes.emplace_back("num_tokens", totals.tokens);
  ::unlink((results_path + ".partial").c_str());  // of an attempt that was killed: everything in it comes from `running`
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, results_path, spec);

  file.write("/commit/unit_begin", 0, bytes_of(unit_begins(num_texts)));
  std::uint64_t row = 0;
  const bool all = for_blocks(running, shape, poll, [&](std::uint64_t first, const Block& block) {
    const auto keys = read_column<char>(running, "/samples/key", first, block.records, shape.key_bytes);
    const auto source = read_column<std::uint64_t>(running, "/samples/source_index", first, block.records, 1);
    const auto prompt = read_column<std::uint64_t>(running, "/samples/offset", first, block.records + 1, 1);
    const auto logprob = read_column<float>(running, "/generate/slot_logprob", first, block.records, shape.texts * shape.slots);
    const auto reason = read_column<std::uint8_t>(running, "/generate/finish_reason", first, block.records, shape.texts);
    std::vector<TokenId> top_id;
    std::vector<float> top_logprob;
    if (shape.top > 0) {
      const std::uint64_t width = shape.texts * shape.slots * shape.top;
      top_id = read_column<TokenId>(running, "/generate/slot_top_id", first, block.records, width);
      top_logprob = read_column<float>(running, "/generate/slot_top_logprob", first, block.records, width);
    }
    for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
      const std::uint64_t record = i / shape.texts, sample = first * shape.texts + i;
      const auto ids = block.text(i, shape);
      std::string text = text_of(tokenizer, ids, rules);
      text.resize(totals.text_bytes, '\0');
      const auto write = [&](const char* path, std::uint64_t at, const auto& values) { file.write(path, at, std::as_bytes(std::span(values))); };
      write("/samples/key", sample, std::span(keys).subspan(record * shape.key_bytes, shape.key_bytes));
      write("/samples/source_index", sample, std::span(source).subspan(record, 1));
      write("/samples/offset", sample, std::vector<std::uint64_t>{row});
      write("/tokens/id", row, ids);
      write("/generate/logprob", row, std::span(logprob).subspan(i * shape.slots, ids.size()));
      if (shape.top > 0) {
        const std::uint64_t at = i * shape.slots * shape.top, count = ids.size() * shape.top;
        write("/generate/top_id", row, std::span(top_id).subspan(at, count));
        write("/generate/top_logprob", row, std::span(top_logprob).subspan(at, count));
      }
      write("/generate/text_index", sample, std::vector<std::uint32_t>{static_cast<std::uint32_t>(i % shape.texts)});
      write("/generate/finish_reason", sample, std::span(reason).subspan(i, 1));
      write("/generate/prompt_tokens", sample, std::vector<std::uint32_t>{static_cast<std::uint32_t>(prompt[record + 1] - prompt[record])});
      write("/generate/text", sample, text);
      row += ids.size();
    }
  });
  if (!all) return false;  // what is left behind has no name that counts, and is made anew
  file.write("/samples/offset", num_texts, bytes_of(std::vector<std::uint64_t>{row}));
  file.freeze();
  constexpr std::size_t kUnitsACommit = 1024;
  std::vector<Unit> units;
  for (const std::uint64_t index : file.pending_units()) {
    units.push_back(file.unit(index));
    if (units.size() < kUnitsACommit) continue;
    file.commit(units);
    units.clear();
  }
  file.commit(units);
  file.complete(alone);
  return true;
}

}  // namespace magister
