// What every kind of data file gives: an index that one rank makes and all ranks get, and records [a, b) in bounded memory.
// A record is a line of plain text or one JSON object; what fields mean is decided once, in jsonl_record.h, for all kinds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset/dataset_files.h"

namespace magister {

// A file opened for records. Local; one thread.
class RecordFormat {
 public:
  // Whether the job should stop: asked before every record, and every few MiB where records are only counted or skipped.
  using Poll = std::function<bool()>;
  // where: "file:line" or "file: row group 0, row 17", for messages.
  using Visit = std::function<void(std::uint64_t record, std::string_view text, const std::string& where)>;

  virtual ~RecordFormat() = default;
  virtual bool is_json() const { return true; }          // a record is a JSON object, else plain text
  virtual const char* unit() const { return "record"; }  // what a message says to fix: "line", "row"

  // Places from which records can be read, in order, and a last one whose `record` is the number of all. Throws
  // Error(kData) for a file that cannot be what its name says, Error(kStopped) when poll says so.
  virtual std::vector<IndexPoint> index(const Poll& poll) = 0;
  // Visits records [begin, end) of the file in order; returns early when poll says so.
  virtual void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) = 0;
};

// `file` is kept by reference; read() wants its index.
std::unique_ptr<RecordFormat> open_format(const DataFile& file, const DatasetConfig& config);

// The point of `index` from which record `record` is reached; it is below the number of all.
const IndexPoint& point_before(const std::vector<IndexPoint>& index, std::uint64_t record);

// Those that open_format chooses from: lines of an uncompressed file, found by the blocks that all ranks count; records
// that are cut out of a stream of bytes (CSV, JSON, everything compressed); tables that Arrow's library reads; a results file, whose
// samples are records of `key` and `tokens`; arrays of ids in another HDF5 file (open_hdf5 tells the two apart).
std::unique_ptr<RecordFormat> open_lines(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_stream(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_table(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_results(const DataFile& file);
std::unique_ptr<RecordFormat> open_hdf5(const DataFile& file, const DatasetConfig& config);

}  // namespace magister
