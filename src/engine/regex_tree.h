// A regular expression as a tree whose leaves are sets of code points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace magister {
namespace regex {

constexpr char32_t kLast = 0x10FFFF;

struct Range {
  char32_t first, last;
};
using Set = std::vector<Range>;

// kRepeat: most is kNoBound for {n,}. kChoice, kSequence: parts.
struct Node {
  enum class Kind { kSet, kSequence, kChoice, kRepeat } kind = Kind::kSequence;
  Set set;
  std::vector<Node> parts;
  std::uint32_t least = 0, most = 0;
};
constexpr std::uint32_t kNoBound = ~std::uint32_t{0};

// Throws std::runtime_error as plain_regex() does.
Node parse(const std::string& regex);

}  // namespace regex
}  // namespace magister
