// In the plug-in: writes Parquet files of lists, compressed with zstd. A group's arrays are made from the program's
// bytes. The file's bytes go back to the program, so that one code writes, syncs and renames all exports.
#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <cstring>
#include <numeric>

#include "io/dataset/rows_arrow.h"

namespace magister {
namespace {

using ColumnType = ArrowColumn::Type;
using Shape = ArrowColumn::Shape;

class SinkStream final : public arrow::io::OutputStream {
 public:
  explicit SinkStream(std::function<bool(std::string_view)> sink) : sink_(std::move(sink)) {}
  arrow::Status Close() override { return closed_ = true, arrow::Status::OK(); }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Write(const void* data, std::int64_t size) override {
    if (!sink_({static_cast<const char*>(data), static_cast<std::size_t>(size)}))
      return arrow::Status::IOError("no more");
    position_ += size;
    return arrow::Status::OK();
  }

 private:
  std::function<bool(std::string_view)> sink_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

std::shared_ptr<arrow::DataType> value_type(ColumnType type) {
  switch (type) {
    case ColumnType::kU8:
      return arrow::uint8();
    case ColumnType::kI32:
      return arrow::int32();
    case ColumnType::kU32:
      return arrow::uint32();
    case ColumnType::kU64:
      return arrow::uint64();
    case ColumnType::kF32:
      return arrow::float32();
    case ColumnType::kText:
      return arrow::utf8();
  }
  throw arrow::Status::Invalid("a type that is not known");
}

std::shared_ptr<arrow::Schema> schema_of(const std::vector<ArrowColumn>& columns) {
  arrow::FieldVector fields;
  for (const ArrowColumn& column : columns) {
    std::shared_ptr<arrow::DataType> type = value_type(column.type);
    if (column.shape == Shape::kListOfLists) type = arrow::list(type);
    if (column.shape != Shape::kValue) type = arrow::list(type);
    fields.push_back(arrow::field(column.name, type));
  }
  return arrow::schema(fields);
}

std::shared_ptr<arrow::Array> list_of(const std::shared_ptr<arrow::Array>& values,
                                      const std::vector<std::int64_t>& ends) {
  arrow::Int32Builder offsets;
  require(offsets.Append(0));
  for (const std::int64_t end : ends) {
    if (end > values->length() || end > INT32_MAX) throw arrow::Status::Invalid("a group has more values than fit");
    require(offsets.Append(static_cast<std::int32_t>(end)));
  }
  return require(arrow::ListArray::FromArrays(*require(offsets.Finish()), *values));
}

class ParquetWriter final : public ArrowWriter {
 public:
  ParquetWriter(const std::vector<ArrowColumn>& columns, std::function<bool(std::string_view)> sink)
      : columns_(columns), schema_(schema_of(columns)), arrays_(columns.size()) {
    const auto properties = parquet::WriterProperties::Builder().compression(arrow::Compression::ZSTD)->build();
    writer_ = require(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(),
                                                       std::make_shared<SinkStream>(std::move(sink)), properties));
  }

  bool add(std::size_t column, const std::vector<std::uint64_t>& num_rows, std::string_view values,
           const std::vector<std::string>& texts, ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      const ArrowColumn& spec = columns_.at(column);
      std::shared_ptr<arrow::Array> array =
          spec.type == ColumnType::kText ? text_array(texts) : number_array(spec, values);
      if (spec.shape == Shape::kListOfLists) {
        std::vector<std::int64_t> ends;
        for (std::int64_t end = static_cast<std::int64_t>(spec.width); end <= array->length();
             end += static_cast<std::int64_t>(spec.width)) {
          ends.push_back(end);
        }
        array = list_of(array, ends);
      }
      if (spec.shape != Shape::kValue) {
        std::vector<std::int64_t> ends;
        std::int64_t end = 0;
        ends.reserve(num_rows.size());
        for (const std::uint64_t rows : num_rows) ends.push_back(end += static_cast<std::int64_t>(rows));
        array = list_of(array, ends);
      }
      arrays_.at(column) = std::move(array);
      return true;
    });
  }

  bool end_group(ArrowFault& fault) noexcept override {
    return guarded(fault, [&] {
      const auto table = arrow::Table::Make(schema_, arrays_);
      require(table->Validate());
      require(writer_->WriteTable(*table, std::max<std::int64_t>(1, table->num_rows())));
      return true;
    });
  }

  bool finish(ArrowFault& fault) noexcept override {
    return guarded(fault, [&] { return require(writer_->Close()), true; });
  }

 private:
  static std::shared_ptr<arrow::Array> text_array(const std::vector<std::string>& texts) {
    arrow::StringBuilder builder;
    for (const std::string& text : texts) require(builder.Append(text));
    return require(builder.Finish());
  }

  static std::shared_ptr<arrow::Array> number_array(const ArrowColumn& spec, std::string_view values) {
    const auto type = value_type(spec.type);
    std::shared_ptr<arrow::Buffer> buffer = arrow::Buffer::FromString(std::string(values));
    const std::int64_t width = std::max(type->bit_width() / 8, 1);
    const std::int64_t count = static_cast<std::int64_t>(values.size()) / width;
    return arrow::MakeArray(arrow::ArrayData::Make(type, count, {nullptr, std::move(buffer)}));
  }

  const std::vector<ArrowColumn> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  arrow::ArrayVector arrays_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace
}  // namespace magister

extern "C" __attribute__((visibility("default"))) bool magister_write_table_1(
    const std::vector<magister::ArrowColumn>& columns, std::function<bool(std::string_view)> sink,
    std::unique_ptr<magister::ArrowWriter>& writer, magister::ArrowFault& fault) {
  return magister::guarded(fault, [&] {
    writer = std::make_unique<magister::ParquetWriter>(columns, std::move(sink));
    return true;
  });
}
