// The metadata pairs of a GGUF header. Every kind of value is kept, except lists of lists, which are refused.
#pragma once

#include <cstdint>

#include "io/checkpoint/gguf_cursor.h"
#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// Type numbers of values, in the file's order.
enum GgufValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// Reads num_pairs pairs at the cursor. A repeated key is refused.
Metadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t num_pairs, const std::string& path);

}  // namespace magister
