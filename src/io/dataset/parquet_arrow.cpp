// In the plug-in: Parquet. A row group is read in batches of a few rows through a buffered stream, so that memory does
// not grow with its size. The footer's numbers are checked against each other before use. Source: parquet-format.
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <set>

#include "io/dataset/rows_arrow.h"

namespace magister {
namespace {

using parquet::arrow::SchemaField;

constexpr std::int64_t kBatchBytes = 16 << 20;
// Limits a batch even if the footer says that rows are small: a repeated string is stored once in its dictionary, but
// in a batch once per row.
constexpr std::int64_t kBatchRows = 32;

const SchemaField* named(const std::vector<SchemaField>& fields, const std::string& name) {
  const SchemaField* found = nullptr;
  for (const SchemaField& field : fields) {
    if (field.field->name() != name) continue;
    if (found != nullptr) throw arrow::Status::Invalid("it has two columns ", name);
    found = &field;
  }
  return found;
}

// The part of a column that a path needs: as deep as the path is known, else the whole column. The reader of the record
// then reports what is missing.
const SchemaField* inside(const SchemaField& column, const std::vector<std::string>& path) {
  const SchemaField* field = &column;
  for (std::size_t i = 1; i < path.size(); ++i) {
    const bool entry = path[i].empty();  // a list has one child, its entries
    const SchemaField* const next = !entry                        ? named(field->children, path[i])
                                    : field->children.size() == 1 ? &field->children[0]
                                                                  : nullptr;
    if (next == nullptr) return &column;
    field = next;
  }
  return field;
}

void add_leaves(const SchemaField& field, std::set<int>& leaves) {
  if (field.is_leaf()) leaves.insert(field.column_index);
  for (const SchemaField& child : field.children) add_leaves(child, leaves);
}

std::vector<int> leaves_of(const parquet::arrow::SchemaManifest& manifest, const ArrowRequest& request) {
  std::set<int> leaves;
  const auto find = [&](const std::string& name) { return named(manifest.schema_fields, name); };
  if (request.all_columns) {
    for (const SchemaField& column : manifest.schema_fields) add_leaves(column, leaves);
  }
  for (const ArrowField& field : request.fields) {
    const SchemaField* found = find(field.name);
    if (found == nullptr && !field.path.empty()) {
      found = find(field.path.front());
      if (found != nullptr) found = inside(*found, field.path);
    }
    if (found == nullptr) {
      ArrowFault fault{ArrowFault::Kind::kNoColumn, field.name, {}};
      for (const SchemaField& column : manifest.schema_fields) fault.columns.push_back(column.field->name());
      throw fault;
    }
    add_leaves(*found, leaves);
  }
  return {leaves.begin(), leaves.end()};
}

class ParquetTable final : public ArrowTable {
 public:
  explicit ParquetTable(const ArrowRequest& request) : binary_(!request.all_columns) {
    parquet::ReaderProperties reading;
    reading.enable_buffered_stream();
    auto file = parquet::ParquetFileReader::Open(require(arrow::io::ReadableFile::Open(request.path)), reading);
    metadata_ = file->metadata();
    parquet::ArrowReaderProperties properties;
    properties.set_use_threads(false);
    properties.set_pre_buffer(false);
    reader_ = require(parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(file), properties));
    std::shared_ptr<arrow::Schema> schema;
    require(reader_->GetSchema(&schema));
    check_types(*schema);
    leaves_ = leaves_of(reader_->manifest(), request);
    check_rows();
  }

  bool next_part(ArrowPart& part, ArrowFault&) noexcept override {
    if (next_part_ == metadata_->num_row_groups()) return false;
    part = {static_cast<std::uint64_t>(rows_[static_cast<std::size_t>(next_part_)]),
            static_cast<std::uint64_t>(next_part_)};
    return ++next_part_, true;
  }

  bool seek(std::uint64_t, std::uint64_t place, std::uint64_t row, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      const auto group = metadata_->RowGroup(static_cast<int>(place));
      const std::int64_t rows = rows_.at(place);
      const std::int64_t row_bytes =
          std::max<std::int64_t>(1, group->total_byte_size() / std::max<std::int64_t>(1, rows));
      reader_->set_batch_size(std::clamp<std::int64_t>(kBatchBytes / row_bytes, 1, kBatchRows));
      batches_ = require(reader_->GetRecordBatchReader({static_cast<int>(place)}, leaves_));
      rows_left_ = {};
      for (auto skip = static_cast<std::int64_t>(row); skip >= 0;) {
        const auto batch = next_batch();
        if (batch == nullptr) throw arrow::Status::Invalid("it has fewer rows than its footer says");
        if (skip < batch->num_rows()) {
          rows_left_.start(batch, skip);
          break;
        }
        skip -= batch->num_rows();
      }
      return true;
    });
  }

  bool next(std::string& json, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      while (!rows_left_.has_more()) {
        const auto batch = next_batch();
        if (batch == nullptr) throw arrow::Status::Invalid("it has fewer rows than its footer says");
        rows_left_.start(batch, 0);
      }
      json.clear();
      rows_left_.take(json, binary_);
      return true;
    });
  }

 private:
  void check_rows() {
    std::int64_t sum = 0;
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      const std::int64_t rows = metadata_->RowGroup(i)->num_rows();
      if (rows < 0 || __builtin_add_overflow(sum, rows, &sum)) {
        throw arrow::Status::Invalid("row group ", i, " says that it has ", rows, " rows");
      }
      rows_.push_back(rows);
    }
    if (sum != metadata_->num_rows()) {
      throw arrow::Status::Invalid("its row groups have ", sum, " rows and its footer says ", metadata_->num_rows());
    }
  }

  std::shared_ptr<arrow::RecordBatch> next_batch() {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(batches_->ReadNext(&batch));
    if (batch != nullptr) require(check_batch(*batch));
    return batch;
  }

  const bool binary_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> leaves_;
  std::vector<std::int64_t> rows_;  // of each row group
  int next_part_ = 0;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  BatchRows rows_left_;
};

}  // namespace

std::unique_ptr<ArrowTable> open_parquet(const ArrowRequest& request) {
  return std::make_unique<ParquetTable>(request);
}

}  // namespace magister
