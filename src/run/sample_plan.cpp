// The ranks tokenise in parallel and then agree on totals, first positions and the borders of the units. Each rank
// passes the state of the units to the next, so the plan is the same as if one rank had read everything.
#include "magister/run/sample_plan.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

// A polynomial digest modulo the Mersenne prime 2^61 - 1: the parts of different ranks combine exactly.
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
constexpr std::uint64_t kReadSamples = 4096;  // samples in memory

}  // namespace

ExpectedText expect_field(const DatasetConfig& dataset, const std::string& field, std::string key,
                          std::function<bool(const Record&)> is_empty) {
  const std::size_t more = dataset.paths.size() - 1;
  return {fmt::format("{} of {}{}", printable(field), printable(dataset.paths.front(), 4096),
                      more == 0 ? "" : fmt::format(" and {} more", more)),
          std::move(key), std::move(is_empty)};
}

SamplePlan::SamplePlan(const Communicator& world, const SampleRules& rules, const std::string& spool_directory,
                       bool keeps_rows)
    : keeps_rows_(keeps_rows),
      marks_assistant_(rules.marks_assistant),
      lengths_(spool_directory),
      unit_tokens_(rules.unit_tokens),
      unit_samples_(rules.unit_samples),
      group_samples_(rules.group_samples),
      item_samples_(rules.item_samples),
      least_units_(rules.least_units),
      takes_part_(rules.takes_part),
      all_empty_(rules.expected_text.is_empty != nullptr),
      last_rank_(world.rank() + 1 == world.size()) {
  if (!keeps_rows) return;
  ids_ = Spool(spool_directory);
  samples_ = Spool(spool_directory);
  if (marks_assistant_) assistant_ = Spool(spool_directory);
}

SamplePlan SamplePlan::make(const Communicator& world, const Dataset& dataset, const SampleRules& rules,
                            const std::string& spool_directory, const StopSign& stop) {
  SamplePlan plan(world, rules, spool_directory, true);
  plan.read(world, dataset, rules, stop);
  return plan;
}

SamplePlan SamplePlan::measure(const Communicator& world, const Dataset& dataset, const SampleRules& rules,
                               const StopSign& stop) {
  SamplePlan plan(world, rules, std::filesystem::temp_directory_path().string(), false);
  plan.read(world, dataset, rules, stop);
  return plan;
}

void SamplePlan::read(const Communicator& world, const Dataset& dataset, const SampleRules& rules,
                      const StopSign& stop) {
  const IndexRange all = dataset.records();
  const auto border = [&](int rank) {
    return all.begin + all.size() * static_cast<std::uint64_t>(rank) / world.size();
  };
  // A fault in the data is reported once: the first one in the order of the records, whichever ranks found faults.
  run_agreed(world, [&] { tokenize(dataset, {border(world.rank()), border(world.rank() + 1)}, rules, stop); });
  leave_if_stopped(world, stop);
  agree(world);
  if (world.sum(static_cast<std::uint64_t>(!all_empty_)) == 0 && all.size() > 0)
    empty_texts = fmt::format("{} is empty in all {} records", rules.expected_text.source, all.size());
}

// All samples of a record are on one rank.
void SamplePlan::count_item(bool takes_part) {
  item_takes_part_ = item_takes_part_ && takes_part;
  if (own_samples_ % item_samples_ != 0) return;
  if (item_takes_part_) ++num_items;
  item_takes_part_ = true;
}

void SamplePlan::add_sample(const Record& record, std::span<const TokenId> ids,
                            std::span<const std::uint8_t> assistant) {
  const auto length = static_cast<std::uint32_t>(ids.size());
  lengths_.append(&length, sizeof length);
  ++own_samples_;
  count_item(!takes_part_ || takes_part_(ids, assistant));
  own_tokens_ += length;
  own_digest_ = (own_digest_ + multiply(next_factor_, length + 1ull)) % kPrime;
  next_factor_ = multiply(next_factor_, kBase);
  longest_sample = std::max<std::uint64_t>(longest_sample, length);
  const auto key_bytes = static_cast<std::uint32_t>(record.key.size());
  max_key_bytes = std::max<std::uint64_t>(max_key_bytes, key_bytes);
  if (!keeps_rows_) return;
  ids_.append(ids.data(), ids.size_bytes());
  if (marks_assistant_) assistant_.append(assistant.data(), assistant.size());
  samples_.append(&record.source_index, sizeof record.source_index);
  samples_.append(&key_bytes, sizeof key_bytes);
  samples_.append(record.key.data(), key_bytes);
}

// Ends early on a rank that is asked to stop; after all ranks have come here, all leave together.
void SamplePlan::tokenize(const Dataset& dataset, IndexRange records, const SampleRules& rules, const StopSign& stop) {
  std::vector<TokenId> ids;
  dataset.for_each(
      records,
      [&](Record&& record) {
        fail_point("tokenize.record");
        all_empty_ = all_empty_ && rules.expected_text.is_empty(record);
        if (rules.encode) {
          std::uint64_t left_out = 0;
          bool is_cut = false;
          for (const SampleTokens& sample : rules.encode(record)) {
            add_samples(record, sample.ids, sample.assistant, rules);
            left_out += sample.turns_left_out;
            is_cut = is_cut || sample.ids.size() > rules.max_length;
          }
          num_records_cut += is_cut ? 1 : 0;
          num_turns_left_out += left_out;
          num_records_with_such += left_out > 0 ? 1 : 0;
          return;
        }
        ids.clear();
        if (rules.tokenizer == nullptr) {
          ids = std::move(record.tokens);
        } else {
          rules.tokenizer->encode(record.text, EncodeOptions{}, ids);
        }
        add_samples(record, ids, {}, rules);
        num_records_cut += ids.size() > rules.max_length ? 1 : 0;
      },
      [&stop] { return stop.raised(); });
}

// Adds one sample, or the windows that `overflow` makes of it.
void SamplePlan::add_samples(const Record& record, std::span<const TokenId> ids,
                             std::span<const std::uint8_t> assistant, const SampleRules& rules) {
  MAGISTER_ASSERT(!rules.marks_assistant || assistant.size() == ids.size());
  const std::uint64_t length = ids.size();
  for (const TokenId id : ids) {
    MAGISTER_CHECK(
        id >= 0 && id < rules.vocab_size, ExitCode::kData,
        "{}: token id {} is outside the model's vocabulary of {} (it has no embedding or no output); use the "
        "tokenizer that belongs to the model",
        record.where, id, rules.vocab_size);
  }
  MAGISTER_CHECK(length >= rules.min_length, ExitCode::kData,
                 "{}: the record has {} tokens, less than {} (nothing can follow "
                 "it); fix or remove it",
                 record.where, length, rules.min_length);
  if (length > rules.max_length && rules.overflow == Overflow::kTruncate &&
      (rules.kept_tail > 0 || rules.cuts_begins)) {
    const std::uint64_t tail = rules.cuts_begins ? rules.max_length - rules.kept_head : rules.kept_tail;
    std::vector<TokenId> cut(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(rules.max_length - tail));
    cut.insert(cut.end(), ids.end() - static_cast<std::ptrdiff_t>(tail), ids.end());
    return add_sample(record, cut, assistant);
  }
  if (length <= rules.max_length || rules.overflow == Overflow::kTruncate) {
    const std::uint64_t kept = std::min(length, rules.max_length);
    return add_sample(record, ids.first(kept), rules.marks_assistant ? assistant.first(kept) : assistant);
  }
  MAGISTER_CHECK(rules.overflow == Overflow::kWindow, ExitCode::kData,
                 "{}: the record has {} tokens, more than {} {} ({}); shorten it{} {}{}", record.where, length,
                 rules.length_key, rules.max_length, rules.may_cut ? "overflow is \"error\"" : "a prompt is never cut",
                 rules.may_cut ? ", raise" : " or raise", rules.length_key,
                 rules.may_cut ? " or choose overflow: truncate or window" : "");
  add_windows(record, ids, assistant, rules);
}

// Cuts the text's own tokens into windows and adds the tokens of the tokenizer around each one, as transformers does
// with `stride`.
void SamplePlan::add_windows(const Record& record, std::span<const TokenId> ids,
                             std::span<const std::uint8_t> assistant, const SampleRules& rules) {
  const auto& [before, after] = rules.window_ends;
  const std::uint64_t added = before.size() + after.size(), room = rules.max_length - added;
  MAGISTER_ASSERT(added < rules.max_length && (added == 0 || !rules.marks_assistant));
  const std::span<const TokenId> own = ids.subspan(before.size(), ids.size() - added);
  const std::uint64_t stride = rules.stride == 0 ? room : std::min(rules.stride, room);
  std::vector<TokenId> sample;
  for (std::uint64_t window = 0; window < num_windows(own.size(), room, stride); ++window) {
    const std::uint64_t begin = window * stride, count = std::min<std::uint64_t>(room, own.size() - begin);
    sample = before;
    sample.insert(sample.end(), own.begin() + static_cast<std::ptrdiff_t>(begin),
                  own.begin() + static_cast<std::ptrdiff_t>(begin + count));
    sample.insert(sample.end(), after.begin(), after.end());
    add_sample(record, sample, rules.marks_assistant ? assistant.subspan(begin, count) : assistant);
  }
}

template <typename Visit>
void SamplePlan::for_each_length(const Visit& visit) {
  std::vector<std::uint32_t> lengths(kReadSamples);
  lengths_.rewind();
  for (std::uint64_t first = 0; first < own_samples_; first += kReadSamples) {
    lengths.resize(std::min<std::uint64_t>(kReadSamples, own_samples_ - first));
    lengths_.read(std::as_writable_bytes(std::span(lengths)));
    for (std::size_t i = 0; i < lengths.size(); ++i) visit(first + i, lengths[i]);
  }
}

void SamplePlan::agree(const Communicator& world) {
  first_sample_ = world.exclusive_sum(own_samples_);
  first_token_ = world.exclusive_sum(own_tokens_);
  num_samples = world.sum(own_samples_);
  num_tokens = world.sum(own_tokens_);
  num_records_cut = world.sum(num_records_cut);
  num_turns_left_out = world.sum(num_turns_left_out);
  num_records_with_such = world.sum(num_records_with_such);
  num_items = world.sum(num_items);
  max_key_bytes = world.max(max_key_bytes);
  longest_sample = world.max(longest_sample);
  lengths_digest = 0;
  for (const std::uint64_t part : world.all_gather(multiply(own_digest_, power(first_sample_)))) {
    lengths_digest = (lengths_digest + part) % kPrime;
  }

  const std::uint64_t most = least_units_ * group_samples_, groups = (num_samples + most - 1) / most;
  unit_samples_ = std::min(unit_samples_, std::max<std::uint64_t>(1, groups) * group_samples_);
  if (world.rank() > 0) world.receive(&units_before_, sizeof units_before_, world.rank() - 1, kUnitStateTag);
  UnitPacker packer(unit_tokens_, units_before_, unit_samples_);
  for_each_length([&](std::uint64_t, std::uint32_t length) { packer.add(length); });
  if (!last_rank_) world.send(&packer.state(), sizeof packer.state(), world.rank() + 1, kUnitStateTag);
  num_units = world.max(packer.state().num_units);
}

// Copies a spool of this rank's rows to its place in the file, piece by piece.
void SamplePlan::write_rows(ResultsFile& file, const char* column, Spool& spool, std::uint64_t row_bytes) const {
  std::vector<std::byte> piece(4 << 20);
  spool.rewind();
  std::uint64_t token = first_token_;
  while (const std::size_t n = spool.read(piece)) {
    file.write(column, token, std::span(piece).first(n));
    token += n / row_bytes;
  }
}

// Writes keys of fixed width, source positions and offsets.
void SamplePlan::write_samples(ResultsFile& file) {
  samples_.rewind();
  lengths_.rewind();
  std::uint64_t token = first_token_;
  // Keys may be long: a block holds at most 16 MiB of them.
  const std::uint64_t block = std::clamp<std::uint64_t>((16 << 20) / max_key_bytes, 1, kReadSamples);
  for (std::uint64_t begin = 0; begin < own_samples_; begin += block) {
    const std::size_t count = std::min(block, own_samples_ - begin);
    std::vector<char> keys(count * max_key_bytes, '\0');
    std::vector<std::uint64_t> source_index(count), offset(count);
    std::vector<std::uint32_t> lengths(count);
    lengths_.read(std::as_writable_bytes(std::span(lengths)));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t key_bytes = 0;
      samples_.read(std::as_writable_bytes(std::span(&source_index[i], 1)));
      samples_.read(std::as_writable_bytes(std::span(&key_bytes, 1)));
      samples_.read(std::as_writable_bytes(std::span(keys.data() + i * max_key_bytes, key_bytes)));
      offset[i] = token;
      token += lengths[i];
    }
    file.write("/samples/key", first_sample_ + begin, std::as_bytes(std::span(keys)));
    file.write("/samples/source_index", first_sample_ + begin, std::as_bytes(std::span(source_index)));
    file.write("/samples/offset", first_sample_ + begin, std::as_bytes(std::span(offset)));
  }
}

// Packs the units again instead of keeping their borders, which would take 8 bytes per record for a task with one
// record in each unit.
void SamplePlan::write_units(ResultsFile& file) {
  UnitPacker packer(unit_tokens_, units_before_, unit_samples_);
  std::uint64_t next_unit = units_before_.num_units;
  std::vector<std::uint64_t> begins;
  const auto flush = [&] {
    if (!begins.empty()) file.write("/commit/unit_begin", next_unit, std::as_bytes(std::span(begins)));
    next_unit += begins.size();
    begins.clear();
  };
  for_each_length([&](std::uint64_t sample, std::uint32_t length) {
    if (packer.add(length)) begins.push_back(first_sample_ + sample);
    if (begins.size() == kReadSamples) flush();
  });
  flush();
}

void SamplePlan::write_fixed_columns(ResultsFile& file) {
  MAGISTER_ASSERT(keeps_rows_);
  write_rows(file, "/tokens/id", ids_, sizeof(TokenId));
  if (marks_assistant_) write_rows(file, "/tokens/assistant", assistant_, 1);
  write_samples(file);
  write_units(file);
  if (!last_rank_) return;
  file.write("/samples/offset", num_samples, std::as_bytes(std::span(&num_tokens, 1)));
  file.write("/commit/unit_begin", num_units, std::as_bytes(std::span(&num_samples, 1)));
}

}  // namespace magister
