// Records of several sources in turn, each source read as one stream in a thread of its own. Only one of these threads
// runs at a time, while the caller waits: HDF5's library does not support two, and a reader passes its records to a
// function and cannot be suspended otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/dataset/dataset.h"

namespace magister {

class SourceStreams {
 public:
  using Visit = std::function<void(Record&&)>;
  // Passes the records of a source to visit, in order, and asks poll whether to stop. Runs in that source's thread.
  using Read = std::function<void(std::size_t source, const Visit& visit, const std::function<bool()>& poll)>;

  SourceStreams(std::size_t num_sources, Read read);
  ~SourceStreams();  // ends the threads; a reader stops at its next record
  SourceStreams(const SourceStreams&) = delete;
  SourceStreams& operator=(const SourceStreams&) = delete;

  // The next record of a source; its thread starts with the first call. Rethrows exceptions of its reader. False: poll,
  // asked every 50 ms while the reader works, returned true; the job then stops. Throws Error(kInternal) after the last
  // record.
  bool next(std::size_t source, const std::function<bool()>& poll, Record& record);

 private:
  struct Stream;
  Read read_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace magister
