// Reads little-endian values of a GGUF header one after the other. It never reads beyond the end of the file and never
// holds more memory than a budget, because counts and lengths in a file cannot be trusted. Source: ggml's GGUF
// specification.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "magister/core/error.h"

namespace magister {

class GgufCursor {
 public:
  // The largest vocabularies (256,000 tokens, 500,000 merges) take 40 MB.
  static constexpr std::uint64_t kMaxHeldBytes = 128 << 20;

  GgufCursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

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
    hold(length);
    std::string result(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return result;
  }

  // Reads a count of items that take at least file_bytes each in the file and memory_bytes each in memory.
  std::uint64_t count(std::uint64_t file_bytes, std::uint64_t memory_bytes, const char* what) {
    const auto number = value<std::uint64_t>(what);
    MAGISTER_CHECK(number <= left() / file_bytes, ExitCode::kData,
                   "{}: {} says {}, but only {} bytes are left (the header is damaged); fetch the file again",
                   printable(path_), what, number, left());
    hold(number * memory_bytes);  // no overflow: number <= file size / file_bytes, and memory_bytes is small
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
  void hold(std::uint64_t num_bytes) {
    held_bytes_ += num_bytes;
    MAGISTER_CHECK(
        held_bytes_ <= kMaxHeldBytes, ExitCode::kData,
        "{}: its header asks for more than {} MiB of memory (no model's does; it is damaged); fetch the file "
        "again",
        printable(path_), kMaxHeldBytes >> 20);
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t at_ = 0;
  std::uint64_t held_bytes_ = 0;
};

}  // namespace magister
