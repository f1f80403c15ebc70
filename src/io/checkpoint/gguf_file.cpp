// GGUF v2 and v3: header and tensor list. Tensors must follow each other in the file, each at the next multiple of the
// alignment, as ggml itself requires; this excludes overlaps and holes. A model in parts is read as one file. Source:
// ggml's GGUF specification.
#include <algorithm>

#include "io/checkpoint/dequantize.h"
#include "io/checkpoint/gguf_cursor.h"
#include "io/checkpoint/gguf_metadata.h"
#include "io/checkpoint/gguf_split.h"
#include "io/checkpoint/mapped_tensors.h"
#include "magister/core/checked.h"

namespace magister {
namespace {

constexpr std::uint32_t kGgufMaxDimensions = 4;
constexpr std::int64_t kMaxAlignment = 1 << 20;

StorageType storage_type(std::uint32_t type, const std::string& path, const std::string& name) {
  switch (type) {
    case 0:
      return StorageType::kF32;
    case 1:
      return StorageType::kF16;
    case 2:
      return StorageType::kQ4_0;
    case 3:
      return StorageType::kQ4_1;
    case 6:
      return StorageType::kQ5_0;
    case 7:
      return StorageType::kQ5_1;
    case 8:
      return StorageType::kQ8_0;
    case 10:
      return StorageType::kQ2_K;
    case 11:
      return StorageType::kQ3_K;
    case 12:
      return StorageType::kQ4_K;
    case 13:
      return StorageType::kQ5_K;
    case 14:
      return StorageType::kQ6_K;
    case 20:
      return StorageType::kIQ4_NL;
    case 24:
      return StorageType::kI8;
    case 25:
      return StorageType::kI16;
    case 26:
      return StorageType::kI32;
    case 27:
      return StorageType::kI64;
    case 28:
      return StorageType::kF64;
    case 30:
      return StorageType::kBF16;
    case 39:
      return StorageType::kMXFP4;
    default:
      break;
  }
  fail(ExitCode::kData,
       "{}: tensor {} has ggml type {} (read here: F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, "
       "Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4 and integers); convert the model to one of these",
       printable(path), printable(name), type);
}

// A tensor of the list, and its offset in the data.
struct Entry {
  TensorInfo info;
  std::uint64_t offset = 0;
};

Entry read_entry(GgufCursor& cursor, const std::string& path) {
  Entry entry;
  entry.info.name = cursor.text("a tensor's name");
  const auto num_dimensions = cursor.value<std::uint32_t>("a tensor's number of dimensions");
  MAGISTER_CHECK(num_dimensions >= 1 && num_dimensions <= kGgufMaxDimensions, ExitCode::kData,
                 "{}: tensor {} has {} dimensions (1 to {} are allowed; the header is damaged); fetch the file again",
                 printable(path), printable(entry.info.name), num_dimensions, kGgufMaxDimensions);
  for (std::uint32_t d = 0; d < num_dimensions; ++d) {
    const auto size = cursor.value<std::uint64_t>("a tensor's dimension");
    MAGISTER_CHECK(size <= (1ull << 40), ExitCode::kData,
                   "{}: tensor {} has a dimension of {} (no tensor is that large; "
                   "the header is damaged); fetch the file again",
                   printable(path), printable(entry.info.name), size);
    entry.info.shape.insert(entry.info.shape.begin(), static_cast<std::int64_t>(size));
  }
  entry.info.type = storage_type(cursor.value<std::uint32_t>("a tensor's type"), path, entry.info.name);
  entry.offset = cursor.value<std::uint64_t>("a tensor's offset");
  return entry;
}

void check_magic(GgufCursor& cursor, const std::string& path) {
  const auto magic = cursor.value<std::uint32_t>("the magic");
  MAGISTER_CHECK(magic == 0x46554747u, ExitCode::kData,
                 "{}: does not begin with \"GGUF\" (it is no GGUF file); give a "
                 ".gguf file",
                 printable(path));
  const auto version = cursor.value<std::uint32_t>("the version");
  MAGISTER_CHECK((version & 0xFFFFu) != 0 || version == 0, ExitCode::kData,
                 "{}: is a big-endian GGUF file (numbers would be read backwards); convert it to little-endian",
                 printable(path));
  MAGISTER_CHECK(version == 2 || version == 3, ExitCode::kData,
                 "{}: is GGUF version {} (2 and 3 are read here); convert it again with current tools", printable(path),
                 version);
}

// The content of a file without its data.
struct Header {
  MappedFile file;
  Metadata metadata;
  std::vector<Entry> entries;
  std::uint64_t num_bytes = 0;
};

Header read_header(const std::string& path) {
  Header header{MappedFile(path), {}, {}, 0};
  GgufCursor cursor(header.file.bytes(), path);
  check_magic(cursor, path);
  const std::uint64_t num_tensors = cursor.count(24, 160, "the number of tensors");
  const std::uint64_t num_pairs = cursor.count(13, 128, "the number of metadata pairs");
  MAGISTER_CHECK(num_tensors <= kMaxTensors, ExitCode::kData,
                 "{}: says it holds {} tensors (at most {} are read; the header is damaged); fetch the file again",
                 printable(path), num_tensors, kMaxTensors);
  header.metadata = read_gguf_metadata(cursor, num_pairs, path);
  for (std::uint64_t i = 0; i < num_tensors; ++i) header.entries.push_back(read_entry(cursor, path));
  header.num_bytes = cursor.position();
  return header;
}

class GgufFile final : public MappedTensors {
 public:
  explicit GgufFile(const std::string& path) {
    Header given = read_header(path);
    if (const std::optional<GgufSplit> split = gguf_split(given.metadata, path)) {
      add_parts(std::move(given), path, *split);
    } else {
      metadata_ = given.metadata;
      add(std::move(given));
    }
    finish();
  }

 private:
  // The first part has the model's metadata; the others have only their part numbers.
  void add_parts(Header given, const std::string& path, const GgufSplit& split) {
    const std::vector<std::string> paths = gguf_parts(path, split);
    std::uint64_t num_tensors = 0;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      // NOLINTNEXTLINE(bugprone-use-after-move): at split.index alone, which comes once
      Header part = i == split.index ? std::move(given) : read_header(paths[i]);
      check_gguf_part(part.metadata, paths[i], i, split, path);
      num_tensors += part.entries.size();
      if (i == 0) metadata_ = part.metadata;
      add(std::move(part));
    }
    MAGISTER_CHECK(
        num_tensors == split.num_tensors, ExitCode::kData,
        "{}: its {} parts hold {} tensors, where split.tensors.count says {} (a part is of another model, or "
        "cut short); fetch the parts again",
        printable(path), paths.size(), num_tensors, split.num_tensors);
  }

  void add(Header header) {
    const std::uint64_t unit = alignment(header.metadata, header.file.path());
    const std::size_t index = add_file(std::move(header.file));
    place_tensors(std::move(header.entries), header.num_bytes, unit, index);
    file(index).forget(file(index).bytes().data(), file(index).bytes().data() + header.num_bytes);
  }

  static std::uint64_t alignment(const Metadata& metadata, const std::string& path) {
    const auto found = metadata.find("general.alignment");
    if (found == metadata.end()) return 32;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    const bool good = value != nullptr && *value >= 1 && *value <= kMaxAlignment && (*value & (*value - 1)) == 0;
    MAGISTER_CHECK(good, ExitCode::kData,
                   "{}: general.alignment is not a power of two up to {} (tensors could not be found); "
                   "fetch the file again",
                   printable(path), kMaxAlignment);
    return static_cast<std::uint64_t>(*value);
  }

  void place_tensors(std::vector<Entry> entries, std::uint64_t header_end, std::uint64_t unit, std::size_t index) {
    const std::string& path = file(index).path();
    const auto aligned = [unit](std::uint64_t at) { return (at + unit - 1) / unit * unit; };
    const std::uint64_t data = aligned(header_end);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
    std::uint64_t expected = 0;
    for (Entry& entry : entries) {
      const std::uint64_t num_bytes = tensor_bytes(entry.info, path);
      // An empty tensor has the same offset as the next one; either may come first.
      const bool in_place = entry.offset == expected || (num_bytes == 0 && entry.offset <= expected);
      MAGISTER_CHECK(
          in_place, ExitCode::kData,
          "{}: tensor {} begins at byte {} of the data, where {} was expected (tensors overlap, leave a hole or "
          "break the alignment of {}); fetch the file again",
          printable(path), printable(entry.info.name), entry.offset, expected, unit);
      expected = std::max(expected, aligned(checked_add(entry.offset, num_bytes, "end of a tensor")));
      add_tensor(std::move(entry.info), index, checked_add(data, entry.offset, "begin of a tensor"));
    }
  }
};

}  // namespace

std::unique_ptr<TensorFile> open_gguf(const std::string& path) { return std::make_unique<GgufFile>(path); }

}  // namespace magister
