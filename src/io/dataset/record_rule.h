// Finds where a record ends in a stream of bytes: the rules of lines, CSV and JSON. Each rule looks at every byte once,
// even if the stream arrives in small pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "io/dataset/dataset_files.h"

namespace magister {

class RecordRule {
 public:
  // A record is bytes [begin, end) of the pending bytes; the search for the next one starts at `next`.
  struct Cut {
    std::size_t begin = 0, end = 0, next = 0;
  };
  struct Fault {
    std::size_t at = 0;
    std::string problem;  // "... (why); what to do"
  };

  virtual ~RecordRule() = default;
  // pending: bytes from the end of the last cut on; after a call that found nothing it must be longer. last: no bytes
  // follow. False: no complete record yet, or with `last` no further record; then the bytes up to cut.next belong to no
  // record. Throws Fault for bytes that cannot become a record.
  virtual bool find(std::string_view pending, bool last, Cut& cut) = 0;
};

// begun: the stream begins at a record inside the file, not at its first byte.
std::unique_ptr<RecordRule> record_rule(DataKind kind, bool begun);

}  // namespace magister
