// Writes one text column after the other (TextColumn). Memory is bounded for any number of verdicts.
#include "tasks/judge/pack.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/utf8.h"
#include "magister/io/results/text_heap_bytes.h"
#include "magister/run/packed_results.h"
#include "magister/text/decode_continuation.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;
using Visit = TextColumn::Visit;
constexpr std::uint64_t kBlockTokens = 1 << 20, kBlockTexts = 4096;

// Samples that were read together, with their prompts' tokens one after the other.
struct PromptBlock {
  std::uint64_t first, count;
  std::vector<std::uint64_t> offset;
  std::vector<TokenId> ids;
  std::span<const TokenId> prompt(std::uint64_t i) const {
    return std::span(ids).subspan(offset[i] - offset[0], offset[i + 1] - offset[i]);
  }
};

// Visits all samples in blocks of about a million tokens, after checking their row ranges.
bool for_each_block(const JudgePack& pack, const std::function<void(const PromptBlock&)>& visit) {
  const std::uint64_t n = pack.shape.num_samples;
  const std::uint64_t most =
      std::clamp<std::uint64_t>(kBlockTokens / std::max<std::uint64_t>(1, pack.shape.reply_tokens), 1, kBlockTexts);
  for (std::uint64_t first = 0; first < n;) {
    fail_point("task.pack.block");
    if (pack.poll()) return false;
    PromptBlock block{first, 1, std::vector<std::uint64_t>(std::min(most, n - first) + 1), {}};
    std::vector<std::uint64_t>& offset = block.offset;
    pack.running.read("/samples/offset", first, std::as_writable_bytes(std::span(offset)));
    while (block.count + 1 < offset.size() && offset[block.count + 1] - offset[0] <= kBlockTokens) ++block.count;
    for (std::uint64_t i = 0; i < block.count; ++i) {
      MAGISTER_CHECK(offset[i] <= offset[i + 1] && offset[i + 1] <= pack.shape.num_tokens, ExitCode::kData,
                     "sample {} has rows {} to {} of {} (the running file is damaged); start over with --fresh",
                     first + i, offset[i], offset[i + 1], pack.shape.num_tokens);
    }
    block.ids.resize(offset[block.count] - offset[0]);
    if (!block.ids.empty()) pack.running.read("/tokens/id", offset[0], std::as_writable_bytes(std::span(block.ids)));
    visit(block);
    first += block.count;
  }
  return true;
}

bool for_each_prompt(const JudgePack& pack, const Visit& visit) {
  return for_each_block(pack, [&](const PromptBlock& block) {
    for (std::uint64_t i = 0; i < block.count; ++i) visit(pack.tokenizer.decode(block.prompt(i)));
  });
}

// Visits the replies, decoded as continuations of their prompts.
bool for_each_reply(const JudgePack& pack, const Visit& visit) {
  const std::uint64_t slots = pack.shape.reply_tokens;
  return for_each_block(pack, [&](const PromptBlock& block) {
    std::vector<TokenId> ids(block.count * slots);
    pack.running.read(judge_column::kReplyId.path, block.first, std::as_writable_bytes(std::span(ids)));
    for (std::uint64_t i = 0; i < block.count; ++i) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i * slots);
      const auto end = std::find(begin, begin + static_cast<std::ptrdiff_t>(slots), -1);
      visit(decode_continuation(pack.tokenizer, block.prompt(i), std::span(begin, end), /*skip_special_tokens=*/true));
    }
  });
}

bool for_each_value(const JudgePack& pack, std::size_t field, const Visit& visit) {
  std::uint64_t sample = 0;
  pack.dataset.for_each(
      pack.dataset.records(),
      [&](Record&& record) {
        const std::vector<std::string> answers =
            pack.answers == nullptr ? std::vector<std::string>() : pack.answers->of(record);
        for (const std::vector<std::string>& text : pack.prompts.field_values(record, answers)) {
          for (std::uint64_t i = 0; i < pack.prompts.group(); ++i, ++sample) visit(text[field]);
        }
      },
      pack.poll);
  if (pack.poll()) return false;
  MAGISTER_CHECK(
      sample == pack.shape.num_samples, ExitCode::kData,
      "the data set gives {} prompts, {} were judged (it has changed meanwhile); put it back and run the same "
      "command again",
      sample, pack.shape.num_samples);
  return true;
}

std::vector<TextColumn> text_columns(const JudgePack& pack) {
  const std::uint64_t n = pack.shape.num_samples;
  std::vector<TextColumn> columns = {
      {judge_column::kPromptText.spec(n), [&pack](const Visit& visit) { return for_each_prompt(pack, visit); }}};
  if (pack.shape.reply_tokens > 0) {
    columns.push_back(
        {judge_column::kReply.spec(n), [&pack](const Visit& visit) { return for_each_reply(pack, visit); }});
  }
  const std::vector<std::string> names = pack.prompts.field_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool list = is_list_field(names[i]);
    const std::string comment = list ? "field that the prompts read: a list as JSON, or null"
                                     : "field that the prompts read, of a pair as given; JSON where it is no text";
    columns.push_back(
        {{kRecordGroup + names[i], ColumnType::kText, n, 0, comment, list ? "JSON" : "", Extent::kSamples},
         [&pack, i](const Visit& visit) { return for_each_value(pack, i, visit); }});
  }
  return columns;
}

ResultsSpec spec_of(const std::vector<ColumnSpec>& columns, std::uint64_t num_units) {
  ResultsSpec spec;
  spec.columns = columns;
  spec.num_units = num_units;
  spec.default_plot_column = judge_column::kLogOdds.path;
  spec.checks_inputs = true;
  return spec;
}

}  // namespace

std::uint64_t packed_judge_bytes(const JudgeShape& shape, std::uint64_t num_units) {
  TextHeapBytes heap;
  const std::uint64_t n = std::max<std::uint64_t>(1, shape.num_samples);
  heap.add(shape.num_tokens / n * kTextBytesAToken, n);
  if (shape.reply_tokens > 0) heap.add(shape.reply_tokens * kTextBytesAToken / 2, n);
  return results_bytes(spec_of(judge_columns(shape), num_units)) + heap.bytes();
}

bool pack_verdicts(const JudgePack& pack, const std::string& results_path, const Attributes& root) {
  std::vector<TextColumn> texts = text_columns(pack);
  for (TextColumn& column : texts) {
    if (!measure_texts(column)) return false;
  }
  const std::vector<ColumnSpec> copied = judge_columns(pack.shape);
  ResultsSpec spec = spec_of(copied, pack.running.num_units());
  for (const TextColumn& column : texts) spec.columns.push_back(column.spec);
  spec.attributes = root;
  spec.attributes.emplace_back("num_samples", pack.shape.num_samples);
  spec.attributes.emplace_back("num_tokens", pack.shape.num_tokens);
  // Left by a killed attempt; all of it comes from the running file and the data.
  ::unlink((results_path + ".partial").c_str());
  const Communicator alone;
  ResultsFile file = ResultsFile::create(alone, results_path, spec);
  for (const ColumnSpec& column : copied) {
    if (!copy_column(pack.running, file, column.path, column.num_rows, pack.poll)) return false;
  }
  copy_column(pack.running, file, "/commit/unit_begin", spec.num_units + 1, [] { return false; });
  for (const TextColumn& column : texts) {
    if (!write_text_column(column, file)) return false;
  }
  file.freeze();
  commit_all(file);
  file.complete(alone);
  return true;
}

}  // namespace magister
