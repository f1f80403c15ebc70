// Bits pass through a 64-bit window; sizes come from the file and are checked before use.
#include "tasks/teacher_logits/encoding.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "magister/core/error.h"
#include "tasks/teacher_logits/columns.h"

namespace magister {

namespace {

constexpr std::uint64_t kMostBits = 31;

using Kind = TeacherEncoding::Kind;

}  // namespace

std::uint64_t id_bits(std::uint64_t vocab_size) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::bit_width(vocab_size - 1)));
}

std::uint64_t packed_bytes(std::uint64_t count, std::uint64_t bits) { return (count * bits + 7) / 8; }

void pack_ids(std::span<const std::int32_t> ids, std::uint64_t bits, std::span<std::byte> row) {
  MAGISTER_ASSERT(row.size() == packed_bytes(ids.size(), bits));
  std::uint64_t window = 0, held = 0;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    window |= static_cast<std::uint64_t>(std::max(id, 0)) << held;
    for (held += bits; held >= 8; held -= 8, window >>= 8) row[at++] = static_cast<std::byte>(window & 0xff);
  }
  if (held > 0) row[at] = static_cast<std::byte>(window);
}

void unpack_ids(std::span<const std::byte> row, std::uint64_t bits, std::span<std::int32_t> ids) {
  MAGISTER_ASSERT(row.size() == packed_bytes(ids.size(), bits));
  std::uint64_t window = 0, held = 0;
  std::size_t at = 0;
  for (std::int32_t& id : ids) {
    for (; held < bits; held += 8) window |= std::to_integer<std::uint64_t>(row[at++]) << held;
    id = static_cast<std::int32_t>(window & ((std::uint64_t{1} << bits) - 1));
    window >>= bits;
    held -= bits;
  }
}

namespace {

// Unpacks whole rows of at least one id.
void unpack_rows(std::span<const std::byte> rows, std::uint64_t ids_a_row, std::uint64_t bits,
                 std::vector<std::int32_t>& ids) {
  const std::uint64_t row_bytes = packed_bytes(ids_a_row, bits), count = rows.size() / row_bytes;
  ids.resize(count * ids_a_row);
  for (std::uint64_t r = 0; r < count; ++r)
    unpack_ids(rows.subspan(r * row_bytes, row_bytes), bits, std::span(ids).subspan(r * ids_a_row, ids_a_row));
}

}  // namespace

const char* encoding_name(Kind kind) {
  return kind == Kind::kPlain ? "plain" : kind == Kind::kCompact ? "compact" : "sampled";
}

Attributes TeacherEncoding::attributes() const {
  if (kind == Kind::kPlain) return {};
  Attributes all = {{"encoding", std::string(encoding_name(kind))}, {"id_bits", bits}};
  if (kind == Kind::kSampled) all.emplace_back("tail_draws", draws);
  // The error bound that teacher_rows() ensures for every row it writes.
  all.emplace_back("encoding_error",
                   std::string("ids: none; top_logprob: at most max(2^-11 |log p|, 2^-25) nat; all else: none"));
  return all;
}

TeacherEncoding TeacherEncoding::of(const ResultsReader& file) {
  TeacherEncoding encoding;
  const AttributeValue* name = file.attribute("encoding");
  if (name != nullptr && *name == AttributeValue(std::string("compact"))) encoding.kind = Kind::kCompact;
  if (name != nullptr && *name == AttributeValue(std::string("sampled"))) encoding.kind = Kind::kSampled;
  MAGISTER_CHECK(
      name == nullptr || encoding.is_packed() || *name == AttributeValue(std::string("plain")), ExitCode::kData,
      "{}: root attribute encoding is unknown to this program (plain, compact, sampled); use a newer program",
      printable(file.path()));
  const auto fits = [&](bool holds, const char* what) {
    MAGISTER_CHECK(
        holds, ExitCode::kData,
        "{}: {} is missing or does not fit the encoding {} (the file was changed or is of another task); run "
        "check",
        printable(file.path()), what, encoding_name(encoding.kind));
  };
  const auto has = [&](const auto& wanted, std::uint64_t width, ColumnType type) {
    const ColumnSpec* const column = file.find(wanted);
    fits(column != nullptr && column->type == type && column->extent == wanted.extent &&
             (width == 0 || column->width == width),
         wanted.path);
  };
  using namespace teacher_column;
  const ColumnSpec* logprob = file.find(kTopLogprob);
  fits(logprob != nullptr && logprob->width > 0, kTopLogprob.path);
  encoding.top_k = logprob->width;
  if (!encoding.is_packed()) {
    has(kTopId, encoding.top_k, ColumnType::kI32);
    const ColumnType type = logprob->type;
    has(kTopLogprob, encoding.top_k, type == ColumnType::kF16 ? type : ColumnType::kF32);
    return encoding;
  }
  encoding.bits = file.number("id_bits");
  fits(encoding.bits >= 1 && encoding.bits <= kMostBits && encoding.top_k < (1u << 24), "root attribute id_bits");
  has(kTopLogprob, encoding.top_k, ColumnType::kF16);
  has(kTopIdPacked, packed_bytes(encoding.top_k, encoding.bits), ColumnType::kU8);
  if (encoding.kind == Kind::kCompact) return encoding;
  encoding.draws = file.number("tail_draws");
  fits(encoding.draws >= 1 && encoding.draws < (1u << 24), "root attribute tail_draws");
  has(kTailIdPacked, packed_bytes(encoding.draws, encoding.bits), ColumnType::kU8);
  has(kTailMass, 0, ColumnType::kF32);
  return encoding;
}

bool target_agrees(std::span<const std::int32_t> ids, std::span<const float> logprobs, ColumnType stored,
                   std::int32_t next, float target) {
  if (stored == ColumnType::kF16)
    target = _cvtsh_ss(static_cast<unsigned short>(_cvtss_sh(target, _MM_FROUND_TO_NEAREST_INT)));
  const auto found = std::find(ids.begin(), ids.end(), next);
  return found == ids.end() ? target <= logprobs.back()
                            : logprobs[static_cast<std::size_t>(found - ids.begin())] == target;
}

std::optional<DecodedColumn> decoded_ids(const ResultsReader& file, const ColumnSpec& column) {
  const bool top = column.path == teacher_column::kTopIdPacked.path;
  if (!top && column.path != teacher_column::kTailIdPacked.path) return std::nullopt;
  const TeacherEncoding encoding = TeacherEncoding::of(file);
  const std::uint64_t ids_a_row = top ? encoding.top_k : encoding.draws;
  if (!encoding.is_packed() || ids_a_row == 0) return std::nullopt;
  return DecodedColumn{
      column.path.substr(0, column.path.rfind("_packed")), ids_a_row,
      [ids_a_row, bits = encoding.bits](std::span<const std::byte> rows, std::vector<std::int32_t>& ids) {
        unpack_rows(rows, ids_a_row, bits, ids);
      }};
}

TeacherRows::TeacherRows(const ResultsReader& file) : file_(file), encoding_(TeacherEncoding::of(file)) {
  file.column(teacher_column::kLogsumexp);
}

void TeacherRows::read_packed(const Column<std::uint8_t>& column, std::uint64_t ids_a_row, std::uint64_t first_row,
                              std::uint64_t count, std::vector<std::int32_t>& ids) const {
  std::vector<std::byte> rows(count * packed_bytes(ids_a_row, encoding_.bits));
  file_.read(column.path, first_row, rows);
  unpack_rows(rows, ids_a_row, encoding_.bits, ids);
}

void TeacherRows::read_top(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
                           std::vector<float>& logprobs) const {
  const std::uint64_t k = encoding_.top_k;
  const ColumnType type = file_.find(teacher_column::kTopLogprob)->type;
  std::vector<std::byte> bytes(count * k * size_of(type));
  file_.read(teacher_column::kTopLogprob.path, first_row, bytes);
  to_floats(type, bytes, logprobs);
  if (!encoding_.is_packed()) {
    ids = file_.rows(teacher_column::kTopId, first_row, count, k);
    return;
  }
  read_packed(teacher_column::kTopIdPacked, k, first_row, count, ids);
  // A row that was not scored has no ids.
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::isnan(logprobs[i])) ids[i] = -1;
  }
}

void TeacherRows::read_draws(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids) const {
  read_packed(teacher_column::kTailIdPacked, encoding_.draws, first_row, count, ids);
}

void TeacherRows::read(std::uint64_t first_row, std::uint64_t count, std::vector<std::int32_t>& ids,
                       std::vector<float>& logprobs) const {
  const std::uint64_t k = encoding_.top_k, draws = encoding_.draws, W = width();
  std::vector<std::int32_t> top, drawn;
  std::vector<float> top_logprobs, tail;
  read_top(first_row, count, top, top_logprobs);
  if (draws > 0) {
    read_draws(first_row, count, drawn);
    tail = file_.rows(teacher_column::kTailMass, first_row, count);
  }
  ids.assign(count * W, -1);
  logprobs.assign(count * W, -std::numeric_limits<float>::infinity());
  for (std::uint64_t r = 0; r < count; ++r) {
    std::uint64_t at = r * W;
    for (std::uint64_t i = r * k; i < (r + 1) * k; ++i) {
      if (top[i] < 0 || std::isnan(top_logprobs[i])) continue;
      ids[at] = top[i];
      logprobs[at++] = top_logprobs[i];
    }
    if (draws == 0 || !(tail[r] > 0)) continue;
    for (std::uint64_t i = r * draws, next; i < (r + 1) * draws; i = next) {
      for (next = i + 1; next < (r + 1) * draws && drawn[next] == drawn[i];) ++next;
      ids[at] = drawn[i];
      logprobs[at++] = static_cast<float>(
          std::log(static_cast<double>(tail[r]) * static_cast<double>(next - i) / static_cast<double>(draws)));
    }
  }
}

}  // namespace magister
