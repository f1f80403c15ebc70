// In the plug-in: rows of Arrow's arrays as JSON, for all supported types.
#pragma once

#include <arrow/api.h>

#include <string>
#include <vector>

#include "io/dataset/arrow_plugin.h"

namespace magister {

// Schemas nested deeper than this are refused before anything is read.
constexpr int kMaxTypeDepth = 64;

// Throws arrow::Status for a column whose type cannot be written as JSON.
void check_types(const arrow::Schema& schema);

// One row as an object of all columns of the batch. binary: true writes binary values as strings, false as null.
void append_row(std::string& json, const arrow::RecordBatch& batch, std::int64_t row, bool binary);

// The first fault of the batch's columns (offsets, dictionary indices, UTF-8), with the library's message.
arrow::Status check_batch(const arrow::RecordBatch& batch);

// Converts a status to the fault that the program receives.
ArrowFault fault_of(const arrow::Status& status);

// Takes rows one by one from a row group or batch.
class BatchRows {
 public:
  void start(std::shared_ptr<arrow::RecordBatch> batch, std::int64_t row) { batch_ = std::move(batch), row_ = row; }
  bool has_more() const { return batch_ && row_ < batch_->num_rows(); }
  void take(std::string& json, bool binary) { append_row(json, *batch_, row_++, binary); }

 private:
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t row_ = 0;
};

// Open the two formats; throw arrow::Status, or ArrowFault for a missing column.
std::unique_ptr<ArrowTable> open_parquet(const ArrowRequest& request);
std::unique_ptr<ArrowTable> open_ipc(const ArrowRequest& request);

// Runs work() and converts whatever it throws into a fault; then returns false.
template <typename Work>
bool guarded(ArrowFault& fault, const Work& work) noexcept {
  try {
    return work();
  } catch (const arrow::Status& status) {
    fault = fault_of(status);
  } catch (const ArrowFault& thrown) {
    fault = thrown;
  } catch (const std::exception& error) {
    fault = {ArrowFault::Kind::kData, error.what(), {}};
  }
  return false;
}

inline void require(const arrow::Status& status) {
  if (!status.ok()) throw status;
}
template <typename T>
T require(arrow::Result<T> result) {
  if (!result.ok()) throw result.status();
  return std::move(result).ValueUnsafe();
}

}  // namespace magister
