#include "serve/sent_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

namespace magister {
namespace {

constexpr std::size_t kMostRanges = 16;  // more would be an attack, and are answered with the whole file

// The library made the request for the handler and reads its ranges again afterwards.
httplib::Ranges& ranges_of(const httplib::Request& request) { return const_cast<httplib::Request&>(request).ranges; }

}  // namespace

void forget_ranges(const httplib::Request& request) { ranges_of(request).clear(); }

bool send_file(const httplib::Request& request, httplib::Response& response, const std::string& path,
               const std::shared_ptr<void>& held) {
  const auto file = std::make_shared<std::ifstream>(path, std::ios::binary | std::ios::ate);
  const std::int64_t size = *file ? static_cast<std::int64_t>(file->tellg()) : 0;
  httplib::Ranges& ranges = ranges_of(request);
  if (ranges.size() > kMostRanges) ranges.clear();
  // A pair is (first, last), (first, -1) for all from there, or (-1, count) for the end.
  const bool outside = std::any_of(ranges.begin(), ranges.end(), [size](const auto& range) {
    return range.first >= size || (range.first == -1 && range.second <= 0);
  });
  if (outside) {
    ranges.clear();
    response.set_header("Content-Range", fmt::format("bytes */{}", size));
    return false;
  }
  for (auto& [first, last] : ranges)
    if (first >= 0 && last >= size) last = -1;
  response.set_header("Accept-Ranges", "bytes");
  if (size == 0) {
    response.set_content("", "application/octet-stream");
    return true;
  }
  response.set_content_provider(
      static_cast<std::size_t>(size), "application/octet-stream",
      [file, held](std::size_t offset, std::size_t length, httplib::DataSink& sink) {
        std::array<char, 1 << 16> piece;
        file->clear();
        file->seekg(static_cast<std::streamoff>(offset));
        file->read(piece.data(), static_cast<std::streamsize>(std::min(length, piece.size())));
        return file->gcount() > 0 && sink.write(piece.data(), static_cast<std::size_t>(file->gcount()));
      });
  return true;
}

}  // namespace magister
