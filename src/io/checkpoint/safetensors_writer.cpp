// Format: the header's length, a header of JSON padded with spaces to 8 bytes, then the tensors' bytes one after the
// other.
#include "magister/io/checkpoint/safetensors_writer.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "io/checkpoint/mapped_file.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

constexpr std::size_t kBytesAtOnce = 64 << 20;

at::IntArrayRef shape_of(const NamedTensor& entry) {
  return entry.read ? at::IntArrayRef(entry.shape) : entry.tensor.sizes();
}

at::Tensor values_of(const NamedTensor& entry) { return entry.read ? entry.read() : entry.tensor; }

std::string_view bytes_of(const at::Tensor& tensor) {
  MAGISTER_ASSERT(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat);
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void for_blocks(const NamedTensor& entry, const BetweenBlocks& between,
                const std::function<void(std::string_view)>& use) {
  const at::Tensor values = values_of(entry);
  const std::string_view bytes = bytes_of(values);
  for (std::size_t at = 0; at < bytes.size(); at += kBytesAtOnce) {
    if (between) between();
    use(bytes.substr(at, kBytesAtOnce));
  }
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, const TextPairs& metadata,
                       const BetweenBlocks& between) {
  nlohmann::ordered_json header;
  for (const auto& [name, text] : metadata) header["__metadata__"][name] = text;
  std::uint64_t begin = 0;
  for (const NamedTensor& entry : tensors) {
    const at::IntArrayRef shape = shape_of(entry);
    const std::uint64_t end = begin + 4 * static_cast<std::uint64_t>(c10::multiply_integers(shape));
    header[entry.name] = {{"dtype", "F32"}, {"shape", shape.vec()}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  WholeFile file(path, WholeFile::Existing::kReplaced);
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(text);
  for (const NamedTensor& entry : tensors)
    for_blocks(entry, between, [&](std::string_view block) { file.write(block); });
  if (between) between();
  file.keep();
}

TextPairs safetensors_metadata(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  std::uint64_t length = 0;
  MAGISTER_CHECK(
      bytes.size() >= sizeof length, ExitCode::kData,
      "{}: is too short for a safetensors file (it was cut off, so nothing in it can be read); make it again",
      printable(path));
  std::memcpy(&length, bytes.data(), sizeof length);
  TextPairs pairs;
  const auto header = nlohmann::json::parse(bytes.substr(8, length), nullptr, false);
  const auto found = header.is_object() ? header.find("__metadata__") : header.end();
  if (!header.is_object() || found == header.end() || !found->is_object()) return pairs;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) pairs.emplace_back(name, value.get<std::string>());
  }
  return pairs;
}

std::string tensors_sha256(const std::vector<NamedTensor>& tensors, const BetweenBlocks& between) {
  Sha256 hash;
  for (const NamedTensor& entry : tensors) {
    hash.update(fmt::format("{} [{}]\n", entry.name, fmt::join(shape_of(entry), ", ")));
    for_blocks(entry, between, [&](std::string_view block) { hash.update(block); });
  }
  return hash.hex();
}

}  // namespace magister
