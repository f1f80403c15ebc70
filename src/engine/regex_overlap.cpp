// Two expressions as automata (Thompson, CACM 1968), and a search over pairs of their states.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/regex_tree.h"
#include "magister/engine/regex_syntax.h"

namespace magister {
namespace {

using regex::kNoBound;
using regex::Node;
using regex::Set;

constexpr std::size_t kMostStates = 4000, kMostPairs = 4'000'000;

struct NfaState {
  Set set;                        // of the character that leads to the next state; empty: there is none
  std::vector<std::size_t> free;  // states that are reached without a character
};

class Automaton {
 public:
  explicit Automaton(const Node& node) : states_(1) { last_ = add(node, 0); }
  const NfaState& state(std::size_t i) const { return states_[i]; }
  std::size_t size() const { return states_.size(); }
  std::size_t last() const { return last_; }  // state 0 is the first; a character leads from state i to i + 1
  bool is_whole() const { return states_.size() <= kMostStates; }

 private:
  std::size_t fresh() {
    states_.emplace_back();
    return states_.size() - 1;
  }

  // Adds the node after state `from`, which has no transitions yet. Returns the end state, which has none either.
  std::size_t add(const Node& node, std::size_t from) {
    if (!is_whole()) return from;
    switch (node.kind) {
      case Node::Kind::kSet: {
        const std::size_t before = fresh();
        states_[from].free.push_back(before);
        states_[before].set = node.set;
        return fresh();
      }
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) from = add(part, from);
        return from;
      case Node::Kind::kChoice: {
        std::vector<std::size_t> ends;
        for (const Node& part : node.parts) {
          const std::size_t begin = fresh();
          states_[from].free.push_back(begin);
          ends.push_back(add(part, begin));
        }
        const std::size_t end = fresh();
        for (const std::size_t one : ends) states_[one].free.push_back(end);
        return end;
      }
      case Node::Kind::kRepeat:
        break;
    }
    return repeat(node, from);
  }

  std::size_t repeat(const Node& node, std::size_t from) {
    const Node& part = node.parts.front();
    for (std::uint32_t i = 0; i < node.least && is_whole(); ++i) from = add(part, from);
    if (node.most == kNoBound) {
      const std::size_t begin = fresh();
      states_[from].free.push_back(begin);
      const std::size_t again = add(part, begin);
      states_[again].free.push_back(begin);
      const std::size_t end = fresh();
      states_[begin].free.push_back(end);
      return end;
    }
    std::vector<std::size_t> ends{from};
    for (std::uint32_t i = node.least; i < node.most && is_whole(); ++i) ends.push_back(from = add(part, from));
    const std::size_t end = fresh();
    for (const std::size_t one : ends) states_[one].free.push_back(end);
    return end;
  }

  std::vector<NfaState> states_;
  std::size_t last_ = 0;
};

bool meet(const Set& a, const Set& b) {
  return std::any_of(a.begin(), a.end(), [&](const regex::Range& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const regex::Range& y) { return x.first <= y.last && y.first <= x.last; });
  });
}

}  // namespace

bool may_share_a_text(const std::string& one, const std::string& other) {
  const Automaton a(regex::parse(one)), b(regex::parse(other));
  if (!a.is_whole() || !b.is_whole() || a.size() * b.size() > kMostPairs) return true;
  std::vector<bool> seen(a.size() * b.size());
  std::vector<std::pair<std::size_t, std::size_t>> open;
  const auto reach = [&](std::size_t i, std::size_t j) {
    if (seen[i * b.size() + j]) return;
    seen[i * b.size() + j] = true;
    open.emplace_back(i, j);
  };
  reach(0, 0);
  while (!open.empty()) {
    const auto [i, j] = open.back();
    open.pop_back();
    if (i == a.last() && j == b.last()) return true;
    for (const std::size_t next : a.state(i).free) reach(next, j);
    for (const std::size_t next : b.state(j).free) reach(i, next);
    if (meet(a.state(i).set, b.state(j).set)) reach(i + 1, j + 1);
  }
  return false;
}

}  // namespace magister
