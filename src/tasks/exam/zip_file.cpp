#include "tasks/exam/zip_file.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "magister/core/error.h"

namespace magister {
namespace {

// CRC-32 of ISO 3309, bit by bit over a table of bytes.
std::uint32_t crc32(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0);
      result[i] = value;
    }
    return result;
  }();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

void add_number(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

// The fields that a file's own header and its entry in the directory share: version 2.0, UTF-8 names, stored, 1980.
void add_fields(std::string& to, const std::string& name, const std::string& bytes) {
  add_number(to, 20, 2);
  add_number(to, 1 << 11, 2);
  add_number(to, 0, 2);
  add_number(to, 0, 2);
  add_number(to, 1 << 5 | 1, 2);
  add_number(to, crc32(bytes), 4);
  add_number(to, bytes.size(), 4);
  add_number(to, bytes.size(), 4);
  add_number(to, name.size(), 2);
  add_number(to, 0, 2);
}

}  // namespace

std::string zip_file(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive, directory;
  for (const auto& [name, bytes] : files) {
    const std::size_t at = archive.size();
    archive += "PK\x03\x04";
    add_fields(archive, name, bytes);
    archive += name + bytes;
    directory += "PK\x01\x02";
    add_number(directory, 20, 2);
    add_fields(directory, name, bytes);
    directory.append(10, '\0');
    add_number(directory, at, 4);
    directory += name;
  }
  MAGISTER_CHECK(
      files.size() <= 0xFFFF && archive.size() + directory.size() <= std::numeric_limits<std::uint32_t>::max(),
      ExitCode::kData, "{} files of {} bytes (a ZIP archive holds 65,535 and 4 GiB); divide the exam", files.size(),
      archive.size());
  const std::size_t at = archive.size();
  archive += directory;
  archive += std::string("PK\x05\x06\0\0\0\0", 8);
  add_number(archive, files.size(), 2);
  add_number(archive, files.size(), 2);
  add_number(archive, directory.size(), 4);
  add_number(archive, at, 4);
  add_number(archive, 0, 2);
  return archive;
}

}  // namespace magister
