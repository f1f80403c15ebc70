// GGUF v2 and v3: header, metadata, tensor list. Every count and length is checked against the bytes that are left
// before anything is allocated. Source: ggml's GGUF specification.
#include <algorithm>
#include <cstring>

#include "io/dequantize.h"
#include "io/mapped_tensors.h"
#include "magister/core/checked.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

// Reads little-endian values one after the other; never beyond the end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <typename T>
  T value(const char* what) {
    need(sizeof(T), what);
    T result;
    std::memcpy(&result, bytes_.data() + at_, sizeof result);
    at_ += sizeof result;
    return result;
  }

  std::string text(const char* what) {
    const auto length = value<std::uint64_t>(what);
    need(length, what);
    std::string result(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return result;
  }

  // A count of things that take at least `least_bytes` each: what cannot fit the rest of the file is refused.
  std::uint64_t count(std::uint64_t least_bytes, const char* what) {
    const auto number = value<std::uint64_t>(what);
    MAGISTER_CHECK(number <= left() / least_bytes, ExitCode::kData,
                   "{}: {} says {}, but only {} bytes are left (the header is damaged); fetch the file again",
                   printable(path_), what, number, left());
    return number;
  }

  void need(std::uint64_t num_bytes, const char* what) const {
    MAGISTER_CHECK(num_bytes <= left(), ExitCode::kData,
                   "{}: ends at byte {} inside {} (the file is cut short or its header is wrong); fetch the file again",
                   printable(path_), bytes_.size(), what);
  }
  std::uint64_t left() const { return bytes_.size() - at_; }
  std::uint64_t position() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t at_ = 0;
};

enum ValueType : std::uint32_t {
  kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kFloat32, kBool, kString, kArray, kUint64, kInt64, kFloat64
};

std::uint64_t least_bytes(std::uint32_t type) {
  switch (type) {
    case kUint8: case kInt8: case kBool: return 1;
    case kUint16: case kInt16: return 2;
    case kUint32: case kInt32: case kFloat32: return 4;
    default: return 8;
  }
}

template <typename Wide>
Wide number(Cursor& cursor, std::uint32_t type) {
  switch (type) {
    case kUint8: return static_cast<Wide>(cursor.value<std::uint8_t>("a metadata value"));
    case kInt8: return static_cast<Wide>(cursor.value<std::int8_t>("a metadata value"));
    case kUint16: return static_cast<Wide>(cursor.value<std::uint16_t>("a metadata value"));
    case kInt16: return static_cast<Wide>(cursor.value<std::int16_t>("a metadata value"));
    case kUint32: return static_cast<Wide>(cursor.value<std::uint32_t>("a metadata value"));
    case kInt32: return static_cast<Wide>(cursor.value<std::int32_t>("a metadata value"));
    case kBool: return static_cast<Wide>(cursor.value<std::uint8_t>("a metadata value"));
    case kUint64: return static_cast<Wide>(cursor.value<std::uint64_t>("a metadata value"));
    case kInt64: return static_cast<Wide>(cursor.value<std::int64_t>("a metadata value"));
    case kFloat32: return static_cast<Wide>(cursor.value<float>("a metadata value"));
    default: return static_cast<Wide>(cursor.value<double>("a metadata value"));
  }
}

class GgufFile final : public MappedTensors {
 public:
  explicit GgufFile(const std::string& path) {
    const std::size_t index = add_file(MappedFile(path));
    const std::string& name = file(index).path();
    Cursor cursor(file(index).bytes(), name);
    cursor.need(4, "the magic");
    MAGISTER_CHECK(cursor.value<std::uint32_t>("the magic") == 0x46554747u, ExitCode::kData,
                   "{}: does not begin with \"GGUF\" (it is no GGUF file); give a .gguf file", printable(name));
    const auto version = cursor.value<std::uint32_t>("the version");
    MAGISTER_CHECK(version == 2 || version == 3, ExitCode::kData,
                   "{}: is GGUF version {} (2 and 3 are read here); convert it again with current tools", printable(name),
                   version);
    const std::uint64_t num_tensors = cursor.count(24, "the number of tensors");
    const std::uint64_t num_pairs = cursor.count(13, "the number of metadata pairs");
    for (std::uint64_t i = 0; i < num_pairs; ++i) read_pair(cursor, name);
    read_tensors(cursor, num_tensors, index);
    finish();
  }

 private:
  void read_pair(Cursor& cursor, const std::string& path) {
    const std::string key = cursor.text("a metadata key");
    const auto type = cursor.value<std::uint32_t>("a metadata type");
    MAGISTER_CHECK(!key.empty() && key.size() <= 65535 && type <= kFloat64, ExitCode::kData,
                   "{}: metadata \"{}\" has type {} (types are 0 to 12; the header is damaged); fetch the file again",
                   printable(path), printable(key), type);
    MAGISTER_CHECK(metadata_.emplace(key, read_value(cursor, type, path, key)).second, ExitCode::kData,
                   "{}: metadata \"{}\" is there twice (which one is meant?); fetch the file again", printable(path),
                   printable(key));
  }

  MetadataValue read_value(Cursor& cursor, std::uint32_t type, const std::string& path, const std::string& key) {
    switch (type) {
      case kString: return cursor.text("a metadata text");
      case kBool: {
        const auto value = cursor.value<std::uint8_t>("a metadata value");
        MAGISTER_CHECK(value <= 1, ExitCode::kData, "{}: metadata \"{}\" is a truth value of {} (0 and 1 are allowed); "
                       "fetch the file again", printable(path), printable(key), value);
        return value == 1;
      }
      case kFloat32: case kFloat64: return number<double>(cursor, type);
      case kUint64: return number<std::uint64_t>(cursor, type);
      case kArray: return read_array(cursor, path, key);
      default: return number<std::int64_t>(cursor, type);
    }
  }

  MetadataValue read_array(Cursor& cursor, const std::string& path, const std::string& key) {
    const auto type = cursor.value<std::uint32_t>("an array's type");
    MAGISTER_CHECK(type <= kFloat64 && type != kArray, ExitCode::kData,
                   "{}: metadata \"{}\" is an array of type {} (arrays hold numbers or texts); fetch the file again",
                   printable(path), printable(key), type);
    const std::uint64_t count = cursor.count(least_bytes(type), "an array's length");
    if (type == kString) {
      std::vector<std::string> texts;
      texts.reserve(count);
      for (std::uint64_t i = 0; i < count; ++i) texts.push_back(cursor.text("an array's text"));
      return texts;
    }
    if (type == kFloat32 || type == kFloat64) {
      std::vector<double> numbers(count);
      for (double& value : numbers) value = number<double>(cursor, type);
      return numbers;
    }
    std::vector<std::int64_t> numbers(count);
    for (std::int64_t& value : numbers) value = number<std::int64_t>(cursor, type);
    return numbers;
  }

  StorageType storage_type(std::uint32_t type, const std::string& path, const std::string& name) const {
    switch (type) {
      case 0: return StorageType::kF32;
      case 1: return StorageType::kF16;
      case 2: return StorageType::kQ4_0;
      case 3: return StorageType::kQ4_1;
      case 8: return StorageType::kQ8_0;
      case 14: return StorageType::kQ6_K;
      case 24: return StorageType::kI8;
      case 25: return StorageType::kI16;
      case 26: return StorageType::kI32;
      case 27: return StorageType::kI64;
      case 28: return StorageType::kF64;
      case 30: return StorageType::kBF16;
      default:
        fail(ExitCode::kData, "{}: tensor {} has ggml type {} (read here: F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q6_K and "
             "integers); convert the model to one of these", printable(path), printable(name), type);
    }
  }

  std::uint64_t alignment(const std::string& path) const {
    const auto found = metadata_.find("general.alignment");
    if (found == metadata_.end()) return 32;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    MAGISTER_CHECK(value != nullptr && *value >= 1 && *value <= (1 << 20) && (*value & (*value - 1)) == 0, ExitCode::kData,
                   "{}: general.alignment is no power of two up to 2^20 (tensors could not be found); fetch the file again",
                   printable(path));
    return static_cast<std::uint64_t>(*value);
  }

  void read_tensors(Cursor& cursor, std::uint64_t num_tensors, std::size_t index) {
    const std::string& path = file(index).path();
    struct Entry {
      TensorInfo info;
      std::uint64_t offset;
    };
    std::vector<Entry> entries;
    for (std::uint64_t i = 0; i < num_tensors; ++i) {
      Entry entry;
      entry.info.name = cursor.text("a tensor's name");
      const auto num_dimensions = cursor.value<std::uint32_t>("a tensor's dimensions");
      MAGISTER_CHECK(num_dimensions >= 1 && num_dimensions <= 4, ExitCode::kData,
                     "{}: tensor {} has {} dimensions (1 to 4 are allowed; the header is damaged); fetch the file again",
                     printable(path), printable(entry.info.name), num_dimensions);
      for (std::uint32_t d = 0; d < num_dimensions; ++d) {
        const auto size = cursor.value<std::uint64_t>("a tensor's dimension");
        MAGISTER_CHECK(size <= (1ull << 40), ExitCode::kData, "{}: tensor {} has a dimension of {} (no tensor is that "
                       "large; the header is damaged); fetch the file again", printable(path), printable(entry.info.name),
                       size);
        entry.info.shape.insert(entry.info.shape.begin(), static_cast<std::int64_t>(size));
      }
      entry.info.type = storage_type(cursor.value<std::uint32_t>("a tensor's type"), path, entry.info.name);
      entry.offset = cursor.value<std::uint64_t>("a tensor's offset");
      entries.push_back(std::move(entry));
    }
    const std::uint64_t unit = alignment(path);
    const std::uint64_t data = (cursor.position() + unit - 1) / unit * unit;
    for (Entry& entry : entries) {
      MAGISTER_CHECK(entry.offset % unit == 0, ExitCode::kData,
                     "{}: tensor {} starts at {}, no multiple of the alignment {} (the header is damaged); fetch the file "
                     "again", printable(path), printable(entry.info.name), entry.offset, unit);
      const std::uint64_t begin = checked_add(data, entry.offset, "begin of a tensor");
      add_tensor(std::move(entry.info), index, begin);
    }
  }
};

}  // namespace

std::unique_ptr<TensorFile> open_gguf(const std::string& path) { return std::make_unique<GgufFile>(path); }

}  // namespace magister
