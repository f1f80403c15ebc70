// Files joined in order, each read through its format (record_format.h); what a record's fields are is decided here for all.
#include "magister/io/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "io/dataset/dataset_files.h"
#include "io/dataset/jsonl_record.h"
#include "io/dataset/record_format.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"

namespace magister {
namespace {

std::string combined_sha256(const std::vector<DataFile>& files) {
  if (files.size() == 1) return files.front().sha256;
  std::string lines;
  for (const DataFile& file : files) {
    lines += file.sha256 + "  " + std::filesystem::path(file.path).filename().string() + "\n";
  }
  return sha256_hex(lines);
}

}  // namespace

struct Dataset::Index {
  DatasetConfig config;
  std::vector<DataFile> files;
  std::uint64_t num_records = 0;  // after limit
  std::string sha256;
};

Dataset::Dataset(std::unique_ptr<Index> index) : index_(std::move(index)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const Communicator& world, const DatasetConfig& config, const std::function<bool()>& poll) {
  MAGISTER_CHECK(config.slice_index < config.slice_count, ExitCode::kConfig,
                 "slice {}/{} does not exist (slices of n go from 0 to n - 1); name one of these", config.slice_index,
                 config.slice_count);
  auto index = std::make_unique<Index>();
  index->config = config;
  index->files = list_data_files(world, config);
  scan_data_files(world, index->files, config, poll);
  index->num_records = index->files.back().first_record + index->files.back().num_records();
  if (config.limit) index->num_records = std::min(index->num_records, *config.limit);
  index->sha256 = combined_sha256(index->files);
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
  for (const DataFile& file : index_->files) {
    const std::uint64_t begin = std::max(range.begin, file.first_record);
    const std::uint64_t end = std::min(range.end, file.first_record + file.num_records());
    if (begin >= end || stopped) continue;
    const std::unique_ptr<RecordFormat> format = open_format(file, index_->config);
    JsonlParser parser(index_->config, format->unit());
    const bool json = format->is_json();
    format->read(begin - file.first_record, end - file.first_record, ask,
                 [&](std::uint64_t place, std::string_view text, const std::string& where) {
                   Record record;
                   record.source_index = file.first_record + place;
                   record.where = where;
                   if (json) {
                     parser.parse(text, record.where, record);
                   } else {
                     if (text.ends_with('\r')) text.remove_suffix(1);
                     check_text(text, record.where);
                     record.text = text;
                   }
                   if (index_->config.key_field.empty()) record.key = std::to_string(record.source_index);
                   visit(std::move(record));
                 });
  }
}

}  // namespace magister
