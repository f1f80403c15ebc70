#include "magister/io/checkpoint/gguf_vocabulary.h"

#include <cstdint>
#include <utility>

#include "io/checkpoint/gguf_metadata.h"

namespace magister {
namespace {

class GgufBytes {
 public:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void type(GgufValueType type) { number(static_cast<std::uint32_t>(type)); }
  void text(const std::string& text) {
    number(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  void list(GgufValueType type, std::size_t count) {
    this->type(kArray);
    this->type(type);
    number(static_cast<std::uint64_t>(count));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Writes a value with the type that its kind needs: ids u32, token types i32, the map of characters bytes, scores f32.
struct GgufValueWriter {
  GgufBytes& out;
  const std::string& key;

  void operator()(bool value) const {
    out.type(kBool);
    out.number(static_cast<std::uint8_t>(value));
  }
  void operator()(std::int64_t value) const {
    const bool is_id = value >= 0 && value <= INT32_MAX;
    out.type(is_id ? kUint32 : kInt64);
    if (is_id) {
      out.number(static_cast<std::uint32_t>(value));
    } else {
      out.number(value);
    }
  }
  void operator()(std::uint64_t value) const {
    out.type(kUint64);
    out.number(value);
  }
  void operator()(double value) const {
    out.type(kFloat32);
    out.number(static_cast<float>(value));
  }
  void operator()(const std::string& value) const {
    out.type(kString);
    out.text(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    out.list(kString, values.size());
    for (const std::string& value : values) out.text(value);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    const bool is_map = key.ends_with("precompiled_charsmap");
    out.list(is_map ? kUint8 : kInt32, values.size());
    for (const std::int64_t value : values) {
      if (is_map) {
        out.number(static_cast<std::uint8_t>(value));
      } else {
        out.number(static_cast<std::int32_t>(value));
      }
    }
  }
  void operator()(const std::vector<double>& values) const {
    out.list(kFloat32, values.size());
    for (const double value : values) out.number(static_cast<float>(value));
  }
};

}  // namespace

std::string gguf_vocabulary_file(const Metadata& metadata) {
  GgufBytes pairs;
  std::uint64_t count = 0;
  for (const auto& [key, value] : metadata) {
    if (!key.starts_with("tokenizer.") && key != "general.architecture" && key != "general.name") continue;
    pairs.text(key);
    std::visit(GgufValueWriter{pairs, key}, value);
    ++count;
  }
  GgufBytes file;
  file.number(std::uint32_t{0x46554747});
  file.number(std::uint32_t{3});
  file.number(std::uint64_t{0});
  file.number(count);
  return file.take() + pairs.take();
}

}  // namespace magister
