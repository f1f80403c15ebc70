// Reads event by event, so that a header of 100 MB of brackets or numbers costs no memory. Unknown fields are refused.
// Source: huggingface/safetensors, format description in its README.
#include "io/checkpoint/safetensors_header.h"

#include <array>
#include <charconv>

#include "io/checkpoint/mapped_tensors.h"
#include "io/strict_json.h"
#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kSafetensorsMaxDimensions = 8;
constexpr std::size_t kMaxIndexEntries = 1 << 20;

struct DtypeName {
  std::string_view name;
  StorageType type;
};
constexpr std::array kDtypes = {DtypeName{"F64", StorageType::kF64},        DtypeName{"F32", StorageType::kF32},
                                DtypeName{"F16", StorageType::kF16},        DtypeName{"BF16", StorageType::kBF16},
                                DtypeName{"I64", StorageType::kI64},        DtypeName{"I32", StorageType::kI32},
                                DtypeName{"I16", StorageType::kI16},        DtypeName{"I8", StorageType::kI8},
                                DtypeName{"U8", StorageType::kU8},          DtypeName{"BOOL", StorageType::kBool},
                                DtypeName{"F8_E4M3", StorageType::kF8_E4M3}};

class HeaderReader final : public StrictJson {
 public:
  explicit HeaderReader(const std::string& path) : StrictJson(printable(path), 3) {}
  std::vector<SafetensorsEntry> entries;

 private:
  // True inside a tensor at depth 2, false inside the free strings of __metadata__.
  bool in_tensor() const { return depth() >= 2 && !in_metadata_; }

  void on_value(Kind kind, std::string& text) override {
    if (depth() == 0) return expect(kind == Kind::kObject, "the header", kind, "an object of tensors");
    if (depth() == 1) return begin_entry(kind);
    if (in_metadata_) return expect(kind == Kind::kText, "__metadata__", kind, "texts");
    if (depth() == 2) return field(kind, text);
    number(kind, text);
  }

  void begin_entry(Kind kind) {
    in_metadata_ = key() == "__metadata__";
    expect(kind == Kind::kObject, "tensor " + printable(key()), kind, "an object with dtype, shape and data_offsets");
    if (in_metadata_) return;
    MAGISTER_CHECK(entries.size() < kMaxTensors, ExitCode::kData,
                   "{}: holds more than {} tensors (no model has as many in one "
                   "file); fetch the file again",
                   where(), kMaxTensors);
    entries.emplace_back().info.name = key();
    has_dtype_ = has_shape_ = false;
    num_offsets_ = 0;
  }

  void field(Kind kind, const std::string& text) {
    TensorInfo& info = entries.back().info;
    if (key() == "dtype") {
      expect(kind == Kind::kText, "dtype of tensor " + printable(info.name), kind, "a text");
      info.type = dtype(text, info.name);
      has_dtype_ = true;
    } else if (key() == "shape" || key() == "data_offsets") {
      expect(kind == Kind::kArray, key() + " of tensor " + printable(info.name), kind, "a list of whole numbers");
      has_shape_ = has_shape_ || key() == "shape";
    } else {
      fail(ExitCode::kData,
           "{}: tensor {} has a field \"{}\" (dtype, shape and data_offsets are known); fetch the file again", where(),
           printable(info.name), printable(key(), 80));
    }
  }

  // Reads an element of shape or data_offsets. key() of the list's own level is empty, so in_shape_ says which list it
  // is.
  void number(Kind kind, const std::string& text) {
    SafetensorsEntry& entry = entries.back();
    std::uint64_t value = 0;
    const bool whole = kind == Kind::kWhole && !text.starts_with('-') &&
                       std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
    MAGISTER_CHECK(
        whole && value <= (1ull << 62), ExitCode::kData,
        "{}: shape or data_offsets of tensor {} holds {} (whole numbers from 0 to 2^62 are expected); fetch the "
        "file again",
        where(), printable(entry.info.name), text.empty() ? name_of(kind) : printable(text, 40));
    if (in_shape_) {
      MAGISTER_CHECK(entry.info.shape.size() < kSafetensorsMaxDimensions, ExitCode::kData,
                     "{}: tensor {} has more than {} dimensions (no model's has); fetch the file again", where(),
                     printable(entry.info.name), kSafetensorsMaxDimensions);
      entry.info.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      MAGISTER_CHECK(num_offsets_ < 2, ExitCode::kData,
                     "{}: data_offsets of tensor {} has more than 2 numbers (begin and end "
                     "are expected); fetch the file again",
                     where(), printable(entry.info.name));
      (num_offsets_++ == 0 ? entry.begin : entry.end) = value;
    }
  }

  void on_key(const std::string& name) override {
    if (depth() == 2) in_shape_ = name == "shape";
  }

  void on_end() override {
    if (depth() != 1) return;
    if (!in_metadata_) {
      MAGISTER_CHECK(
          has_dtype_ && has_shape_ && num_offsets_ == 2, ExitCode::kData,
          "{}: tensor {} lacks its dtype, shape or two data_offsets (it cannot be read); fetch the file again", where(),
          printable(entries.back().info.name));
    }
    in_metadata_ = false;
  }

  StorageType dtype(const std::string& text, const std::string& name) const {
    for (const DtypeName& known : kDtypes) {
      if (known.name == text) return known.type;
    }
    fail(ExitCode::kData,
         "{}: tensor {} has dtype {} (read here: F64, F32, F16, BF16, I8 to I64, U8, BOOL); convert the model "
         "to one of these",
         where(), printable(name), printable(text, 40));
  }

  void expect(bool good, const std::string& what, Kind kind, const char* wanted) const {
    MAGISTER_CHECK(good, ExitCode::kData, "{}: {} is {} ({} must be there); fetch the file again", where(), what,
                   name_of(kind), wanted);
  }

  bool in_metadata_ = false, in_shape_ = false, has_dtype_ = false, has_shape_ = false;
  int num_offsets_ = 0;
};

class IndexReader final : public StrictJson {
 public:
  explicit IndexReader(const std::string& path) : StrictJson(printable(path), 16) {}
  std::map<std::string, std::string> shards;
  bool found = false;

 private:
  void on_value(Kind kind, std::string& text) override {
    MAGISTER_CHECK(depth() > 0 || kind == Kind::kObject, ExitCode::kData,
                   "{}: is {} (an object with \"weight_map\" must be there); fetch the file again", where(),
                   name_of(kind));
    if (depth() == 1) {
      in_map_ = key() == "weight_map";
      MAGISTER_CHECK(
          !in_map_ || kind == Kind::kObject, ExitCode::kData,
          "{}: \"weight_map\" is {} (an object of tensor and file names must be there); fetch the file again", where(),
          name_of(kind));
      found = found || in_map_;
    }
    if (depth() != 2 || !in_map_) return;
    MAGISTER_CHECK(kind == Kind::kText, ExitCode::kData,
                   "{}: the shard of tensor {} is {} (a file name must be there); fetch the file again", where(),
                   printable(key()), name_of(kind));
    const bool plain = !text.empty() && text.size() <= 255 && text != "." && text != ".." &&
                       text.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    MAGISTER_CHECK(plain, ExitCode::kData,
                   "{}: names the shard \"{}\" (shards must be in the index's folder); fetch the file again", where(),
                   printable(text));
    MAGISTER_CHECK(
        shards.size() < kMaxIndexEntries && key().size() <= kMaxTensorNameBytes, ExitCode::kData,
        "{}: names more than {} tensors or one with more than {} bytes (no model has such); fetch the file again",
        where(), kMaxIndexEntries, kMaxTensorNameBytes);
    shards.emplace(key(), std::move(text));
  }

  bool in_map_ = false;
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json, const std::string& path) {
  HeaderReader reader(path);
  reader.read(json);
  return std::move(reader.entries);
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& path) {
  IndexReader reader(path);
  reader.read(json);
  MAGISTER_CHECK(reader.found && !reader.shards.empty(), ExitCode::kData,
                 "{}: has no \"weight_map\" or an empty one (the shards are not named); fetch the file again",
                 printable(path));
  return std::move(reader.shards);
}

}  // namespace magister
