// gzip: RFC 1952, several members one after the other as `cat a.gz b.gz` and bgzip write them, with zeros after the
// last as tar pads them. zstd: RFC 8878, several frames likewise. A file that ends inside a member or frame is damaged:
// the missing part is unknown.
#include "io/dataset/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "io/dataset/line_reader.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kStreamBytes = 256 << 10;

class PlainBytes final : public ByteStream {
 public:
  PlainBytes(const DataFile& file, std::uint64_t begin) : reader_(file.path), position_(begin) {
    reader_.require(file.version);
  }
  std::size_t read(std::span<char> out) override {
    const std::size_t n = reader_.read_at(position_, out);
    position_ += n;
    return n;
  }

 private:
  LineReader reader_;
  std::uint64_t position_;
};

// Reads the compressed bytes, piece by piece.
class Pieces {
 public:
  explicit Pieces(const DataFile& file) : file_(file, 0), buffer_(kStreamBytes) {}
  std::span<char> next() { return {buffer_.data(), file_.read(buffer_)}; }  // empty at the end

 private:
  PlainBytes file_;
  std::vector<char> buffer_;
};

[[noreturn]] void fail_damaged(const DataFile& file, const char* format, const std::string& reason) {
  fail(ExitCode::kData, "{}: the {} data is damaged: {} (records would be lost); write the file again",
       printable(file.path), format, printable(reason));
}

class GzipBytes final : public ByteStream {
 public:
  explicit GzipBytes(const DataFile& file) : file_(file), pieces_(file) {
    MAGISTER_CHECK(inflateInit2(&state_, 15 + 16) == Z_OK, ExitCode::kInternal,
                   "{}: zlib does not start (out of memory?); report this", printable(file.path));
  }
  ~GzipBytes() override { inflateEnd(&state_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  std::size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1u << 30));
    const uInt room = state_.avail_out;
    while (state_.avail_out == room) {
      if (state_.avail_in == 0 && !refill()) {
        if (inside_ || !any_) fail_damaged(file_, "gzip", any_ ? "it ends inside a member" : "the file is empty");
        return 0;
      }
      if (!inside_) {
        if (any_ && skip_zeros()) continue;
        if (any_) inflateReset(&state_);
      }
      inside_ = any_ = true;
      const int outcome = inflate(&state_, Z_NO_FLUSH);
      if (outcome == Z_STREAM_END) inside_ = false;
      if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR) {
        fail_damaged(file_, "gzip", state_.msg == nullptr ? "zlib refuses it" : state_.msg);
      }
    }
    return room - state_.avail_out;
  }

 private:
  bool refill() {
    const std::span<char> piece = pieces_.next();
    state_.next_in = reinterpret_cast<Bytef*>(piece.data());
    state_.avail_in = static_cast<uInt>(piece.size());
    return !piece.empty();
  }
  // Skips zeros between and after members; true: the piece is used up.
  bool skip_zeros() {
    while (state_.avail_in > 0 && *state_.next_in == 0) ++state_.next_in, --state_.avail_in;
    return state_.avail_in == 0;
  }

  const DataFile& file_;
  Pieces pieces_;
  z_stream state_{};
  bool inside_ = false, any_ = false;  // now inside a member; a member has begun before
};

class ZstdBytes final : public ByteStream {
 public:
  explicit ZstdBytes(const DataFile& file) : file_(file), pieces_(file), state_(ZSTD_createDStream()) {
    MAGISTER_CHECK(state_ != nullptr, ExitCode::kInternal, "{}: zstd does not start (out of memory?); report this",
                   printable(file.path));
  }
  ~ZstdBytes() override { ZSTD_freeDStream(state_); }
  ZstdBytes(const ZstdBytes&) = delete;
  ZstdBytes& operator=(const ZstdBytes&) = delete;

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      // The decoder's remaining output comes before more input.
      if (from_.pos == from_.size && !full_) {
        const std::span<char> piece = pieces_.next();
        if (piece.empty()) {
          if (inside_ || !any_) fail_damaged(file_, "zstd", any_ ? "it ends inside a frame" : "the file is empty");
          return 0;
        }
        from_ = {piece.data(), piece.size(), 0};
        any_ = true;
      }
      const std::size_t left = ZSTD_decompressStream(state_, &to, &from_);
      if (ZSTD_isError(left) != 0) fail_damaged(file_, "zstd", ZSTD_getErrorName(left));
      inside_ = left != 0;
      full_ = inside_ && to.pos == to.size;
    }
    return to.pos;
  }

 private:
  const DataFile& file_;
  Pieces pieces_;
  ZSTD_DStream* const state_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  // Now inside a frame; something was read; the output buffer was too small.
  bool inside_ = false, any_ = false, full_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(const DataFile& file, std::uint64_t begin) {
  if (file.compression == Compression::kGzip) return std::make_unique<GzipBytes>(file);
  if (file.compression == Compression::kZstd) return std::make_unique<ZstdBytes>(file);
  return std::make_unique<PlainBytes>(file, begin);
}

}  // namespace magister
