// Keys are looked up by hash and then compared with the file, so a collision costs time but never gives a wrong text.
#include "magister/tasks/generate/record_answers.h"

#include <algorithm>

#include "magister/core/config.h"
#include "magister/core/error.h"
#include "magister/io/agreed_errors.h"
#include "magister/run/earlier_tasks.h"
#include "magister/run/task.h"

namespace magister {
namespace {

std::uint64_t hash_of(std::string_view key) { return std::hash<std::string_view>{}(key); }

// True if the task that wrote the texts read keys. Otherwise its keys are the records' places as decimal numbers.
bool has_keys(const GeneratedTexts& texts, const std::string& path) {
  ConfigDocument experiment(texts.attribute("experiment"), path);
  ConfigNode root = experiment.root();
  std::vector<ConfigNode> tasks = root.sections("tasks");
  return !tasks.empty() && tasks.front().section("dataset").has("key");
}

// The number of faults and the first one: "3 records have no text (the first: ...)".
struct Findings {
  std::uint64_t count = 0;
  std::string first;
  void add(const std::string& one) {
    if (count++ == 0) first = one;
  }
  std::string described(const char* one, const char* several) const {
    return count == 0 ? "" : fmt::format("{} {} (the first: {})", count, count == 1 ? one : several, first);
  }
};

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) {
    if (!part.empty()) all += (all.empty() ? "" : ", ") + part;
  }
  return all;
}

// held: places of the records that have texts.
std::string faults_by_place(const Dataset& dataset, IndexRange held) {
  const IndexRange slice = dataset.records();
  const std::uint64_t all = dataset.num_source_records();
  const auto part = [](std::uint64_t begin, std::uint64_t end, const char* what) {
    return begin >= end ? ""
                        : fmt::format("{} {} to {} {}", end - begin == 1 ? "record" : "records", begin, end - 1, what);
  };
  std::vector<std::string> parts;
  if (held.begin == held.end || held.end <= slice.begin || slice.end <= held.begin) {
    parts.push_back(part(slice.begin, slice.end, "have no text"));
  } else {
    parts.push_back(part(slice.begin, held.begin, "have no text"));
    parts.push_back(part(held.end, slice.end, "have no text"));
  }
  parts.push_back(part(std::max(all, held.begin), held.end, "have a text and are not in these data"));
  return joined(parts);
}

std::string shown(std::string_view key) { return "\"" + printable(key, 80) + "\""; }

}  // namespace

void check_answered_records(const RunContext& context, const std::string& place, const Task& writer,
                            const DatasetConfig& config, const Dataset& dataset) {
  const std::optional<IndexRange> held = other_records_of(context, writer, config);
  const std::string faults = held ? faults_by_place(dataset, *held) : "";
  MAGISTER_CHECK(faults.empty(), ExitCode::kConfig,
                 "{} names {}, which writes other texts than are asked for: {} (they would be taken for answers to "
                 "something else, or records left out); give both tasks the same records: limit and slice",
                 place, printable(writer.name()), faults);
}

RecordAnswers::RecordAnswers(const std::string& path, const DatasetConfig& config, const Dataset& dataset)
    : path_(path), texts_(path) {
  MAGISTER_CHECK(texts_.has_same_number_of_texts(), ExitCode::kData,
                 "{}: its requests asked for different numbers of texts (a record's texts are found by their number); "
                 "give all requests the same n",
                 printable(path));
  num_records_ = texts_.num_texts() / texts_.texts_a_record();
  if (num_records_ > 0) first_ = texts_.source_index(0);
  const bool same_data = texts_.attribute("dataset_sha256") == dataset.sha256();
  const bool keys_there = has_keys(texts_, path), keys_here = !config.key_field.empty();
  MAGISTER_CHECK(same_data || (keys_there && keys_here), ExitCode::kData,
                 "{}: its texts were written for other data than {} (dataset_sha256 is {}, here {}), and {} no keys "
                 "(it is not known which text answers which record); give both tasks dataset.key, or the same data",
                 printable(path), printable(config.paths.front(), 4096),
                 texts_.attribute("dataset_sha256").substr(0, 12), dataset.sha256().substr(0, 12),
                 keys_there  ? "this task has"
                 : keys_here ? "that task has"
                             : "both have");
  by_key_ = !same_data;
  if (by_key_) index_keys();
}

void RecordAnswers::index_keys() {
  const std::uint64_t n = texts_.texts_a_record();
  keys_.reserve(num_records_);
  texts_.for_each_key([&](std::uint64_t i, std::string_view key) {
    if (i % n == 0) keys_.push_back({hash_of(key), i / n});
  });
  std::sort(keys_.begin(), keys_.end(),
            [](const KeyAt& a, const KeyAt& b) { return std::pair(a.hash, a.record) < std::pair(b.hash, b.record); });
  std::optional<std::pair<std::uint64_t, std::uint64_t>> twice;  // the pair whose second record comes first
  for (std::size_t i = 1; i < keys_.size(); ++i) {
    for (std::size_t j = i; j > 0 && keys_[j - 1].hash == keys_[i].hash; --j) {
      const std::uint64_t one = keys_[j - 1].record, other = keys_[i].record;
      if ((!twice || other < twice->second) && texts_.key(one * n) == texts_.key(other * n)) twice = {one, other};
    }
  }
  if (!twice) return;
  fail(ExitCode::kData,
       "{}: the key {} occurs twice, for records {} and {} (which of them answers which record cannot be told); give "
       "the records keys of their own",
       printable(path_), shown(texts_.key(twice->first * n)), twice->first + first_, twice->second + first_);
}

std::optional<std::uint64_t> RecordAnswers::find_key(const std::string& key) const {
  const std::uint64_t hash = hash_of(key);
  auto at = std::lower_bound(keys_.begin(), keys_.end(), hash,
                             [](const KeyAt& one, std::uint64_t wanted) { return one.hash < wanted; });
  for (; at != keys_.end() && at->hash == hash; ++at) {
    if (texts_.key(at->record * texts_.texts_a_record()) == key) return at->record;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> RecordAnswers::find(const Record& record) const {
  if (by_key_) return find_key(record.key);
  if (record.source_index < first_ || record.source_index - first_ >= num_records_) return std::nullopt;
  return record.source_index - first_;
}

std::uint64_t RecordAnswers::require(const Record& record) const {
  const auto found = find(record);
  MAGISTER_CHECK(found.has_value(), ExitCode::kData,
                 "{}: {} holds no text for this record, key {} (the generate task had other data, another "
                 "limit or slice); give both tasks the same",
                 record.where, printable(path_), shown(record.key));
  return *found;
}

std::vector<std::string> RecordAnswers::of(const Record& record) const {
  const std::uint64_t n = texts_.texts_a_record(), first = require(record) * n;
  std::vector<std::string> answers;
  answers.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) answers.push_back(texts_.text(first + i));
  return answers;
}

std::vector<std::vector<TokenId>> RecordAnswers::tokens_of(const Record& record) const {
  const std::uint64_t n = texts_.texts_a_record(), first = require(record) * n;
  std::vector<std::vector<TokenId>> tokens;
  for (std::uint64_t i = 0; i < n; ++i) tokens.push_back(texts_.tokens(first + i));
  return tokens;
}

double RecordAnswers::mean_logprob(const Record& record, std::uint64_t i) const {
  return texts_.mean_logprob(require(record) * texts_.texts_a_record() + i);
}

double RecordAnswers::guide_kl(const Record& record, std::uint64_t i) const {
  return texts_.guide_kl(require(record) * texts_.texts_a_record() + i);
}

double RecordAnswers::flops(const Record& record, std::uint64_t i) const {
  return texts_.flops(require(record) * texts_.texts_a_record() + i);
}

std::uint64_t RecordAnswers::num_tokens(const Record& record, std::uint64_t i) const {
  return texts_.num_tokens(require(record) * texts_.texts_a_record() + i);
}

std::string RecordAnswers::faults_by_key(const Dataset& dataset) const {
  const IndexRange slice = dataset.records();
  Findings missing, twice, extra;
  std::vector<bool> is_asked(num_records_, false);
  dataset.for_each({0, dataset.num_source_records()}, [&](Record&& record) {
    const auto found = find(record);
    const auto place = [&] { return fmt::format("{}, key {}", record.where, shown(record.key)); };
    if (!found) {
      if (record.source_index >= slice.begin && record.source_index < slice.end) missing.add(place());
    } else if (is_asked[*found]) {
      twice.add(place());
    } else {
      is_asked[*found] = true;
    }
  });
  for (std::uint64_t i = 0; i < num_records_; ++i) {
    if (!is_asked[i]) extra.add("key " + shown(texts_.key(i * texts_.texts_a_record())));
  }
  return joined({missing.described("record has no text", "records have no text"),
                 twice.described("record has the key of an earlier one", "records have the key of an earlier one"),
                 extra.described("key there is no record's", "keys there are no record's")});
}

void RecordAnswers::check(const Communicator& world, const Dataset& dataset) const {
  run_on_rank_zero(world, [&] {
    const std::string faults =
        by_key_ ? faults_by_key(dataset) : faults_by_place(dataset, {first_, first_ + num_records_});
    MAGISTER_CHECK(faults.empty(), ExitCode::kData,
                   "{}: {} (texts would be taken for answers to something else, or records left out); give both tasks "
                   "the same records: data, keys, limit and slice",
                   printable(path_), faults);
  });
}

}  // namespace magister
