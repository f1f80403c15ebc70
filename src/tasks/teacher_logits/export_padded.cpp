// The layout that older scripts read, every sample padded to the longest. Padding is not written. Float16 is converted
// here, to nearest even as NumPy does, because HDF5 1.10 rounds ties up.
#include "tasks/teacher_logits/export_padded.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "magister/core/error.h"
#include "magister/io/hdf5_arrays.h"
#include "magister/io/whole_file.h"
#include "tasks/teacher_logits/columns.h"
#include "tasks/teacher_logits/encoding.h"

namespace magister {
namespace {

constexpr std::uint64_t kPieceValues = 1 << 20;

// "" if there is no such file.
std::string read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void require_padded_columns(const ResultsReader& file) {
  for (const Column<float>& column : {teacher_column::kTopLogprob, teacher_column::kLogsumexp}) {
    MAGISTER_CHECK(file.find(column) != nullptr, ExitCode::kData,
                   "{}: has no {} (this layout is that of a teacher's results); export it --to jsonl",
                   printable(file.path()), column.path);
  }
}

class PaddedExport {
 public:
  PaddedExport(const ResultsReader& file, const std::string& out)
      : file_(file), rows_((require_padded_columns(file), file)), out_(out), top_k_(rows_.encoding().top_k) {
    MAGISTER_CHECK(rows_.encoding().kind != TeacherEncoding::Kind::kSampled, ExitCode::kData,
                   "{}: its rows are samples (this layout has no place for their weights); export it --to jsonl",
                   printable(file.path()));
    std::uint64_t begin = 0;
    file.for_each_piece("/samples/offset", {0, file.num_samples() + 1},
                        [&](std::uint64_t first, std::span<const std::byte> bytes) {
                          for (std::size_t at = 0; at < bytes.size(); at += sizeof begin, ++first) {
                            std::uint64_t end;
                            std::memcpy(&end, bytes.data() + at, sizeof end);
                            if (first > 0) add_length(first - 1, begin, end);
                            begin = end;
                          }
                        });
  }

  void write() {
    const std::array<std::uint64_t, 3> shape{file_.num_samples(), longest_, top_k_};
    const std::string text = description(shape).dump(2) + "\n";
    if (read_small_file(out_ + ".json") != text) Hdf5Arrays::refuse_existing(out_ + ".json");
    Hdf5Arrays target(out_);
    const std::size_t values = target.add("logits_values", ColumnType::kF16, shape);
    const std::size_t indices = target.add("logits_indices", ColumnType::kI32, shape);
    const std::size_t lengths = target.add("seq_lengths", ColumnType::kI32, std::span(shape).first(1));
    const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, kPieceValues / top_k_);
    for (std::uint64_t sample = 0; sample < shape[0]; ++sample) {
      const auto offset = file_.rows<std::uint64_t>("/samples/offset", sample, 2);
      const std::uint64_t length = offset[1] - offset[0];
      for (std::uint64_t row = 0; row < length; row += rows_a_piece) {
        const std::uint64_t rows = std::min(rows_a_piece, length - row);
        const std::array<std::uint64_t, 3> place{sample, row, 0}, count{1, rows, top_k_};
        std::vector<std::int32_t> top_id;
        std::vector<float> top_logprob;
        rows_.read_top(offset[0] + row, rows, top_id, top_logprob);
        const std::vector<std::uint16_t> logits = logits_of(offset[0] + row, rows, top_logprob);
        target.write(values, place, count, std::as_bytes(std::span(logits)));
        target.write(indices, place, count, std::as_bytes(std::span(top_id)));
      }
      const std::array stored{static_cast<std::int32_t>(length)};
      const std::array<std::uint64_t, 1> place{sample}, one{1};
      target.write(lengths, place, one, std::as_bytes(std::span(stored)));
    }
    // The numbers are renamed last: an export that was killed leaves only a description, and the same command accepts
    // it.
    write_whole_file(out_ + ".json", text);
    target.keep();
  }

 private:
  void add_length(std::uint64_t sample, std::uint64_t begin, std::uint64_t end) {
    MAGISTER_CHECK(begin <= end && end - begin <= INT32_MAX, ExitCode::kData,
                   "{}: sample {} has rows {} to {} (the file is damaged); run check", printable(file_.path()), sample,
                   begin, end);
    longest_ = std::max(longest_, end - begin);
  }

  std::vector<std::uint16_t> logits_of(std::uint64_t first_row, std::uint64_t rows,
                                       const std::vector<float>& top_logprob) const {
    const auto logsumexp = file_.rows(teacher_column::kLogsumexp, first_row, rows);
    std::vector<std::uint16_t> halves(top_logprob.size());
    for (std::size_t i = 0; i < halves.size(); ++i)
      halves[i] = _cvtss_sh(top_logprob[i] + logsumexp[i / top_k_], _MM_FROUND_TO_NEAREST_INT);
    return halves;
  }

  nlohmann::ordered_json description(const std::array<std::uint64_t, 3>& shape) const {
    nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
    for (const auto& [name, value] : file_.attributes()) {
      std::visit([&, &key = name](const auto& held) { attributes[key] = held; }, value);
    }
    return {{"num_samples", shape[0]},
            {"max_length", shape[1]},
            {"top_k", shape[2]},
            {"logits_values",
             "raw logits (log-probability + logsumexp) as float16, best first; row i is the distribution of "
             "token i + 1; 0 behind seq_lengths"},
            {"logits_indices",
             "token ids as int32, beside logits_values; -1, beside NaN, in rows that the teacher did not score"},
            {"seq_lengths", "rows of each sample that hold something, int32"},
            {"results", attributes}};
  }

  const ResultsReader& file_;
  const TeacherRows rows_;
  const std::string out_;
  const std::uint64_t top_k_;
  std::uint64_t longest_ = 0;
};

}  // namespace

void export_padded(const ResultsReader& file, const ExportedColumns&, const std::string& out) {
  PaddedExport(file, out).write();
}

}  // namespace magister
