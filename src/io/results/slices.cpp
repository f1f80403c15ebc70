// This is the only place that matches these names.
#include "io/results/slices.h"

#include <algorithm>

#include "io/results/columns.h"
#include "magister/core/sha256.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/tools.h"

namespace magister {

namespace {

// The first unit's number, in a file whose units were computed by groups of several sizes.
constexpr const char* kFirstUnits = "tp_first_units";

}  // namespace

bool is_widest_of_parts(const std::string& name) { return name == "key_bytes" || name == "longest_sample"; }

bool is_of_part(const std::string& name) {
  for (const char* own : {"experiment", "num_samples", "num_tokens", "slice_begin", "slice_end"}) {
    if (name == own) return true;
  }
  if (is_widest_of_parts(name)) return true;
  return std::find(std::begin(kLayoutAttributes), std::end(kLayoutAttributes), name) != std::end(kLayoutAttributes);
}

bool is_digest_of_parts(const std::string& name) {
  return name == "plan_sha256" || name == kFirstUnits || name == "answers_sha256" ||
         name.starts_with("panel_sha256_") || name.starts_with("scores_sha256_");
}

std::string digest_of_parts(const std::string& name, const std::vector<std::string>& digests) {
  const bool one =
      std::all_of(digests.begin(), digests.end(), [&](const std::string& digest) { return digest == digests.front(); });
  if (one && name == kFirstUnits && digests.size() == 1) return digests.front();
  if (one && name != "plan_sha256" && name != kFirstUnits) return digests.front();
  std::string lines = "merged\n";
  for (const std::string& digest : digests) lines += digest + "\n";
  return sha256_hex(lines);
}

std::string run_sha256(const std::string& path) {
  std::string lines;
  for (const auto& [name, value] : read_attributes(path)) {
    if (is_of_part(name) || is_digest_of_parts(name)) continue;
    lines += name + " ";
    if (const auto* text = std::get_if<std::string>(&value))
      lines += sha256_hex(*text);
    else if (const auto* number = std::get_if<std::uint64_t>(&value))
      lines += std::to_string(*number);
    else
      lines += std::to_string(std::get<std::uint8_t>(value));
    lines += '\n';
  }
  return sha256_hex(lines);
}

}  // namespace magister
