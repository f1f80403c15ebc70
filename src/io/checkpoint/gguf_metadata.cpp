// Values by type number: integers become i64 (u64 stays u64 outside lists), floats double, lists vectors.
// Source: ggml's GGUF specification, gguf_metadata_value_type.
#include "io/checkpoint/gguf_metadata.h"

#include <limits>

namespace magister {
namespace {

constexpr std::size_t kMaxKeyBytes = 65535;  // limit of the specification
constexpr const char* kWhat = "a metadata value";

std::uint64_t file_bytes_of(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    default:
      return 8;  // 8-byte numbers; for a string its length
  }
}

struct Place {
  GgufCursor& cursor;
  const std::string& path;
  const std::string& key;
};

bool truth(const Place& at) {
  const auto value = at.cursor.value<std::uint8_t>(kWhat);
  MAGISTER_CHECK(value <= 1, ExitCode::kData,
                 "{}: metadata \"{}\" is a truth value of {} (0 and 1 are allowed); fetch the "
                 "file again",
                 printable(at.path), printable(at.key), value);
  return value == 1;
}

std::int64_t whole(const Place& at, std::uint32_t type) {
  switch (type) {
    case kUint8:
      return at.cursor.value<std::uint8_t>(kWhat);
    case kInt8:
      return at.cursor.value<std::int8_t>(kWhat);
    case kUint16:
      return at.cursor.value<std::uint16_t>(kWhat);
    case kInt16:
      return at.cursor.value<std::int16_t>(kWhat);
    case kUint32:
      return at.cursor.value<std::uint32_t>(kWhat);
    case kInt32:
      return at.cursor.value<std::int32_t>(kWhat);
    case kBool:
      return truth(at) ? 1 : 0;
    case kInt64:
      return at.cursor.value<std::int64_t>(kWhat);
    default:
      break;
  }
  const auto value = at.cursor.value<std::uint64_t>(kWhat);
  MAGISTER_CHECK(value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), ExitCode::kData,
                 "{}: metadata \"{}\" holds {} (lists go up to 2^63 - 1); fetch the file again", printable(at.path),
                 printable(at.key), value);
  return static_cast<std::int64_t>(value);
}

double fraction(const Place& at, std::uint32_t type) {
  return type == kFloat32 ? static_cast<double>(at.cursor.value<float>(kWhat)) : at.cursor.value<double>(kWhat);
}

MetadataValue list(const Place& at) {
  const auto type = at.cursor.value<std::uint32_t>("the type of a metadata list");
  MAGISTER_CHECK(type <= kFloat64 && type != kArray, ExitCode::kData,
                 "{}: metadata \"{}\" is a list of type {} (lists hold numbers or texts); fetch the file again",
                 printable(at.path), printable(at.key), type);
  const bool texts_only = type == kString;
  const std::uint64_t held_bytes = texts_only ? sizeof(std::string) : 8;
  const std::uint64_t count = at.cursor.count(file_bytes_of(type), held_bytes, "the length of a metadata list");
  if (texts_only) {
    std::vector<std::string> texts;
    texts.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) texts.push_back(at.cursor.text("a text of a metadata list"));
    return texts;
  }
  if (type == kFloat32 || type == kFloat64) {
    std::vector<double> numbers(count);
    for (double& value : numbers) value = fraction(at, type);
    return numbers;
  }
  std::vector<std::int64_t> numbers(count);
  for (std::int64_t& value : numbers) value = whole(at, type);
  return numbers;
}

MetadataValue single(const Place& at, std::uint32_t type) {
  switch (type) {
    case kString:
      return at.cursor.text("a metadata text");
    case kBool:
      return truth(at);
    case kFloat32:
    case kFloat64:
      return fraction(at, type);
    case kUint64:
      return at.cursor.value<std::uint64_t>(kWhat);
    case kArray:
      return list(at);
    default:
      return whole(at, type);
  }
}

}  // namespace

Metadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t num_pairs, const std::string& path) {
  Metadata metadata;
  for (std::uint64_t i = 0; i < num_pairs; ++i) {
    const std::string key = cursor.text("a metadata key");
    const auto type = cursor.value<std::uint32_t>("a metadata type");
    MAGISTER_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && type <= kFloat64, ExitCode::kData,
                   "{}: metadata \"{}\" has type {} (types are 0 to 12 and keys 1 to {} bytes; the header is damaged); "
                   "fetch the file again",
                   printable(path), printable(key), type, kMaxKeyBytes);
    const auto [place, is_new] = metadata.emplace(key, false);
    MAGISTER_CHECK(is_new, ExitCode::kData,
                   "{}: metadata \"{}\" is there twice (it is ambiguous); fetch the file again", printable(path),
                   printable(key));
    place->second = single({cursor, path, key}, type);
  }
  return metadata;
}

}  // namespace magister
