// Packing: the slots of the running file become samples and rows of the final file. Records are read in blocks, so
// memory is bounded for any number of them. Every text is decoded twice: once for its size and once to be written.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/core/utf8.h"
#include "magister/io/results/text_heap_bytes.h"
#include "magister/run/packed_results.h"
#include "magister/run/unit_samples.h"
#include "magister/text/decode_continuation.h"
#include "tasks/generate/columns.h"

namespace magister {
namespace {

constexpr std::uint64_t kBlock = 512;  // records in memory, or fewer if they would exceed kBlockBytes
constexpr std::uint64_t kBlockBytes = 64 << 20;
constexpr std::uint64_t kUnitTexts = 1024;  // texts per unit of the packed file; each unit has one checksum

template <typename T>
std::vector<T> read_column(const ResultsFile& file, const Column<T>& column, std::uint64_t first, std::uint64_t rows,
                           std::uint64_t width) {
  std::vector<T> values(rows * width);
  file.read(column.path, first, std::as_writable_bytes(std::span(values)));
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
  const std::uint64_t record_bytes = shape.texts * shape.slots * (8 + 8 * shape.top + (shape.guided ? 4 : 0));
  return std::clamp<std::uint64_t>(kBlockBytes / record_bytes, 1, kBlock);
}

// Returns false if poll said that the job should stop.
template <typename Body>
bool for_blocks(const ResultsFile& running, const GenerateShape& shape, const StopPoll& poll, const Body& body) {
  for (std::uint64_t first = 0; first < shape.num_records; first += block_records(shape)) {
    fail_point("task.pack.block");
    if (poll()) return false;
    Block block;
    block.records = std::min(block_records(shape), shape.num_records - first);
    block.lengths = read_column(running, generate_column::kLength, first, block.records, shape.texts);
    block.ids = read_column(running, generate_column::kSlotId, first, block.records, shape.texts * shape.slots);
    for (const std::uint32_t length : block.lengths) {
      MAGISTER_CHECK(length <= shape.slots, ExitCode::kData,
                     "a text of {} tokens in {} slots (the running file is damaged); "
                     "start over with --fresh",
                     length, shape.slots);
    }
    body(first, block);
  }
  return true;
}

// The tokens before the texts of the block's records: the ends of their prompts, as long as they can affect how the
// first tokens decode.
std::vector<std::vector<TokenId>> contexts_of(const ResultsFile& running, const Tokenizer& tokenizer,
                                              std::uint64_t first, std::uint64_t records) {
  const auto offset = read_column(running, Column<std::uint64_t>{"/samples/offset"}, first, records + 1, 1);
  std::vector<std::vector<TokenId>> contexts;
  for (std::uint64_t record = 0; record < records; ++record) {
    const std::uint64_t length = offset[record + 1] - offset[record];
    for (std::uint64_t count = 64;; count *= 8) {
      count = std::min(count, length);
      const auto end = read_column(running, Column<TokenId>{"/tokens/id"}, offset[record + 1] - count, count, 1);
      if (count < length && !settled_at(tokenizer, end)) continue;
      contexts.push_back(decode_context(tokenizer, end));
      break;
    }
  }
  return contexts;
}

struct Totals {
  std::uint64_t texts = 0, tokens = 0;
  TextHeapBytes heap;
};

std::vector<ColumnSpec> packed_columns(const GenerateShape& shape, const Totals& totals) {
  using namespace generate_column;
  const std::uint64_t m = totals.texts, T = totals.tokens;
  std::vector<ColumnSpec> columns =
      sample_columns(m, T, shape.key_bytes,
                     fmt::format("rows of sample i are offset[i] .. offset[i+1] of /tokens and {}", kLogprob.path),
                     "the tokens of the text as the model wrote them, the ending one included");
  ColumnSpec text = kText.spec(m);
  text.heap_bytes = totals.heap.bytes();
  columns.insert(columns.end(),
                 {kLogprob.spec(T), kTextIndex.spec(m), kFinishReason.spec(m), kPromptTokens.spec(m), std::move(text)});
  if (shape.top > 0) {
    columns.push_back(kTopId.spec(T, shape.top));
    columns.push_back(kTopLogprob.spec(T, shape.top));
  }
  if (shape.guided) columns.push_back(kGuideKl.spec(T));
  return columns;
}

std::optional<Totals> totals_of(const ResultsFile& running, const GenerateShape& shape, const Tokenizer& tokenizer,
                                const RulesOfRecord& rules, const StopPoll& poll) {
  Totals totals;
  const bool all = for_blocks(running, shape, poll, [&](std::uint64_t first, const Block& block) {
    const auto contexts = contexts_of(running, tokenizer, first, block.records);
    for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
      if (block.lengths[i] == 0) continue;
      ++totals.texts;
      totals.tokens += block.lengths[i];
      const std::uint64_t record = i / shape.texts;
      totals.heap.add(text_of(tokenizer, contexts[record], block.text(i, shape), rules(first + record)).size());
    }
  });
  return all ? std::optional(totals) : std::nullopt;
}

ResultsSpec packed_spec(const GenerateShape& shape, const Totals& totals, const Attributes& attributes) {
  const std::uint64_t num_texts = totals.texts;
  ResultsSpec spec;
  spec.columns = packed_columns(shape, totals);
  spec.num_units = (num_texts + kUnitTexts - 1) / kUnitTexts;
  spec.default_plot_column = generate_column::kLogprob.path;
  spec.attributes = attributes;
  spec.attributes.emplace_back("num_samples", num_texts);
  spec.attributes.emplace_back("num_tokens", totals.tokens);
  spec.attributes.emplace_back("flops_a_token", shape.flops_a_token);
  spec.attributes.emplace_back("flops_a_prompt_token", shape.flops_a_prompt_token);
  return spec;
}

// Joins the rows of a block's texts without the unused slots between them.
template <typename T>
std::vector<T> joined(const std::vector<T>& slots, const Block& block, const GenerateShape& shape,
                      std::uint64_t width) {
  std::vector<T> rows;
  for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
    const auto begin = slots.begin() + static_cast<std::ptrdiff_t>(i * shape.slots * width);
    rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(block.lengths[i] * width));
  }
  return rows;
}

// Writes all columns for one block of records after the other.
class Packer {
 public:
  Packer(const ResultsFile& running, const GenerateShape& shape, const Tokenizer& tokenizer, const RulesOfRecord& rules,
         ResultsFile& file)
      : running_(running), shape_(shape), tokenizer_(tokenizer), rules_(rules), file_(file) {}

  void add(std::uint64_t first, const Block& block) {
    write_samples(first, block);
    write_rows(first, block);
    const auto contexts = contexts_of(running_, tokenizer_, first, block.records);
    std::vector<std::string> texts;
    texts.reserve(block.lengths.size());
    for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
      if (block.lengths[i] == 0) continue;
      const std::uint64_t record = i / shape_.texts;
      texts.push_back(text_of(tokenizer_, contexts[record], block.text(i, shape_), rules_(first + record)));
    }
    file_.write_texts(generate_column::kText.path, sample_, texts);
    sample_ += texts.size();
  }

  double sum_of_kl() const { return sum_of_kl_; }
  void finish() {
    write("/samples/offset", sample_, std::vector<std::uint64_t>{row_});
    std::vector<std::uint64_t> begins;
    for (std::uint64_t first = 0, unit = 0; first < sample_; first += kUnitTexts) {
      begins.push_back(first);
      if (begins.size() == kUnitTexts || first + kUnitTexts >= sample_) {
        write("/commit/unit_begin", unit, begins);
        unit += begins.size();
        begins.clear();
      }
    }
    write("/commit/unit_begin", (sample_ + kUnitTexts - 1) / kUnitTexts, std::vector<std::uint64_t>{sample_});
  }

 private:
  template <typename T>
  void write(const Column<T>& column, std::uint64_t first, const std::vector<T>& values) {
    write(column.path, first, values);
  }
  template <typename T>
  void write(const char* path, std::uint64_t first, const std::vector<T>& values) {
    file_.write(path, first, std::as_bytes(std::span(values)));
  }

  void write_samples(std::uint64_t first, const Block& block) {
    const auto record_keys =
        read_column(running_, Column<std::uint8_t>{"/samples/key"}, first, block.records, shape_.key_bytes);
    const auto record_source =
        read_column(running_, Column<std::uint64_t>{"/samples/source_index"}, first, block.records, 1);
    const auto prompt = read_column(running_, Column<std::uint64_t>{"/samples/offset"}, first, block.records + 1, 1);
    std::vector<std::uint8_t> keys;
    std::vector<std::uint64_t> source, offset;
    std::vector<std::uint32_t> text_index, prompt_tokens;
    const auto slot_reasons = read_column(running_, generate_column::kFinishReason, first, block.records, shape_.texts);
    std::vector<std::uint8_t> reasons;
    std::uint64_t row = row_;
    for (std::uint64_t i = 0; i < block.lengths.size(); ++i) {
      if (block.lengths[i] == 0) continue;
      const std::uint64_t record = i / shape_.texts;
      const auto key = record_keys.begin() + static_cast<std::ptrdiff_t>(record * shape_.key_bytes);
      keys.insert(keys.end(), key, key + static_cast<std::ptrdiff_t>(shape_.key_bytes));
      source.push_back(record_source[record]);
      offset.push_back(row);
      reasons.push_back(slot_reasons[i]);
      row += block.lengths[i];
      text_index.push_back(static_cast<std::uint32_t>(i % shape_.texts));
      prompt_tokens.push_back(static_cast<std::uint32_t>(prompt[record + 1] - prompt[record]));
    }
    write("/samples/key", sample_, keys);
    write("/samples/source_index", sample_, source);
    write("/samples/offset", sample_, offset);
    write(generate_column::kTextIndex, sample_, text_index);
    write(generate_column::kFinishReason, sample_, reasons);
    write(generate_column::kPromptTokens, sample_, prompt_tokens);
  }

  void write_rows(std::uint64_t first, const Block& block) {
    const std::uint64_t slots = shape_.texts * shape_.slots;
    const auto ids = joined(block.ids, block, shape_, 1);
    write("/tokens/id", row_, ids);
    write(generate_column::kLogprob, row_,
          joined(read_column(running_, generate_column::kSlotLogprob, first, block.records, slots), block, shape_, 1));
    if (shape_.top > 0) {
      const auto top_id = read_column(running_, generate_column::kSlotTopId, first, block.records, slots * shape_.top);
      write(generate_column::kTopId, row_, joined(top_id, block, shape_, shape_.top));
      const auto top_logprob =
          read_column(running_, generate_column::kSlotTopLogprob, first, block.records, slots * shape_.top);
      write(generate_column::kTopLogprob, row_, joined(top_logprob, block, shape_, shape_.top));
    }
    if (shape_.guided) {
      const auto kl =
          joined(read_column(running_, generate_column::kSlotGuideKl, first, block.records, slots), block, shape_, 1);
      for (const float one : kl) sum_of_kl_ += one;
      write(generate_column::kGuideKl, row_, kl);
    }
    row_ += ids.size();
  }

  const ResultsFile& running_;
  const GenerateShape& shape_;
  const Tokenizer& tokenizer_;
  const RulesOfRecord& rules_;
  ResultsFile& file_;
  std::uint64_t sample_ = 0, row_ = 0;  // next sample and row of the packed file
  double sum_of_kl_ = 0;
};

}  // namespace

std::uint64_t packed_bytes(const GenerateShape& shape, std::uint64_t bytes_a_token) {
  const std::uint64_t num_texts = shape.num_records * shape.texts;
  TextHeapBytes heap;
  heap.add(shape.slots * bytes_a_token, num_texts);
  const std::uint64_t a_text =
      shape.slots * (8 + 8 * shape.top + (shape.guided ? 4 : 0)) + shape.key_bytes + 8 + 8 + 4 + 1 + 4 + 16;
  return num_texts * a_text + 8 + heap.bytes() + (num_texts / kUnitTexts + 1) * 13 + 8;
}

std::uint64_t longest_token_bytes(const Tokenizer& tokenizer) {
  std::uint64_t longest = 3;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    longest =
        std::max<std::uint64_t>(longest, find_invalid_utf8(bytes) == bytes.size() ? bytes.size() : 3 * bytes.size());
  }
  return longest;
}

bool pack_texts(const ResultsFile& running, const GenerateShape& shape, const std::string& results_path,
                const Attributes& attributes, const Tokenizer& tokenizer, const RulesOfRecord& rules,
                const StopPoll& poll, const TextColumns& fields) {
  const std::optional<Totals> totals = totals_of(running, shape, tokenizer, rules, poll);
  if (!totals) return false;
  ResultsSpec spec = packed_spec(shape, *totals, attributes);
  spec.columns.insert(spec.columns.end(), fields.specs.begin(), fields.specs.end());
  ::unlink((results_path + ".partial").c_str());  // left by a killed attempt; all of it is in `running`
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, results_path, spec);
  Packer packer(running, shape, tokenizer, rules, file);
  const bool all =
      for_blocks(running, shape, poll, [&](std::uint64_t first, const Block& block) { packer.add(first, block); });
  if (!all) return false;  // the partial file has a temporary name and is made again
  packer.finish();
  if (!write_text_columns(fields, file)) return false;
  if (shape.guided && totals->tokens > 0) {
    const auto a_token = 1.0 / static_cast<double>(totals->tokens), a_text = 1.0 / static_cast<double>(totals->texts);
    log_info("{}: KL of the guided texts to the reference: {:.6f} nats a token, {:.4f} a text", results_path,
             packer.sum_of_kl() * a_token, packer.sum_of_kl() * a_text);
  }
  file.freeze();
  commit_all(file);
  file.complete(alone);
  return true;
}

}  // namespace magister
