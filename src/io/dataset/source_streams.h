// Records of several sources by turns, each source read as one stream: a thread each, of which one alone runs at a time and the caller waits
// meanwhile (HDF5's library takes no two; a reader gives its records to a function and cannot be left in its middle).
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
  // Gives the records of a source to visit, in order, and asks poll whether to stop. Runs in that source's thread.
  using Read = std::function<void(std::size_t source, const Visit& visit, const std::function<bool()>& poll)>;

  SourceStreams(std::size_t num_sources, Read read);
  ~SourceStreams();  // ends the threads; a reader stops at its next record
  SourceStreams(const SourceStreams&) = delete;
  SourceStreams& operator=(const SourceStreams&) = delete;

  // The next record of a source; its thread begins with the first call. Rethrows what its reader threw. False: poll, asked every 50 ms while
  // the reader works, says that the job should stop. Throws Error(kInternal) after the last record.
  bool next(std::size_t source, const std::function<bool()>& poll, Record& record);

 private:
  struct Stream;
  Read read_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace magister
