// How a file of teacher logits stores the kept entries of a row, and its rows decoded. Three encodings, root attribute `encoding`:
//   plain     /teacher/top_id i32 [T, k], /teacher/top_logprob f32 or f16 [T, k]; files without the attribute are plain
//   compact   /teacher/top_id_packed u8 [T, ceil(k bits / 8)], /teacher/top_logprob f16: 264 bytes for k = 64 of 128,256 tokens, not 512
//   sampled   the same with few entries, and /teacher/tail_id_packed u8 [T, ceil(draws bits / 8)]: an unbiased sample of all other tokens.
//             Each draw stands for tail_mass / draws of the teacher's mass: a token's expected weight is its probability
// Packed ids: entry j of a row takes bits [j b, (j + 1) b) of it, b = id_bits = ceil(log2 V), the lowest bit first in bytes and in ids
// (numpy.unpackbits with bitorder "little"). Rows that are not scored hold zeros there, and NaN in /teacher/logsumexp.
// Source of the weighted tail: Anshumann et al., arXiv 2503.16870; the exact head beside it, and systematic draws, are this project's own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/reader.h"

namespace magister {

inline constexpr const char* kTopIdPacked = "/teacher/top_id_packed";
inline constexpr const char* kTailIdPacked = "/teacher/tail_id_packed";

// Bits of an id below vocab_size, at least 1; bytes of a row of ids.
std::uint64_t id_bits(std::uint64_t vocab_size);
std::uint64_t packed_bytes(std::uint64_t count, std::uint64_t bits);
// One row. Ids below 0 stand as 0. row has packed_bytes(ids.size(), bits).
void pack_ids(std::span<const std::int32_t> ids, std::uint64_t bits, std::span<std::byte> row);
void unpack_ids(std::span<const std::byte> row, std::uint64_t bits, std::span<std::int32_t> ids);

struct TeacherEncoding {
  enum class Kind { kPlain, kCompact, kSampled };
  Kind kind = Kind::kPlain;
  std::uint64_t top_k = 0;
  std::uint64_t draws = 0;  // of kSampled
  std::uint64_t bits = 0;   // of ids, but for kPlain

  // Of a file; Error(kData) when attributes and datasets do not fit each other.
  static TeacherEncoding of(const ResultsReader& file);
  bool is_packed() const { return kind != Kind::kPlain; }
  // The root attributes that say it; none for kPlain.
  Attributes attributes() const;
  // Ids in a row of a packed column; 0: `path` is none.
  std::uint64_t packed_count(const std::string& path) const;
};

// "plain", "compact", "sampled".
const char* encoding_name(TeacherEncoding::Kind kind);

// Whether a row's entries agree with the log-probability that the teacher's head gave the token after it: where that token is kept, it is the
// same number, as stored; where it is not, it is at most the last kept one. Of rows that are shifted, or of an edited text, nearly none do.
bool target_agrees(std::span<const std::int32_t> ids, std::span<const float> logprobs, ColumnType stored,
                   std::int32_t next, float target);

// The packed columns of any results file, for tools that give ids and not bytes. Of other files than teacher logits none.
class PackedColumns {
 public:
  explicit PackedColumns(const ResultsReader& file);
  // Ids in a row of the column; 0: it is not packed.
  std::uint64_t count(const std::string& path) const { return encoding_.packed_count(path); }
  // Whole rows of such a column as ids.
  void unpack(const std::string& path, std::span<const std::byte> bytes, std::vector<std::int32_t>& ids) const;
  // What the column is called when it is not packed: "/teacher/top_id".
  static std::string plain_path(const std::string& path) { return path.substr(0, path.rfind("_packed")); }

 private:
  TeacherEncoding encoding_;
};

// Rows of a file, decoded. Any thread; `file` is kept by reference.
class TeacherRows {
 public:
  explicit TeacherRows(const ResultsReader& file);

  const TeacherEncoding& encoding() const { return encoding_; }
  // Entries of a decoded row: top_k, and of sampled rows as many more as there are draws.
  std::uint64_t width() const { return encoding_.top_k + encoding_.draws; }
  // Kept entries as stored, [count * top_k].
  void read_top(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
                std::vector<float>& logprobs) const;
  // Draws as stored, [count * draws], ascending in a row.
  void read_draws(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids) const;
  // All entries, [count * width()]: kept ones with their log-probability, drawn ones with the log of their weight, equal draws as one;
  // what a row does not fill is id -1 with -infinity, and so is a row that was not scored.
  void read(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
            std::vector<float>& logprobs) const;

 private:
  void read_packed(const char* column, std::uint64_t ids_a_row, std::uint64_t first_row, std::uint64_t count,
                   std::vector<std::int32_t>& ids) const;
  const ResultsReader& file_;
  TeacherEncoding encoding_;
};

}  // namespace magister
