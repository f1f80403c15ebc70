// `check`: what a reader would have to trust otherwise, unit by unit in bounded memory.
#include <cmath>

#include "io/results_reader.h"
#include "magister/core/error.h"
#include "magister/io/results_tools.h"

namespace magister {
namespace {

constexpr std::size_t kMaxFaults = 20;

class Faults {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kMaxFaults) faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() {
    if (count_ > kMaxFaults) faults_.push_back(fmt::format("and {} more", count_ - kMaxFaults));
    return std::move(faults_);
  }

 private:
  std::vector<std::string> faults_;
  std::size_t count_ = 0;
};

void check_structure(const ResultsReader& file, Faults& faults) {
  const std::uint64_t n = file.number("num_samples"), T = file.number("num_tokens"), u = file.num_units();
  const auto rows = [&](const char* column, std::uint64_t want) {
    const std::uint64_t have = file.at(column).spec.num_rows;
    if (have != want) faults.add("{} has {} rows, {} are expected", column, have, want);
  };
  rows("/samples/key", n);
  rows("/samples/source_index", n);
  rows("/samples/offset", n + 1);
  for (const PlacedColumn& column : file.columns()) {
    if (column.spec.extent == ColumnSpec::Extent::kRows) rows(column.spec.path.c_str(), T);
  }
  rows("/commit/unit_begin", u + 1);
  rows("/commit/crc32c", u);
  if (file.text("format").rfind("magister.", 0) != 0) faults.add("format is \"{}\"", printable(file.text("format")));
  std::uint64_t before = 0;
  constexpr std::uint64_t kPiece = 1 << 16;
  for (std::uint64_t begin = 0; begin <= n; begin += kPiece) {
    const auto offsets = file.read<std::uint64_t>("/samples/offset", begin, std::min(begin + kPiece, n + 1));
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < before || offsets[i] > T) faults.add("offset of sample {} is {}, after {}, of {} rows", begin + i, offsets[i], before, T);
      before = offsets[i];
    }
  }
  if (before != T) faults.add("the offsets end at {}, the rows at {}", before, T);
  const auto borders = file.read<std::uint64_t>("/commit/unit_begin", 0, u + 1);
  if (borders.front() != 0 || borders.back() != n) faults.add("the units cover samples {} to {}, not 0 to {}", borders.front(), borders.back(), n);
}

struct Rows {
  std::uint64_t begin = 0, k = 0, vocabulary = 0;
  std::vector<std::int32_t> id, top_id;
  std::vector<float> top_logprob, target, tail, entropy, logsumexp;
  bool half = false;
};

void check_row(const Rows& rows, std::uint64_t t, bool last, Faults& faults) {
  const std::uint64_t row = rows.begin + t;
  const std::int32_t* id = rows.top_id.data() + t * rows.k;
  const float* logprob = rows.top_logprob.data() + t * rows.k;
  for (std::uint64_t i = 0; i < rows.k; ++i) {
    if (id[i] < 0) faults.add("row {}: entry {} has id {}", row, i, id[i]);
    if (!(logprob[i] <= 0)) faults.add("row {}: entry {} has log-probability {}", row, i, logprob[i]);
    if (i > 0 && !(logprob[i - 1] >= logprob[i])) faults.add("row {}: entries {} and {} are out of order", row, i - 1, i);
    if (i > 0 && !rows.half && logprob[i - 1] == logprob[i] && id[i - 1] >= id[i]) faults.add("row {}: tie of entries {} and {} is out of order", row, i - 1, i);
  }
  if (!std::isfinite(rows.logsumexp[t]) || !(rows.entropy[t] >= 0) || !(rows.tail[t] >= 0 && rows.tail[t] <= 1)) {
    faults.add("row {}: logsumexp {}, entropy {}, tail_mass {}", row, rows.logsumexp[t], rows.entropy[t], rows.tail[t]);
  }
  if (std::isnan(rows.target[t]) != last) faults.add("row {}: target_logprob is {}, {} its sample's last", row, rows.target[t], last ? "and it is" : "but it is not");
  if (last) return;
  for (std::uint64_t i = 0; i < rows.k; ++i) {
    if (id[i] != rows.id[t + 1]) continue;
    const float tolerance = rows.half ? 1e-3f * std::max(1.0f, -rows.target[t]) : 0.0f;
    if (std::abs(logprob[i] - rows.target[t]) > tolerance) {
      faults.add("row {}: its next token {} has log-probability {} as kept entry and {} as target (shifted rows?)", row, id[i], logprob[i], rows.target[t]);
    }
  }
}

void check_teacher_rows(const ResultsReader& file, const Unit& unit, Faults& faults) {
  const std::uint64_t begin = unit.rows.begin, end = unit.rows.end;
  Rows rows;
  rows.begin = begin;
  rows.k = file.at("/teacher/top_id").spec.width;
  rows.half = file.at("/teacher/top_logprob").spec.type == ColumnType::kF16;
  rows.id = file.read<std::int32_t>("/tokens/id", begin, end);
  rows.top_id = file.read<std::int32_t>("/teacher/top_id", begin, end);
  rows.top_logprob = file.read_logprobs(begin, end);
  rows.target = file.read<float>("/teacher/target_logprob", begin, end);
  rows.tail = file.read<float>("/teacher/tail_mass", begin, end);
  rows.entropy = file.read<float>("/teacher/entropy", begin, end);
  rows.logsumexp = file.read<float>("/teacher/logsumexp", begin, end);
  const auto offsets = file.read<std::uint64_t>("/samples/offset", unit.samples.begin, unit.samples.end + 1);
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (std::uint64_t row = offsets[s]; row < offsets[s + 1]; ++row) {
      check_row(rows, row - begin, row + 1 == offsets[s + 1], faults);
    }
  }
}

}  // namespace

std::vector<std::string> check_results(const std::string& path) {
  const ResultsReader file(path);
  Faults faults;
  check_structure(file, faults);
  std::uint64_t num_done = 0;
  const bool teacher = file.find("/teacher/top_id") != nullptr;
  for (std::uint64_t u = 0; u < file.num_units(); ++u) {
    const auto done = file.read<std::uint8_t>("/commit/done", u, u + 1)[0];
    if (done > 1) faults.add("unit {} has the done flag {}", u, done);
    if (done != 1) continue;
    ++num_done;
    try {
      const Unit unit = file.unit(u);
      const auto stored = file.read<std::uint32_t>("/commit/crc32c", u, u + 1)[0];
      const std::uint32_t found = file.checksum(unit);
      if (stored != found) faults.add("unit {} (samples {} to {}): its bytes have checksum {:08x}, {:08x} is stored", u, unit.samples.begin, unit.samples.end, found, stored);
      if (teacher) check_teacher_rows(file, unit, faults);
    } catch (const Error& error) {
      faults.add("{}", error.what());
    }
  }
  if (file.complete() && num_done != file.num_units()) faults.add("complete is 1, but {} of {} units are done", num_done, file.num_units());
  return faults.take();
}

}  // namespace magister
