// The interface of every kind of data file: an index that one rank makes and all ranks receive, and records [a, b) in
// bounded memory. A record is a line of plain text or one JSON object; jsonl_record.h extracts the fields for all
// kinds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset/dataset_files.h"

namespace magister {

// A file opened for its records. Local; one thread.
class RecordFormat {
 public:
  // Returns true if the job should stop. Called before every record, and every few MiB where records are only counted
  // or skipped.
  using Poll = std::function<bool()>;
  // where: "file:line" or "file: row group 0, row 17", for messages.
  using Visit = std::function<void(std::uint64_t record, std::string_view text, const std::string& where)>;

  virtual ~RecordFormat() = default;
  virtual bool is_json() const { return true; }          // true: a record is a JSON object; false: plain text
  virtual const char* unit() const { return "record"; }  // the word for a record in messages: "line", "row"

  // Points from which records can be read, in order, and a last one whose `record` is the number of records. Throws
  // Error(kData) for a file that does not have the format of its name, and Error(kStopped) if poll returns true: half
  // an index would be taken for the file's.
  virtual std::vector<IndexPoint> index(const Poll& poll) = 0;
  // Visits records [begin, end) of the file in order; returns early if poll returns true.
  virtual void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) = 0;
};

// Keeps a reference to `file`, whose index read() needs.
std::unique_ptr<RecordFormat> open_format(const DataFile& file, const DatasetConfig& config);

// The last point of `index` at or before `record`, which must be below the number of records.
const IndexPoint& point_before(const std::vector<IndexPoint>& index, std::uint64_t record);

// The formats of open_format: lines of an uncompressed file, found by the blocks that all ranks count; records cut out
// of a stream of bytes (CSV, JSON, everything compressed); tables that Arrow's library reads; a results file, whose
// samples are records of `key` and `tokens` or of all their fields; arrays of ids in another HDF5 file (open_hdf5
// distinguishes these two).
std::unique_ptr<RecordFormat> open_lines(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_stream(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_table(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_results(const DataFile& file, const DatasetConfig& config);
std::unique_ptr<RecordFormat> open_hdf5(const DataFile& file, const DatasetConfig& config);

}  // namespace magister
