// Where a record ends in a stream of bytes: the rules of lines, CSV and JSON. Each looks at every byte once, however the stream
// is cut into pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "io/dataset/dataset_files.h"

namespace magister {

class RecordRule {
 public:
  // A record is bytes [begin, end) of what is pending; the next one is looked for from `next` on.
  struct Cut {
    std::size_t begin = 0, end = 0, next = 0;
  };
  struct Fault {
    std::size_t at = 0;
    std::string problem;  // "... (why); what to do"
  };

  virtual ~RecordRule() = default;
  // pending: from the end of the last cut on, and longer than at the last call if that found nothing; last: nothing follows.
  // False: no whole record yet, or with `last` none at all; then nothing up to cut.next is part of one. Throws Fault for what cannot
  // become one.
  virtual bool find(std::string_view pending, bool last, Cut& cut) = 0;
};

// begun: the stream begins at a record inside the file, not with its first byte.
std::unique_ptr<RecordRule> record_rule(DataKind kind, bool begun);

}  // namespace magister
