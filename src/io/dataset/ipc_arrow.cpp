// In the plug-in: Arrow's IPC format, as `datasets` stores it (a stream) and as Feather does (a file with a footer).
// The batches of a stream are found by their byte offsets, unless it has dictionaries, which precede the batches that
// use them: such a stream is read from its beginning. Source: "Arrow Columnar Format", Serialization and Interprocess
// Communication.
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/dataset/rows_arrow.h"

namespace magister {
namespace {

bool has_dictionary(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) return true;
  if (type.id() == arrow::Type::EXTENSION) {
    return has_dictionary(*static_cast<const arrow::ExtensionType&>(type).storage_type());
  }
  return std::any_of(type.fields().begin(), type.fields().end(),
                     [](const auto& field) { return has_dictionary(*field->type()); });
}

// The indices of the columns that contain the fields.
std::vector<int> columns_of(const arrow::Schema& schema, const ArrowRequest& request) {
  std::vector<int> columns;
  const auto add = [&](const std::string& name) {
    const int found = schema.GetFieldIndex(name);  // -1: none; repeated names were refused
    if (found < 0) return false;
    if (std::find(columns.begin(), columns.end(), found) == columns.end()) columns.push_back(found);
    return true;
  };
  for (const ArrowField& field : request.fields) {
    if (add(field.name) || (!field.path.empty() && add(field.path.front()))) continue;
    throw ArrowFault{ArrowFault::Kind::kNoColumn, field.name, schema.field_names()};
  }
  std::sort(columns.begin(), columns.end());
  return columns;
}

// First and last bytes of a stream or file.
struct Ends {
  std::array<char, 6> begin{};
  std::array<char, 8> end{};
};
Ends ends_of(arrow::io::ReadableFile& file) {
  const std::int64_t size = require(file.GetSize());
  Ends ends;
  if (size < 16) throw arrow::Status::Invalid("it has ", size, " bytes, fewer than any Arrow file");
  if (require(file.ReadAt(0, 6, ends.begin.data())) != 6 || require(file.ReadAt(size - 8, 8, ends.end.data())) != 8) {
    throw arrow::Status::Invalid("it cannot be read");
  }
  return ends;
}

class IpcTable : public ArrowTable {
 public:
  explicit IpcTable(const ArrowRequest& request) : request_(request) { options_.use_threads = false; }

  bool next(std::string& json, ArrowFault& fault) noexcept override {
    if (!rows_.has_more()) return false;
    return guarded(fault, [&] { return json.clear(), rows_.take(json, !request_.all_columns), true; });
  }

 protected:
  // Call it once, with the schema of all columns.
  void choose(const arrow::Schema& schema) {
    check_types(schema);
    options_.included_fields = columns_of(schema, request_);
  }
  void start(const std::shared_ptr<arrow::RecordBatch>& batch, std::uint64_t row) {
    if (batch == nullptr) throw arrow::Status::Invalid("the batch is not there");
    require(check_batch(*batch));
    rows_.start(batch, static_cast<std::int64_t>(row));
  }

  const ArrowRequest request_;
  arrow::ipc::IpcReadOptions options_ = arrow::ipc::IpcReadOptions::Defaults();

 private:
  BatchRows rows_;
};

class StreamTable final : public IpcTable {
 public:
  StreamTable(const ArrowRequest& request, std::shared_ptr<arrow::io::ReadableFile> file)
      : IpcTable(request), file_(std::move(file)) {
    reopen();
    choose(*reader_->schema());
    for (const auto& field : reader_->schema()->fields()) in_order_ = in_order_ || has_dictionary(*field->type());
    reopen();
  }

  bool next_part(ArrowPart& part, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      part.place = static_cast<std::uint64_t>(require(file_->Tell()));
      const auto batch = read();
      if (batch == nullptr) return false;
      part.rows = static_cast<std::uint64_t>(batch->num_rows());
      return true;
    });
  }

  bool seek(std::uint64_t part, std::uint64_t place, std::uint64_t row, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      if (next_ > part) reopen();
      if (in_order_) {
        while (next_ < part) read();
      } else if (next_ != part) {
        require(file_->Seek(static_cast<std::int64_t>(place)));
        next_ = part;
      }
      start(read(), row);
      return true;
    });
  }

 private:
  void reopen() {
    require(file_->Seek(0));
    reader_ = require(arrow::ipc::RecordBatchStreamReader::Open(file_.get(), options_));
    next_ = 0;
  }
  std::shared_ptr<arrow::RecordBatch> read() {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(reader_->ReadNext(&batch));
    if (batch == nullptr && require(file_->Tell()) != require(file_->GetSize())) {
      throw arrow::Status::Invalid("bytes follow its end mark (of joined streams only the first is read)");
    }
    ++next_;
    return batch;
  }

  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  std::uint64_t next_ = 0;  // number of the batch that read() returns next
  bool in_order_ = false;
};

class FileTable final : public IpcTable {
 public:
  FileTable(const ArrowRequest& request, const std::shared_ptr<arrow::io::ReadableFile>& file) : IpcTable(request) {
    choose(*require(arrow::ipc::RecordBatchFileReader::Open(file, options_))->schema());
    reader_ = require(arrow::ipc::RecordBatchFileReader::Open(file, options_));
  }

  bool next_part(ArrowPart& part, ArrowFault& fault) noexcept override {
    if (next_ == reader_->num_record_batches()) return false;
    return guarded(fault, [&] {
      part = {static_cast<std::uint64_t>(require(reader_->ReadRecordBatch(next_))->num_rows()),
              static_cast<std::uint64_t>(next_)};
      return ++next_, true;
    });
  }

  bool seek(std::uint64_t part, std::uint64_t, std::uint64_t row, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] { return start(require(reader_->ReadRecordBatch(static_cast<int>(part))), row), true; });
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int next_ = 0;
};

}  // namespace

std::unique_ptr<ArrowTable> open_ipc(const ArrowRequest& request) {
  auto file = require(arrow::io::ReadableFile::Open(request.path));
  const Ends ends = ends_of(*file);
  if (std::memcmp(ends.begin.data(), "ARROW1", 6) == 0) return std::make_unique<FileTable>(request, file);
  if (std::memcmp(ends.begin.data(), "FEA1", 4) == 0) {
    throw arrow::Status::Invalid("it is Feather of version 1, which is no Arrow IPC");
  }
  // A writer that finished has closed the stream; without this check a file truncated between two batches would count
  // as complete.
  if (std::memcmp(ends.end.data(), "\xFF\xFF\xFF\xFF\0\0\0\0", 8) != 0) {
    throw arrow::Status::Invalid("the stream has no end mark, so it is cut off");
  }
  return std::make_unique<StreamTable>(request, std::move(file));
}

}  // namespace magister
