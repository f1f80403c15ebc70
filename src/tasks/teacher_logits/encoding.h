// How a file of teacher logits stores the kept entries of a row, and how its rows are decoded. Three encodings, root
// attribute `encoding`:
//   plain     /teacher/top_id i32 [T, k], /teacher/top_logprob f32 or f16 [T, k]; files without the attribute are plain
//   compact   /teacher/top_id_packed u8 [T, ceil(k bits / 8)], /teacher/top_logprob f16: 264 bytes instead of 512
//             for k = 64 of 128,256 tokens
//   sampled   as compact with few entries, and /teacher/tail_id_packed u8 [T, ceil(draws bits / 8)]: an unbiased
//             sample of all other tokens. Each draw has the weight tail_mass / draws: a token's expected weight is
//             its probability
// Packed ids: entry j of a row takes bits [j b, (j + 1) b) of it, b = id_bits = ceil(log2 V), the lowest bit first in
// bytes and in ids (numpy.unpackbits with bitorder "little"). Rows that are not scored hold zeros there, and NaN in
// /teacher/logsumexp.
// Source of the weighted tail: Anshumann et al., arXiv 2503.16870. The exact head and the systematic draws are this
// project's own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/export.h"
#include "magister/io/results/reader.h"

namespace magister {

// Bits of an id below vocab_size, at least 1; bytes of a row of ids.
std::uint64_t id_bits(std::uint64_t vocab_size);
std::uint64_t packed_bytes(std::uint64_t count, std::uint64_t bits);
// Packs one row. Ids below 0 are stored as 0. row has packed_bytes(ids.size(), bits).
void pack_ids(std::span<const std::int32_t> ids, std::uint64_t bits, std::span<std::byte> row);
void unpack_ids(std::span<const std::byte> row, std::uint64_t bits, std::span<std::int32_t> ids);

struct TeacherEncoding {
  enum class Kind { kPlain, kCompact, kSampled };
  Kind kind = Kind::kPlain;
  std::uint64_t top_k = 0;
  std::uint64_t draws = 0;  // only kSampled
  std::uint64_t bits = 0;   // bits per id; 0 for kPlain

  // The encoding of a file; Error(kData) if attributes and datasets contradict each other.
  static TeacherEncoding of(const ResultsReader& file);
  bool is_packed() const { return kind != Kind::kPlain; }
  // The root attributes that record the encoding; none for kPlain.
  Attributes attributes() const;
};

// "plain", "compact", "sampled".
const char* encoding_name(TeacherEncoding::Kind kind);

// True if a row's entries agree with the log-probability that the teacher's head gave the next token. If that token is
// kept, the two numbers are equal, as stored; if not, it is at most the last kept one. Rows that are shifted or belong
// to an edited text almost never agree.
bool target_agrees(std::span<const std::int32_t> ids, std::span<const float> logprobs, ColumnType stored,
                   std::int32_t next, float target);

// A packed column as exports write it: the ids. nullopt: the column is not packed.
std::optional<DecodedColumn> decoded_ids(const ResultsReader& file, const ColumnSpec& column);

// Decoded rows of a file. Any thread; keeps a reference to `file`.
class TeacherRows {
 public:
  explicit TeacherRows(const ResultsReader& file);

  const TeacherEncoding& encoding() const { return encoding_; }
  // Entries of a decoded row: top_k, and for sampled rows one more per draw.
  std::uint64_t width() const { return encoding_.top_k + encoding_.draws; }
  // Kept entries as stored, [count * top_k].
  void read_top(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
                std::vector<float>& logprobs) const;
  // Draws as stored, [count * draws], ascending within a row.
  void read_draws(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids) const;
  // All entries, [count * width()]: kept ones with their log-probability, drawn ones with the log of their weight,
  // equal draws joined. The rest of a row is id -1 with -infinity, and so is a row that was not scored.
  void read(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
            std::vector<float>& logprobs) const;

 private:
  void read_packed(const Column<std::uint8_t>& column, std::uint64_t ids_a_row, std::uint64_t first_row,
                   std::uint64_t count, std::vector<std::int32_t>& ids) const;
  const ResultsReader& file_;
  TeacherEncoding encoding_;
};

}  // namespace magister
