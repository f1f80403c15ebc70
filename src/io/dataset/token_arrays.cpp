// Token ids in an HDF5 file of another program as a data set: rows of an array [records, length], complete or cut to a
// length each, or one list of all ids with the first index of each record. A record is {NAME: [...]}, NAME being the
// array's name. Limits: one HDF5 call per record, some microseconds if chunks are not compressed. Links to other files
// are not followed.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/dataset/line_reader.h"
#include "io/dataset/record_format.h"
#include "io/hdf5_chunks.h"
#include "io/hdf5_types.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kMostIds = 1 << 24;     // per record; its JSON then has about as many bytes as a line may have
constexpr std::uint64_t kPlaces = 4096;         // lengths or offsets per read
constexpr std::uint64_t kMostKept = 256 << 20;  // bytes of chunks in memory, per array

H5File opened(const std::string& path) {
  silence_hdf5();
  const H5Properties access = read_access();
  H5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (file.get() >= 0) return file;
  const std::string newer = newer_format();
  MAGISTER_CHECK(newer.empty(), ExitCode::kData, "{}: cannot be opened {}", printable(path), newer);
  fail(ExitCode::kData, "{}: cannot be opened as HDF5: {} (it is damaged, cut short or no HDF5 file); use another file",
       printable(path), hdf5_reason());
}

// An array of integers with one or two dimensions.
class Array {
 public:
  Array(const H5File& file, const std::string& path, const std::string& name, const char* key)
      : path_(path), name_(printable(name)) {
    require_link(file, name, key);
    data_ = H5Dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
    const std::string newer = data_.get() >= 0 ? "" : newer_format();
    MAGISTER_CHECK(newer.empty(), ExitCode::kData, "{}: {} cannot be opened {}", printable(path), name_, newer);
    MAGISTER_CHECK(data_.get() >= 0, ExitCode::kData, "{}: {} is no array ({} names one of token ids); name another",
                   printable(path), name_, key);
    const H5Properties made(MAGISTER_READ_HDF5(H5Dget_create_plist(data_.get()), path));
    const H5Type type(MAGISTER_READ_HDF5(H5Dget_type(data_.get()), path));
    const H5Space space(MAGISTER_READ_HDF5(H5Dget_space(data_.get()), path));
    MAGISTER_CHECK(H5Pget_external_count(made.get()) == 0 && H5Pget_layout(made.get()) != H5D_VIRTUAL, ExitCode::kData,
                   "{}: the numbers of {} are in other files (only this one is read and hashed); copy them into it",
                   printable(path), name_);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    MAGISTER_CHECK(H5Tget_class(type.get()) == H5T_INTEGER && (rank == 1 || rank == 2), ExitCode::kData,
                   "{}: {} is no array of whole numbers with one or two dimensions ({} names one); name another",
                   printable(path), name_, key);
    extent_.resize(static_cast<std::size_t>(rank));
    MAGISTER_READ_HDF5(H5Sget_simple_extent_dims(space.get(), extent_.data(), nullptr), path);
    require_filters(made, path, name);
    require_written(made, space.get());
    keep_chunks(file, name, made, H5Tget_size(type.get()));
  }

  const std::vector<hsize_t>& extent() const { return extent_; }
  const std::string& name() const { return name_; }
  std::string shape() const { return fmt::format("{} [{}]", name_, fmt::join(extent_, ", ")); }

  // `count` numbers from `begin` on; in an array with rows, of this row.
  std::vector<std::int64_t> read(std::uint64_t begin, std::uint64_t count, std::uint64_t row = 0) const {
    std::vector<std::int64_t> out(count);
    if (count == 0) return out;
    const bool rows = extent_.size() == 2;
    const hsize_t first[2] = {rows ? row : begin, begin}, size[2] = {rows ? 1 : count, count};
    const H5Space all(MAGISTER_READ_HDF5(H5Dget_space(data_.get()), path_));
    MAGISTER_READ_HDF5(H5Sselect_hyperslab(all.get(), H5S_SELECT_SET, first, nullptr, size, nullptr), path_);
    const hsize_t flat = count;
    const H5Space memory(MAGISTER_READ_HDF5(H5Screate_simple(1, &flat, nullptr), path_));
    MAGISTER_READ_HDF5(H5Dread(data_.get(), H5T_NATIVE_INT64, memory.get(), all.get(), H5P_DEFAULT, out.data()), path_);
    return out;
  }

 private:
  // Missing parts of a file whose writer was killed would be read as zeros, which are valid ids. (HDF5's own status of
  // a data set compares compressed bytes with plain ones, so it cannot be used.)
  void require_written(const H5Properties& made, const hid_t space) const {
    if (std::any_of(extent_.begin(), extent_.end(), [](hsize_t length) { return length == 0; })) return;
    double pieces = 1;
    hsize_t found = H5Dget_storage_size(data_.get()) > 0 ? 1 : 0;
    if (const std::vector<hsize_t> chunk = chunk_of(made); !chunk.empty()) {
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        const hsize_t along = (extent_[i] - 1) / chunk[i] + 1;
        pieces *= static_cast<double>(along);
      }
      MAGISTER_READ_HDF5(H5Dget_num_chunks(data_.get(), space, &found), path_);
    }
    MAGISTER_CHECK(static_cast<double>(found) >= pieces, ExitCode::kData,
                   "{}: {} is not written to its end (what is missing would be read as zeros); write the file again",
                   printable(path_), shape());
  }

  std::vector<hsize_t> chunk_of(const H5Properties& made) const {
    return chunk_shape(made, static_cast<int>(extent_.size()), path_);
  }

  // HDF5 caches 1 MB of chunks; a row of larger chunks would be decompressed again for each record in them. So one row
  // of chunks is cached, up to kMostKept.
  void keep_chunks(const H5File& file, const std::string& name, const H5Properties& made, std::size_t number_bytes) {
    const std::vector<hsize_t> chunk = chunk_of(made);
    if (chunk.empty()) return;
    const std::uint64_t bytes = chunk_bytes(chunk, number_bytes);
    std::uint64_t across = 1;
    MAGISTER_CHECK(bytes <= kMostKept || H5Pget_nfilters(made.get()) == 0, ExitCode::kData,
                   "{}: {} is packed in chunks of over {} MiB (each record would unpack one anew); store it in smaller "
                   "chunks",
                   printable(path_), shape(), kMostKept >> 20);
    if (extent_.size() == 2) across = (extent_[1] + chunk[1] - 1) / chunk[1];
    const std::uint64_t kept = bytes > kMostKept ? kMostKept : std::min(kMostKept, bytes * std::min(across, kMostKept));
    const H5Properties access = keeping_chunks(kept, path_);
    data_ = H5Dataset(H5Dopen2(file.get(), name.c_str(), access.get()));
    MAGISTER_CHECK(data_.get() >= 0, ExitCode::kData, "{}: {} cannot be opened again: {} (it was there); try again",
                   printable(path_), name_, hdf5_reason());
  }

  // Requires that every part of the name is a hard link: others may lead to another file, which is not hashed.
  void require_link(const H5File& file, const std::string& name, const char* key) const {
    for (std::size_t at = name.find_first_not_of('/'); at < name.size(); ++at) {
      at = std::min(name.find('/', at), name.size());
      const std::string part = name.substr(0, at);
      H5L_info_t link{};
      const bool there = H5Lexists(file.get(), part.c_str(), H5P_DEFAULT) > 0 &&
                         H5Lget_info(file.get(), part.c_str(), &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
      MAGISTER_CHECK(there, ExitCode::kData,
                     "{}: there is no {} in this file itself ({} names an array of it); name another", printable(path_),
                     printable(part), key);
    }
  }

  std::string path_, name_;
  H5Dataset data_;
  std::vector<hsize_t> extent_;
};

class TokenArrays final : public RecordFormat {
 public:
  TokenArrays(const DataFile& file, const DatasetConfig& config)
      : path_(printable(file.path, 4096)),
        field_((check_asked(file, config), config.tokens_field)),
        file_(opened(file.path)),
        ids_(file_, file.path, config.tokens_field, "dataset.tokens") {
    if (!config.lengths_field.empty()) lengths_.emplace(file_, file.path, config.lengths_field, "dataset.lengths");
    if (!config.offsets_field.empty()) offsets_.emplace(file_, file.path, config.offsets_field, "dataset.offsets");
    const bool rows = ids_.extent().size() == 2;
    MAGISTER_CHECK(rows != offsets_.has_value(), ExitCode::kConfig,
                   "{}: {} {} (a list of all ids needs dataset.offsets, where each record begins and the last one "
                   "ends; an array of rows has none); {}",
                   path_, ids_.shape(), rows ? "is given with dataset.offsets" : "is given without dataset.offsets",
                   rows ? "remove it, or name dataset.lengths" : "name it");
    for (const std::optional<Array>* places : {&lengths_, &offsets_}) {
      MAGISTER_CHECK(!*places || (*places)->extent().size() == 1, ExitCode::kData,
                     "{}: {} is no plain list (it has a number for each record); name another", path_,
                     *places ? (*places)->shape() : "");
    }
    MAGISTER_CHECK(!lengths_ || lengths_->extent()[0] == ids_.extent()[0], ExitCode::kData,
                   "{}: {} does not suit {} (a length is needed for each of its rows); name another", path_,
                   lengths_ ? lengths_->shape() : "", ids_.shape());
    MAGISTER_CHECK(!offsets_ || offsets_->extent()[0] >= 1, ExitCode::kData,
                   "{}: {} is empty (the end of the last record is missing); name another", path_,
                   offsets_ ? offsets_->shape() : "");
    count_ = offsets_ ? offsets_->extent()[0] - 1 : ids_.extent()[0];
    if (offsets_) require_all_ids();
  }

  const char* unit() const override { return "row"; }

  // Needs no index: any record is found directly.
  std::vector<IndexPoint> index(const Poll&) override {
    std::vector<IndexPoint> points(1);
    if (count_ > 0) points.push_back({count_, 0, 0});
    return points;
  }

  void read(std::uint64_t begin, std::uint64_t end, const Poll& poll, const Visit& visit) override {
    for (std::uint64_t first = begin; first < end; first += kPlaces) {
      const std::uint64_t stop = std::min(end, first + kPlaces);
      std::vector<std::int64_t> places;
      if (lengths_) places = lengths_->read(first, stop - first);
      if (offsets_) places = offsets_->read(first, stop - first + 1);
      for (std::uint64_t i = first; i < stop; ++i) {
        if (poll()) return;
        const std::string where = fmt::format("{}: row {}", path_, i);
        const IndexRange ids = ids_of(places, i - first, where);
        const nlohmann::json record = {{field_, ids_.read(ids.begin, ids.size(), i)}};
        visit(i, record.dump(), where);
      }
    }
  }

 private:
  // Requires offsets from 0 to the number of ids: lists of the beginnings only, without the last end, are also common.
  void require_all_ids() const {
    const std::int64_t first = offsets_->read(0, 1)[0], last = offsets_->read(count_, 1)[0];
    MAGISTER_CHECK(first == 0 && last >= 0 && static_cast<std::uint64_t>(last) >= ids_.extent()[0], ExitCode::kData,
                   "{}: {} goes from {} to {} and {} has {} ids (the others would be left out silently); let it begin "
                   "with 0 and end with their number",
                   path_, offsets_->name(), first, last, ids_.name(), ids_.extent()[0]);
  }

  static void check_asked(const DataFile& file, const DatasetConfig& config) {
    MAGISTER_CHECK(!config.tokens_field.empty(), ExitCode::kConfig,
                   "{}: an HDF5 file of another program is read for token ids alone, and dataset.tokens is not given "
                   "(it names their array); name it, or convert the file",
                   printable(file.path));
  }

  // The array's numbers that belong to a record. places: lengths or offsets from the batch's first record on; i: the
  // record's number in the batch.
  IndexRange ids_of(const std::vector<std::int64_t>& places, std::uint64_t i, const std::string& where) const {
    const std::uint64_t limit = ids_.extent().back();
    std::int64_t begin = 0, end = static_cast<std::int64_t>(limit);
    if (lengths_) end = places[i];
    if (offsets_) {
      begin = places[i];
      end = places[i + 1];
    }
    MAGISTER_CHECK(begin >= 0 && begin <= end && static_cast<std::uint64_t>(end) <= limit, ExitCode::kData,
                   "{}: its ids go from {} to {} by {} (there are {} in {}, and they must not decrease); fix the file",
                   where, begin, end,
                   offsets_   ? offsets_->name()
                   : lengths_ ? lengths_->name()
                              : ids_.name(),
                   limit, ids_.name());
    MAGISTER_CHECK(static_cast<std::uint64_t>(end - begin) <= kMostIds, ExitCode::kData,
                   "{}: it has {} ids (at most {} are read as one record); divide it", where, end - begin, kMostIds);
    return {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
  }

  const std::string path_, field_;
  H5File file_;
  Array ids_;
  std::optional<Array> lengths_, offsets_;
  std::uint64_t count_ = 0;
};

// True if the file has what every results file has.
bool is_results(const std::string& path) {
  const H5File file = opened(path);
  return H5Aexists(file.get(), "format") > 0 && H5Lexists(file.get(), "samples", H5P_DEFAULT) > 0 &&
         H5Lexists(file.get(), "samples/offset", H5P_DEFAULT) > 0;
}

}  // namespace

std::unique_ptr<RecordFormat> open_hdf5(const DataFile& file, const DatasetConfig& config) {
  const FileVersion version = (LineReader(file.path).require(file.version), file.version);
  const bool places = !config.lengths_field.empty() || !config.offsets_field.empty();
  if (!places && is_results(file.path)) return open_results(file, config);
  auto arrays = std::make_unique<TokenArrays>(file, config);
  LineReader(file.path).require(version);
  return arrays;
}

}  // namespace magister
