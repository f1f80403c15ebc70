// Tokenising in parallel, then one agreement over the ranks: totals, first positions, and the borders of the units,
// handed from rank to rank so that the plan is the same as if one rank had read everything.
#include "magister/run/sample_plan.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "magister/core/error.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

// Polynomial digest modulo the Mersenne prime 2^61 - 1: parts computed by different ranks combine exactly.
constexpr std::uint64_t kPrime = (1ull << 61) - 1;
constexpr std::uint64_t kBase = 0x0A5A5F00D1234567ull % kPrime;

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % kPrime);
}

std::uint64_t power(std::uint64_t exponent) {
  std::uint64_t result = 1, base = kBase;
  for (; exponent > 0; exponent >>= 1, base = multiply(base, base)) {
    if (exponent & 1) result = multiply(result, base);
  }
  return result;
}

constexpr int kUnitStateTag = 71;

}  // namespace

SamplePlan SamplePlan::make(const Communicator& world, const Dataset& dataset, const Tokenizer& tokenizer,
                            const SampleRules& rules, const std::string& spool_directory) {
  SamplePlan plan;
  plan.ids_ = Spool(spool_directory);
  plan.samples_ = Spool(spool_directory);
  plan.marks_assistant_ = rules.marks_assistant;
  if (rules.marks_assistant) plan.assistant_ = Spool(spool_directory);
  plan.last_rank_ = world.rank() + 1 == world.size();
  const IndexRange all = dataset.records();
  const auto border = [&](int rank) { return all.begin + all.size() * static_cast<std::uint64_t>(rank) / world.size(); };
  // A fault of the data is told once, the first in the order of the records, whichever ranks found faults.
  run_agreed(world, [&] { plan.tokenize(dataset, {border(world.rank()), border(world.rank() + 1)}, tokenizer, rules); });
  plan.agree(world, rules);
  return plan;
}

void SamplePlan::add_sample(const Record& record, std::span<const TokenId> ids, std::span<const std::uint8_t> assistant) {
  const std::uint64_t length = ids.size();
  ids_.append(ids.data(), ids.size_bytes());
  if (marks_assistant_) assistant_.append(assistant.data(), assistant.size());
  const auto key_bytes = static_cast<std::uint32_t>(record.key.size());
  samples_.append(&record.source_index, sizeof record.source_index);
  samples_.append(&key_bytes, sizeof key_bytes);
  samples_.append(record.key.data(), key_bytes);
  lengths_.push_back(static_cast<std::uint32_t>(length));
  max_key_bytes = std::max<std::uint64_t>(max_key_bytes, key_bytes);
  longest_sample = std::max(longest_sample, length);
}

void SamplePlan::tokenize(const Dataset& dataset, IndexRange records, const Tokenizer& tokenizer,
                          const SampleRules& rules) {
  std::vector<TokenId> ids;
  dataset.for_each(records, [&](Record&& record) {
    if (rules.encode) {
      for (const SampleTokens& sample : rules.encode(record)) add_samples(record, sample.ids, sample.assistant, rules);
      return;
    }
    ids.clear();
    if (rules.records_hold_tokens) {
      ids = std::move(record.tokens);
    } else {
      tokenizer.encode(record.text, EncodeOptions{}, ids);
    }
    add_samples(record, ids, {}, rules);
  });
}

// One sample, or as many as `overflow` makes of it.
void SamplePlan::add_samples(const Record& record, std::span<const TokenId> ids, std::span<const std::uint8_t> assistant,
                             const SampleRules& rules) {
  MAGISTER_ASSERT(!rules.marks_assistant || assistant.size() == ids.size());
  const auto add = [&](std::uint64_t begin, std::uint64_t count) {
    add_sample(record, ids.subspan(begin, count), rules.marks_assistant ? assistant.subspan(begin, count) : assistant);
  };
  const std::uint64_t stride = rules.stride == 0 ? rules.max_length : rules.stride, length = ids.size();
  for (const TokenId id : ids) {
    MAGISTER_CHECK(id >= 0 && id < rules.vocab_size, ExitCode::kData,
                   "{}: token id {} stands outside the model's vocabulary of {} (there is no embedding for it); use "
                   "the tokenizer that belongs to the model", record.where, id, rules.vocab_size);
  }
  MAGISTER_CHECK(length >= rules.min_length, ExitCode::kData, "{}: the record has {} tokens, less than {} (nothing can follow "
                 "it); mend or remove it", record.where, length, rules.min_length);
  if (length > rules.max_length) ++num_cut;
  if (length <= rules.max_length || rules.overflow == Overflow::kTruncate) {
    add(0, std::min(length, rules.max_length));
    return;
  }
  MAGISTER_CHECK(rules.overflow == Overflow::kWindow, ExitCode::kData,
                 "{}: the record has {} tokens, more than {} {} ({}); shorten it{} {}{}", record.where, length, rules.length_key,
                 rules.max_length, rules.may_cut ? "overflow is \"error\"" : "a prompt is never cut", rules.may_cut ? ", raise" : " or raise",
                 rules.length_key, rules.may_cut ? " or choose overflow: truncate or window" : "");
  for (std::uint64_t window = 0; window < num_windows(length, rules.max_length, stride); ++window) {
    const std::uint64_t begin = window * stride;
    add(begin, std::min(rules.max_length, length - begin));
  }
}

void SamplePlan::agree(const Communicator& world, const SampleRules& rules) {
  std::uint64_t tokens = 0, digest = 0, factor = 1;
  for (const std::uint32_t length : lengths_) {
    tokens += length;
    digest = (digest + multiply(factor, length + 1ull)) % kPrime;
    factor = multiply(factor, kBase);
  }
  first_sample_ = world.exclusive_sum(lengths_.size());
  first_token_ = world.exclusive_sum(tokens);
  num_samples = world.sum(static_cast<std::uint64_t>(lengths_.size()));
  num_tokens = world.sum(tokens);
  num_cut = world.sum(num_cut);
  max_key_bytes = world.max(max_key_bytes);
  longest_sample = world.max(longest_sample);
  lengths_digest = 0;
  for (const std::uint64_t part : world.all_gather(multiply(digest, power(first_sample_)))) {
    lengths_digest = (lengths_digest + part) % kPrime;
  }

  UnitPacker::State state;
  if (world.rank() > 0) world.receive(&state, sizeof state, world.rank() - 1, kUnitStateTag);
  first_unit_ = state.num_units;
  // A unit holds a sixteenth of the samples at most, in whole groups: small data sets keep several groups busy, too.
  const std::uint64_t sixteenth = (num_samples + 15) / 16, group = rules.group_samples;
  UnitPacker packer(rules.unit_tokens, state, std::min(rules.unit_samples, std::max<std::uint64_t>(1, (sixteenth + group - 1) / group) * group));
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (packer.add(lengths_[i])) unit_begin_.push_back(first_sample_ + i);
  }
  state = packer.state();
  if (!last_rank_) world.send(&state, sizeof state, world.rank() + 1, kUnitStateTag);
  num_units = world.max(state.num_units);
}

// A spool of this rank's rows goes to its place in pieces.
void SamplePlan::write_rows(ResultsFile& file, const char* column, Spool& spool, std::uint64_t row_bytes) const {
  std::vector<std::byte> piece(4 << 20);
  spool.rewind();
  std::uint64_t token = first_token_;
  while (const std::size_t n = spool.read(piece)) {
    file.write(column, token, std::span(piece).first(n));
    token += n / row_bytes;
  }
}

void SamplePlan::write_fixed_columns(ResultsFile& file) {
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  write_rows(file, "/tokens/id", ids_, sizeof(TokenId));
  if (marks_assistant_) write_rows(file, "/tokens/assistant", assistant_, 1);
  // Samples in blocks: keys of fixed width, source positions, offsets.
  constexpr std::size_t kBlock = 4096;
  samples_.rewind();
  std::uint64_t token = first_token_;
  for (std::size_t begin = 0; begin < lengths_.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, lengths_.size() - begin);
    std::vector<char> keys(count * max_key_bytes, '\0');
    std::vector<std::uint64_t> source_index(count), offset(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t key_bytes = 0;
      samples_.read(std::as_writable_bytes(std::span(&source_index[i], 1)));
      samples_.read(std::as_writable_bytes(std::span(&key_bytes, 1)));
      samples_.read(std::as_writable_bytes(std::span(keys.data() + i * max_key_bytes, key_bytes)));
      offset[i] = token;
      token += lengths_[begin + i];
    }
    file.write("/samples/key", first_sample_ + begin, bytes_of(keys));
    file.write("/samples/source_index", first_sample_ + begin, bytes_of(source_index));
    file.write("/samples/offset", first_sample_ + begin, bytes_of(offset));
  }
  if (!unit_begin_.empty()) file.write("/commit/unit_begin", first_unit_, bytes_of(unit_begin_));
  if (last_rank_) {
    file.write("/samples/offset", num_samples, bytes_of(std::vector<std::uint64_t>{num_tokens}));
    file.write("/commit/unit_begin", num_units, bytes_of(std::vector<std::uint64_t>{num_samples}));
  }
}

}  // namespace magister
