// A collection: "GCOL", version 1, three bytes, u64 size; then objects: u16 number, u16 references, u32, u64 size,
// bytes padded to 8. Object 0 is the free space after the last one.
#include "io/results/text_heap.h"

#include <algorithm>
#include <cstring>

#include "io/hdf5_types.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kHeader = 16;             // of a collection, and of an object
constexpr std::uint64_t kMostInMemory = 1 << 20;  // larger collections hold one text, or are damaged
constexpr std::uint64_t kRowsAtOnce = 4096;

std::uint64_t padded(std::uint64_t size) { return (size + 7) / 8 * 8; }

template <typename T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

struct TextHeapWriter::Handles {
  std::string path, column;
  H5File file;
  H5Dataset dataset;
  H5Type type;
  H5Space space;
};

TextHeapWriter::TextHeapWriter(const std::string& path, const std::string& column)
    : handles_(std::make_unique<Handles>()) {
  silence_hdf5();
  Handles& h = *handles_;
  h.path = path;
  h.column = column;
  const H5Properties access = file_access();
  h.file = H5File(MAGISTER_CHECK_HDF5(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), path));
  h.dataset = H5Dataset(MAGISTER_CHECK_HDF5(H5Dopen2(h.file.get(), column.c_str(), H5P_DEFAULT), path));
  h.type = hdf5_type(ColumnType::kText, 0);
  h.space = H5Space(MAGISTER_CHECK_HDF5(H5Dget_space(h.dataset.get()), path));
}

TextHeapWriter::~TextHeapWriter() = default;

void TextHeapWriter::write(std::uint64_t first_row, std::span<const std::string> texts) {
  if (texts.empty()) return;
  Handles& h = *handles_;
  std::vector<const char*> pointers;
  for (const std::string& text : texts) {
    MAGISTER_CHECK(text.find('\0') == std::string::npos && text.size() <= 0xFFFFFFFFu, ExitCode::kInternal,
                   "{}: row {} of {} holds a NUL or more than 4 GiB (HDF5's strings end at a NUL); report this",
                   printable(h.path), first_row + pointers.size(), h.column);
    pointers.push_back(text.c_str());
  }
  const hsize_t start = first_row, count = texts.size();
  const H5Space rows(MAGISTER_CHECK_HDF5(H5Screate_simple(1, &count, nullptr), h.path));
  MAGISTER_CHECK_HDF5(H5Sselect_hyperslab(h.space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), h.path);
  MAGISTER_CHECK_HDF5(H5Dwrite(h.dataset.get(), h.type.get(), rows.get(), h.space.get(), H5P_DEFAULT,
                               static_cast<const void*>(pointers.data())),
                      h.path);
}

void TextHeapWriter::close() {
  Handles& h = *handles_;
  MAGISTER_CHECK(h.dataset.close() && h.file.close(), ExitCode::kInputOutput,
                 "{}: closing the file failed: {} (texts may be "
                 "missing); check the disk and run the same command again",
                 printable(h.path), hdf5_reason());
}

void TextHeap::fail_at(std::uint64_t row, const std::string& why) const {
  fail(ExitCode::kData, "{}: row {} of {} cannot be read: {} (the file is damaged); put it aside with --fresh",
       printable(columns_.path()), row, printable(column_.spec.path), why);
}

void TextHeap::open_collection(std::uint64_t address, std::uint64_t row) {
  const PosixFile& file = columns_.file();
  const std::uint64_t file_bytes = file.num_bytes();
  objects_.clear();
  collection_.clear();
  address_ = 0;
  if (address > file_bytes || file_bytes - address < kHeader)
    fail_at(row, fmt::format("its heap is at byte {} of {}", address, file_bytes));
  std::vector<std::byte> header(kHeader);
  file.read_at(address, header);
  const std::uint64_t size = number_at<std::uint64_t>(header, 8);
  if (std::memcmp(header.data(), "GCOL\1", 5) != 0 || size < kHeader || size > file_bytes - address) {
    fail_at(row, fmt::format("there is no heap at byte {}", address));
  }
  if (size <= kMostInMemory) {
    collection_.resize(size);
    file.read_at(address, collection_);
  }
  for (std::uint64_t at = kHeader; at + kHeader <= size;) {
    if (collection_.empty())
      file.read_at(address + at, header);
    else
      std::copy_n(collection_.begin() + static_cast<std::ptrdiff_t>(at), kHeader, header.begin());
    const std::uint32_t number = number_at<std::uint16_t>(header, 0);
    const std::uint64_t bytes = number_at<std::uint64_t>(header, 8);
    if (number == 0) break;
    if (bytes > size - at - kHeader)
      fail_at(row, fmt::format("object {} of the heap at byte {} reaches beyond its end", number, address));
    objects_[number] = {address + at + kHeader, bytes};
    at += kHeader + padded(bytes);
  }
  address_ = address;
}

std::string_view TextHeap::read_text(std::uint64_t row, std::span<const std::byte> descriptor) {
  const auto length = number_at<std::uint32_t>(descriptor, 0), number = number_at<std::uint32_t>(descriptor, 12);
  const auto address = number_at<std::uint64_t>(descriptor, 4);
  if (length == 0) return {};
  if (address == 0) fail_at(row, "its descriptor names no heap");
  if (address != address_) open_collection(address, row);
  const auto found = objects_.find(number);
  if (found == objects_.end() || found->second.size < length)
    fail_at(row, fmt::format("the heap at byte {} has no object {} of {} bytes", address, number, length));
  const std::uint64_t offset = found->second.offset;
  if (!collection_.empty()) return {reinterpret_cast<const char*>(collection_.data() + (offset - address)), length};
  text_.resize(length);
  columns_.file().read_at(offset, std::as_writable_bytes(std::span(text_)));
  return text_;
}

void TextHeap::for_each(IndexRange rows, const std::function<void(std::uint64_t, std::string_view)>& visit) {
  if (column_.spec.type == ColumnType::kText && column_.is_packed)
    return columns_.packed().for_each_text(column_, rows, visit);
  const std::uint64_t width = column_.row_bytes();
  std::vector<std::byte> block;
  const std::uint64_t at_once = std::clamp<std::uint64_t>((1 << 20) / width, 1, kRowsAtOnce);
  for (std::uint64_t first = rows.begin; first < rows.end; first += at_once) {
    const std::uint64_t count = std::min(at_once, rows.end - first);
    block.resize(count * width);
    columns_.read(column_, first, block);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto row = std::span<const std::byte>(block).subspan(i * width, width);
      if (column_.spec.type == ColumnType::kText) {
        visit(first + i, read_text(first + i, row));
        continue;
      }
      const std::string_view padded_text(reinterpret_cast<const char*>(row.data()), width);
      visit(first + i, padded_text.substr(0, padded_text.find_last_not_of('\0') + 1));
    }
  }
}

std::string TextHeap::text(std::uint64_t row) {
  std::string text;
  for_each({row, row + 1}, [&](std::uint64_t, std::string_view found) { text = found; });
  return text;
}

}  // namespace magister
