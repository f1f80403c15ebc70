// Files joined in order or mixed by weight, each read through its format (record_format.h). The fields of a record are
// extracted here for all formats.
#include "magister/io/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "io/dataset/dataset_files.h"
#include "io/dataset/jsonl_record.h"
#include "io/dataset/mixed_order.h"
#include "io/dataset/record_format.h"
#include "io/dataset/source_streams.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

// One line with everything except the files that decides the order of a mix.
std::string mix_line(const DatasetMix& mix) {
  std::string line = fmt::format("mixed with seed {}, stop {}:", mix.seed, static_cast<int>(mix.stop));
  for (const DatasetMix::Source& source : mix.sources) line += fmt::format(" {}", source.weight);
  return line + "\n";
}

std::string combined_sha256(const std::vector<DataFile>& files, const std::optional<DatasetMix>& mix) {
  if (files.size() == 1 && !mix) return files.front().sha256;
  std::string lines;
  for (const DataFile& file : files) {
    lines += file.sha256 + "  " + std::filesystem::path(file.path).filename().string() + "\n";
    if (mix) lines += fmt::format("source {}\n", file.source);
  }
  return sha256_hex(mix ? lines + mix_line(*mix) : lines);
}

}  // namespace

struct Dataset::Index {
  DatasetConfig config;
  std::vector<DataFile> files;
  std::uint64_t num_records = 0;  // after limit
  std::string sha256;
  std::optional<MixedOrder> order;  // only for a mix
  // Index of each source's first record in the joined files; then the number of all records.
  std::vector<std::uint64_t> first_record;

  void mix(const std::function<bool()>& poll);
  void read_lines(IndexRange range, const std::function<bool()>& ask, const std::function<void(Record&&)>& visit) const;
  void read_files(IndexRange range, const std::function<bool()>& ask, const std::function<void(Record&&)>& visit) const;
  void read_mix(IndexRange range, const std::function<bool()>& ask, const std::function<void(Record&&)>& visit) const;
};

// Computes the order of a mix after all files are indexed.
void Dataset::Index::mix(const std::function<bool()>& poll) {
  const std::vector<DatasetMix::Source>& sources = config.mix->sources;
  std::vector<std::uint64_t> lengths(sources.size(), 0);
  std::vector<std::string> names(sources.size());
  for (const DataFile& file : files) {
    lengths[file.source] += file.num_records();
    if (names[file.source].empty()) names[file.source] = file.path;
  }
  first_record.assign(1, 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    MAGISTER_CHECK(lengths[i] > 0, ExitCode::kData,
                   "{}: source {} of dataset.sources has no records (a draw would find nothing); remove it",
                   printable(names[i]), i);
    first_record.push_back(first_record.back() + lengths[i]);
  }
  order.emplace(*config.mix, std::move(lengths), [&] {
    if (poll && poll()) throw Error(ExitCode::kStopped, "stopped");
  });
}

Dataset::Dataset(std::unique_ptr<Index> index) : index_(std::move(index)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const Communicator& world, const DatasetConfig& config, const std::function<bool()>& poll) {
  MAGISTER_CHECK(config.slice_index < config.slice_count, ExitCode::kConfig,
                 "slice {}/{} does not exist (slices of n go from 0 to n - 1); name one of these", config.slice_index,
                 config.slice_count);
  auto index = std::make_unique<Index>();
  index->config = config;
  if (!config.lines.empty()) {
    index->num_records = config.lines.size();
    Sha256 hash;
    for (const std::string& line : config.lines) hash.update(line + "\n");
    index->sha256 = hash.hex();
    return Dataset(std::move(index));
  }
  index->files = list_data_files(world, config);
  scan_data_files(world, index->files, config, poll);
  index->num_records = index->files.back().first_record + index->files.back().num_records();
  if (config.mix) {
    run_agreed(world, [&] { index->mix(poll); });
    index->num_records = index->order->num_records();
  }
  if (config.limit) index->num_records = std::min(index->num_records, *config.limit);
  index->sha256 = combined_sha256(index->files, config.mix);
  return Dataset(std::move(index));
}

std::uint64_t Dataset::num_source_records() const { return index_->num_records; }

IndexRange Dataset::records() const {
  const auto border = [&](std::uint64_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(index_->num_records) * i /
                                      index_->config.slice_count);
  };
  return {border(index_->config.slice_index), border(index_->config.slice_index + 1)};
}

const std::string& Dataset::sha256() const { return index_->sha256; }

std::string Dataset::formats() const {
  if (index_->files.empty()) return "lines";
  std::vector<std::string> names;
  for (const DataFile& file : index_->files) {
    const std::string name = format_name(file);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void Dataset::for_each(IndexRange range, const std::function<void(Record&&)>& visit,
                       const std::function<bool()>& poll) const {
  MAGISTER_CHECK(range.begin <= range.end && range.end <= index_->num_records, ExitCode::kInternal,
                 "records {} to {} of {} were asked for (there are no such); report this", range.begin, range.end,
                 index_->num_records);
  bool stopped = false;
  const auto ask = [&] { return stopped = stopped || (poll && poll()); };
  std::uint64_t at = range.begin;
  const auto number = [&](Record&& record) {
    record.source_index = at++;
    if (index_->config.key_field.empty()) record.key = std::to_string(record.source_index);
    visit(std::move(record));
  };
  if (index_->files.empty()) return index_->read_lines(range, ask, number);
  index_->order ? index_->read_mix(range, ask, number) : index_->read_files(range, ask, number);
}

void Dataset::Index::read_lines(IndexRange range, const std::function<bool()>& ask,
                                const std::function<void(Record&&)>& visit) const {
  JsonlParser parser(config, "record");
  for (std::uint64_t i = range.begin; i < range.end && !ask(); ++i) {
    Record record;
    record.where = fmt::format("record {}", i);
    parser.parse(config.lines[i], record.where, record);
    visit(std::move(record));
  }
}

// range: in the joined files, in order.
void Dataset::Index::read_files(IndexRange range, const std::function<bool()>& ask,
                                const std::function<void(Record&&)>& visit) const {
  for (const DataFile& file : files) {
    const std::uint64_t begin = std::max(range.begin, file.first_record);
    const std::uint64_t end = std::min(range.end, file.first_record + file.num_records());
    if (begin >= end || ask()) continue;
    const std::unique_ptr<RecordFormat> format = open_format(file, config);
    JsonlParser parser(config, format->unit());
    const bool json = format->is_json();
    format->read(begin - file.first_record, end - file.first_record, ask,
                 [&](std::uint64_t, std::string_view text, const std::string& where) {
                   Record record;
                   record.where = where;
                   if (json) {
                     parser.parse(text, record.where, record);
                   } else {
                     if (text.ends_with('\r')) text.remove_suffix(1);
                     check_text(text, record.where);
                     record.text = text;
                   }
                   visit(std::move(record));
                 });
  }
}

// Reads each source as one stream, from the first record that the range takes to the last; at its end a source begins
// again.
void Dataset::Index::read_mix(IndexRange range, const std::function<bool()>& ask,
                              const std::function<void(Record&&)>& visit) const {
  if (range.begin >= range.end) return;
  const std::vector<std::uint64_t> from = order->taken_before(range.begin), to = order->taken_before(range.end);
  SourceStreams streams(from.size(), [&](std::size_t source, const auto& give, const auto& abandoned) {
    const std::uint64_t first = first_record[source], length = first_record[source + 1] - first;
    for (std::uint64_t taken = from[source]; taken < to[source] && !abandoned();) {
      const std::uint64_t begin = taken % length, count = std::min(length - begin, to[source] - taken);
      read_files({first + begin, first + begin + count}, abandoned, give);
      taken += count;
    }
  });
  order->for_each(range, [&](MixedOrder::Pick pick) {
    Record record;
    if (ask() || !streams.next(pick.source, ask, record)) return false;
    visit(std::move(record));
    return true;
  });
}

}  // namespace magister
