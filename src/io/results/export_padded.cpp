// `export --to padded-hdf5`: the layout that older scripts read, every sample padded to the longest. Padding is not
// written: it stays zero and takes no space if the file system supports holes. Float16 is converted here, to nearest
// even as NumPy does, because HDF5 1.10 rounds ties up.
#include <immintrin.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "io/hdf5_handle.h"
#include "io/hdf5_types.h"
#include "io/posix_file.h"
#include "io/results/columns.h"
#include "magister/core/error.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/teacher_encoding.h"
#include "magister/io/results/tools.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

constexpr std::uint64_t kPieceValues = 1 << 20;

void refuse_existing(const std::string& path) {
  struct stat status{};
  MAGISTER_CHECK(::lstat(path.c_str(), &status) != 0, ExitCode::kInputOutput,
                 "{}: exists (nothing is overwritten); give another name or move it away", printable(path));
}

// "" if there is no such file.
std::string read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// <out>.creating, which the destructor removes unless keep() has renamed it.
class NewFile {
 public:
  explicit NewFile(const std::string& out) : out_(out), creating_(out + ".creating") {
    refuse_existing(out_);
    struct stat status{};
    if (::lstat(creating_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) ::unlink(creating_.c_str());
    // HDF5 would follow a link and give everybody read permission.
    const PosixFile made(creating_, PosixFile::Access::kCreate);
    exists_ = true;
    silence_hdf5();
    const H5Properties access = file_access();
    file_ =
        H5File(MAGISTER_CHECK_HDF5(H5Fcreate(creating_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), creating_));
  }
  ~NewFile() {
    if (exists_) ::unlink(creating_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& path() const { return creating_; }

  H5Dataset dataset(const char* name, ColumnType type, std::span<const hsize_t> shape) {
    const H5Space space(
        MAGISTER_CHECK_HDF5(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), creating_));
    const H5Type stored = hdf5_type(type, 0);
    const H5Properties properties(MAGISTER_CHECK_HDF5(H5Pcreate(H5P_DATASET_CREATE), creating_));
    MAGISTER_CHECK_HDF5(H5Pset_obj_track_times(properties.get(), false), creating_);
    return H5Dataset(MAGISTER_CHECK_HDF5(
        H5Dcreate2(file_.get(), name, stored.get(), space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
        creating_));
  }

  void keep() {
    MAGISTER_CHECK(file_.close(), ExitCode::kInputOutput, "{}: closing failed: {} (the export is cut off); make room",
                   printable(creating_), hdf5_reason());
    PosixFile(creating_).sync();
    refuse_existing(out_);
    rename_durably(creating_, out_);
    exists_ = false;
  }

 private:
  const std::string out_, creating_;
  bool exists_ = false;
  H5File file_;
};

class PaddedExport {
 public:
  PaddedExport(const ResultsReader& file, const std::string& out) : file_(file), columns_(file.columns()), out_(out) {
    for (const char* const column : {"/teacher/top_logprob", "/teacher/logsumexp"}) {
      MAGISTER_CHECK(file.find(column) != nullptr, ExitCode::kData,
                     "{}: has no {} (this layout is that of a teacher's results); export it --to jsonl",
                     printable(file.path()), column);
    }
    rows_.emplace(file);
    MAGISTER_CHECK(rows_->encoding().kind != TeacherEncoding::Kind::kSampled, ExitCode::kData,
                   "{}: its rows are samples (this layout has no place for their weights); export it --to jsonl",
                   printable(file.path()));
    top_k_ = rows_->encoding().top_k;
    OffsetCursor offset(columns_, "/samples/offset");
    for (std::uint64_t i = 0; i < columns_.num_samples(); ++i) {
      const std::uint64_t begin = offset.at(i), end = offset.at(i + 1);
      MAGISTER_CHECK(begin <= end && end - begin <= INT32_MAX, ExitCode::kData,
                     "{}: sample {} has rows {} to {} (the file is damaged); run check", printable(file.path()), i,
                     begin, end);
      longest_ = std::max(longest_, end - begin);
    }
  }

  void write() {
    const std::array<hsize_t, 3> shape{columns_.num_samples(), longest_, top_k_};
    const std::string text = description(shape).dump(2) + "\n";
    if (read_small_file(out_ + ".json") != text) refuse_existing(out_ + ".json");
    NewFile target(out_);
    const H5Dataset values = target.dataset("logits_values", ColumnType::kF16, shape);
    const H5Dataset indices = target.dataset("logits_indices", ColumnType::kI32, shape);
    const H5Dataset lengths = target.dataset("seq_lengths", ColumnType::kI32, std::span(shape).first(1));
    const H5Type half = hdf5_type(ColumnType::kF16, 0);
    OffsetCursor offset(columns_, "/samples/offset");
    const std::uint64_t rows_a_piece = std::max<std::uint64_t>(1, kPieceValues / top_k_);
    for (std::uint64_t sample = 0; sample < shape[0]; ++sample) {
      const std::uint64_t first = offset.at(sample), length = offset.at(sample + 1) - first;
      for (std::uint64_t row = 0; row < length; row += rows_a_piece) {
        const std::uint64_t rows = std::min(rows_a_piece, length - row);
        const std::array<hsize_t, 3> place{sample, row, 0}, count{1, rows, top_k_};
        const std::vector<std::uint16_t> logits = logits_of(first + row, rows);
        put(values, half.get(), logits.data(), place, count, target.path());
        std::vector<std::int32_t> top_id;
        std::vector<float> ignored;
        rows_->read_top(first + row, rows, top_id, ignored);
        put(indices, H5T_NATIVE_INT32, top_id.data(), place, count, target.path());
      }
      const auto stored = static_cast<std::int32_t>(length);
      const std::array<hsize_t, 1> place{sample}, one{1};
      put(lengths, H5T_NATIVE_INT32, &stored, place, one, target.path());
    }
    // The numbers are renamed last: an export that was killed leaves only a description, and the same command accepts
    // it.
    write_whole_file(out_ + ".json", text);
    target.keep();
  }

 private:
  std::vector<std::uint16_t> logits_of(std::uint64_t first_row, std::uint64_t rows) {
    const PlacedColumn& column = columns_.at("/teacher/top_logprob");
    std::vector<std::byte> bytes(rows * column.row_bytes());
    columns_.read(column, first_row, bytes);
    std::vector<float> logits;
    to_floats(column.spec.type, bytes, logits);
    std::vector<float> logsumexp(rows);
    columns_.read(columns_.at("/teacher/logsumexp"), first_row, std::as_writable_bytes(std::span(logsumexp)));
    std::vector<std::uint16_t> halves(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      halves[i] = _cvtss_sh(logits[i] + logsumexp[i / top_k_], _MM_FROUND_TO_NEAREST_INT);
    }
    return halves;
  }

  static void put(const H5Dataset& dataset, hid_t type, const void* values, std::span<const hsize_t> place,
                  std::span<const hsize_t> count, const std::string& path) {
    const H5Space space(MAGISTER_CHECK_HDF5(H5Dget_space(dataset.get()), path));
    const H5Space memory(
        MAGISTER_CHECK_HDF5(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), path));
    MAGISTER_CHECK_HDF5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, place.data(), nullptr, count.data(), nullptr),
                        path);
    MAGISTER_CHECK_HDF5(H5Dwrite(dataset.get(), type, memory.get(), space.get(), H5P_DEFAULT, values), path);
  }

  nlohmann::ordered_json description(const std::array<hsize_t, 3>& shape) const {
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
  const ResultsColumns& columns_;
  std::optional<TeacherRows> rows_;
  const std::string out_;
  std::uint64_t top_k_ = 1, longest_ = 0;
};

}  // namespace

void export_padded(const std::string& path, const std::string& out) {
  const ResultsReader file = open_complete_results(path);
  PaddedExport(file, out).write();
}

}  // namespace magister
