// Values that JSON cannot express: NaN and infinities become null, times and decimals become strings as Arrow prints
// them, a map becomes a list of {"key", "value"}. 32-bit floats are widened first, as pyarrow's to_pylist does.
#include "io/dataset/rows_arrow.h"

#include <arrow/util/float16.h>
#include <arrow/util/io_util.h>

#include <charconv>
#include <cmath>
#include <set>
#include <string>

#include "io/dataset/json_text.h"

namespace magister {
namespace {

using arrow::Array;
using arrow::Type;
using arrow::internal::checked_cast;

template <typename Number>
void append_number(std::string& json, Number value) {
  char digits[40];
  const char* const end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  json.append(digits, static_cast<std::size_t>(end - digits));
}

void append_float(std::string& json, double value) {
  if (!std::isfinite(value)) {
    json += "null";
    return;
  }
  const std::size_t begin = json.size();
  append_number(json, value);
  if (json.find_first_of(".e", begin) == std::string::npos) json += ".0";  // keeps 1.0 from becoming an integer
}

void append_value(std::string& json, const Array& array, std::int64_t row, bool binary);

void append_list(std::string& json, const Array& values, std::int64_t begin, std::int64_t count, bool binary) {
  json += '[';
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) json += ',';
    append_value(json, values, begin + i, binary);
  }
  json += ']';
}

void append_struct(std::string& json, const arrow::StructArray& array, std::int64_t row, bool binary) {
  json += '{';
  for (int i = 0; i < array.num_fields(); ++i) {
    if (i > 0) json += ',';
    append_json_text(json, array.struct_type()->field(i)->name());
    json += ':';
    append_value(json, *array.field(i), row, binary);
  }
  json += '}';
}

template <typename ListArray>
void append_list_of(std::string& json, const Array& array, std::int64_t row, bool binary) {
  const auto& list = checked_cast<const ListArray&>(array);
  append_list(json, *list.values(), list.value_offset(row), list.value_length(row), binary);
}

template <typename TextArray>
void append_text(std::string& json, const Array& array, std::int64_t row) {
  append_json_text(json, checked_cast<const TextArray&>(array).GetView(row));
}

template <typename NumberArray>
void append_whole(std::string& json, const Array& array, std::int64_t row) {
  append_number(json, checked_cast<const NumberArray&>(array).Value(row));
}

// Writes lists, structs and types that wrap another array; false: another type.
bool append_nested(std::string& json, const Array& array, std::int64_t row, bool binary) {
  switch (array.type_id()) {
    case Type::LIST:
      return append_list_of<arrow::ListArray>(json, array, row, binary), true;
    case Type::LARGE_LIST:
      return append_list_of<arrow::LargeListArray>(json, array, row, binary), true;
    case Type::LIST_VIEW:
      return append_list_of<arrow::ListViewArray>(json, array, row, binary), true;
    case Type::LARGE_LIST_VIEW:
      return append_list_of<arrow::LargeListViewArray>(json, array, row, binary), true;
    case Type::FIXED_SIZE_LIST:
      return append_list_of<arrow::FixedSizeListArray>(json, array, row, binary), true;
    case Type::MAP:
      return append_list_of<arrow::MapArray>(json, array, row, binary), true;
    case Type::STRUCT:
      return append_struct(json, checked_cast<const arrow::StructArray&>(array), row, binary), true;
    case Type::DICTIONARY: {
      const auto& coded = checked_cast<const arrow::DictionaryArray&>(array);
      return append_value(json, *coded.dictionary(), coded.GetValueIndex(row), binary), true;
    }
    case Type::EXTENSION:
      return append_value(json, *checked_cast<const arrow::ExtensionArray&>(array).storage(), row, binary), true;
    default:
      return false;
  }
}

bool append_number_of(std::string& json, const Array& array, std::int64_t row) {
  switch (array.type_id()) {
    case Type::BOOL:
      json += checked_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
      return true;
    case Type::INT8:
      return append_whole<arrow::Int8Array>(json, array, row), true;
    case Type::INT16:
      return append_whole<arrow::Int16Array>(json, array, row), true;
    case Type::INT32:
      return append_whole<arrow::Int32Array>(json, array, row), true;
    case Type::INT64:
      return append_whole<arrow::Int64Array>(json, array, row), true;
    case Type::UINT8:
      return append_whole<arrow::UInt8Array>(json, array, row), true;
    case Type::UINT16:
      return append_whole<arrow::UInt16Array>(json, array, row), true;
    case Type::UINT32:
      return append_whole<arrow::UInt32Array>(json, array, row), true;
    case Type::UINT64:
      return append_whole<arrow::UInt64Array>(json, array, row), true;
    case Type::HALF_FLOAT:
      return append_float(json,
                          arrow::util::Float16::FromBits(checked_cast<const arrow::HalfFloatArray&>(array).Value(row))
                              .ToFloat()),
             true;
    case Type::FLOAT:
      return append_float(json, checked_cast<const arrow::FloatArray&>(array).Value(row)), true;
    case Type::DOUBLE:
      return append_float(json, checked_cast<const arrow::DoubleArray&>(array).Value(row)), true;
    default:
      return false;
  }
}

void append_value(std::string& json, const Array& array, std::int64_t row, bool binary) {
  if (array.IsNull(row)) {
    json += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::STRING:
      return append_text<arrow::StringArray>(json, array, row);
    case Type::LARGE_STRING:
      return append_text<arrow::LargeStringArray>(json, array, row);
    case Type::STRING_VIEW:
      return append_text<arrow::StringViewArray>(json, array, row);
    case Type::BINARY:
      return binary ? append_text<arrow::BinaryArray>(json, array, row) : void(json += "null");
    case Type::LARGE_BINARY:
      return binary ? append_text<arrow::LargeBinaryArray>(json, array, row) : void(json += "null");
    case Type::BINARY_VIEW:
      return binary ? append_text<arrow::BinaryViewArray>(json, array, row) : void(json += "null");
    case Type::FIXED_SIZE_BINARY:
      return binary ? append_text<arrow::FixedSizeBinaryArray>(json, array, row) : void(json += "null");
    default:
      break;
  }
  if (append_number_of(json, array, row) || append_nested(json, array, row, binary)) return;
  append_json_text(json, require(array.GetScalar(row))->ToString());
  if (array.type_id() == Type::DURATION) {  // a number and its unit
    constexpr const char* kUnits[] = {" s", " ms", " us", " ns"};
    json.pop_back();
    json += std::string(kUnits[checked_cast<const arrow::DurationType&>(*array.type()).unit()]) + '"';
  }
}

void check_type(const arrow::DataType& type, const std::string& column, int depth) {
  if (depth > kMaxTypeDepth) throw arrow::Status::Invalid("column ", column, " is nested deeper than ", kMaxTypeDepth);
  switch (type.id()) {
    case Type::SPARSE_UNION:
    case Type::DENSE_UNION:
    case Type::RUN_END_ENCODED:
      throw arrow::Status::NotImplemented("column ", column, " has the type ", type.name(), ", which is not read");
    case Type::DICTIONARY:
      return check_type(*checked_cast<const arrow::DictionaryType&>(type).value_type(), column, depth + 1);
    case Type::EXTENSION:
      return check_type(*checked_cast<const arrow::ExtensionType&>(type).storage_type(), column, depth + 1);
    default:
      for (const auto& field : type.fields()) check_type(*field->type(), column, depth + 1);
  }
}

}  // namespace

void check_types(const arrow::Schema& schema) {
  std::set<std::string> names;
  for (const auto& field : schema.fields()) {
    check_type(*field->type(), field->name(), 0);
    if (!names.insert(field->name()).second)
      throw arrow::Status::Invalid("two columns have the name ", field->name(), ", and it is not known which is meant");
  }
}

void append_row(std::string& json, const arrow::RecordBatch& batch, std::int64_t row, bool binary) {
  json += '{';
  for (int i = 0; i < batch.num_columns(); ++i) {
    if (i > 0) json += ',';
    append_json_text(json, batch.schema()->field(i)->name());
    json += ':';
    append_value(json, *batch.column(i), row, binary);
  }
  json += '}';
}

arrow::Status check_batch(const arrow::RecordBatch& batch) {
  for (int i = 0; i < batch.num_columns(); ++i) {
    const arrow::Status status = batch.column(i)->ValidateFull();
    if (!status.ok()) return status.WithMessage("column ", batch.schema()->field(i)->name(), ": ", status.message());
  }
  return batch.Validate();
}

ArrowFault fault_of(const arrow::Status& status) {
  const bool system = arrow::internal::ErrnoFromStatus(status) != 0;
  return {system ? ArrowFault::Kind::kInputOutput : ArrowFault::Kind::kData, status.message(), {}};
}

}  // namespace magister

extern "C" __attribute__((visibility("default"))) bool magister_open_table_1(
    const magister::ArrowRequest& request, std::unique_ptr<magister::ArrowTable>& table, magister::ArrowFault& fault) {
  return magister::guarded(fault, [&] {
    table = request.parquet ? magister::open_parquet(request) : magister::open_ipc(request);
    return true;
  });
}
