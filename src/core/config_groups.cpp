// See config_groups.h. A group is a map with `rounds` or `matrix`. Groups are expanded here, so no reader needs to know
// them.
#include "core/config_groups.h"

#include <algorithm>

#include "core/scalar.h"
#include "magister/core/error.h"

namespace magister {
namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

constexpr std::size_t kMostEntries =
    10'000;  // entries of the expanded list: each opens its data before the first begins

struct Variable {
  std::string of;          // the name in the matrix, or "round"
  std::string name, text;  // name: `of`, or `of`.KEY if the matrix has maps
  bool quoted = false;
  std::int64_t round = 0;  // number of the round, from 1; 0: not the variable of a round
};
using Variables = std::vector<Variable>;

// The variable that "{...}" at text[begin] names, its text, and the position after the brace. std::nullopt: no known
// variable.
struct Found {
  const Variable* variable;
  std::string text;
  std::size_t end;
};
std::optional<Found> variable_at(const std::string& text, std::size_t begin, const Variables& variables) {
  const std::size_t end = text.find('}', begin);
  if (end == std::string::npos) return std::nullopt;
  const std::string inside = text.substr(begin + 1, end - begin - 1);
  for (const Variable& variable : variables) {
    if (variable.round == 0) {
      if (inside == variable.name) return Found{&variable, variable.text, end + 1};
      continue;
    }
    const std::int64_t other = inside == variable.name          ? 0
                               : inside == variable.name + "-1" ? -1
                               : inside == variable.name + "+1" ? 1
                                                                : 2;
    if (other != 2) return Found{&variable, std::to_string(variable.round + other), end + 1};
  }
  return std::nullopt;
}

void replace(Value& scalar, const Variables& variables) {
  std::string out;
  for (std::size_t at = 0; at < scalar.scalar.size();) {
    const std::size_t begin = std::min(scalar.scalar.find('{', at), scalar.scalar.size());
    out.append(scalar.scalar, at, begin - at);
    if (begin == scalar.scalar.size()) break;
    if (scalar.scalar.compare(begin, 2, "{{") == 0) {  // written for a template
      out += "{{";
      at = begin + 2;
      continue;
    }
    const std::optional<Found> found = variable_at(scalar.scalar, begin, variables);
    if (found && begin == 0 && found->end == scalar.scalar.size()) scalar.quoted = found->variable->quoted;
    out += found ? found->text : "{";
    at = found ? found->end : begin + 1;
  }
  scalar.scalar = std::move(out);
}

std::unique_ptr<Value> copy_of(const Value& from, const Variables& variables) {
  auto copy = std::make_unique<Value>();
  copy->kind = from.kind;
  copy->quoted = from.quoted;
  copy->position = from.position;
  copy->key_position = from.key_position;
  copy->scalar = from.scalar;
  if (from.kind == Kind::kScalar) replace(*copy, variables);
  for (const auto& [name, member] : from.members) copy->members.emplace_back(name, copy_of(*member, variables));
  for (const auto& item : from.items) copy->items.push_back(copy_of(*item, variables));
  return copy;
}

constexpr const char* kFirstRound = "first_round";

// Copies an entry. In round 1 the keys of its `first_round` replace its own keys; an empty value (~) removes a key.
std::unique_ptr<Value> copy_of_entry(const Value& entry, const Variables& variables) {
  std::unique_ptr<Value> copy = copy_of(entry, variables);
  const auto round = std::find_if(variables.begin(), variables.end(), [](const Variable& v) { return v.round > 0; });
  const auto named = [](const std::string& name) {
    return [&name](const auto& member) { return member.first == name; };
  };
  const auto first = std::find_if(copy->members.begin(), copy->members.end(), named(kFirstRound));
  if (round == variables.end() || first == copy->members.end()) return copy;
  const std::unique_ptr<Value> instead = std::move(first->second);
  copy->members.erase(first);
  if (round->round > 1) return copy;
  for (auto& [name, value] : instead->members) {
    const auto own = std::find_if(copy->members.begin(), copy->members.end(), named(name));
    if (value->kind == Kind::kEmpty && own != copy->members.end()) {
      copy->members.erase(own);
    } else if (value->kind != Kind::kEmpty && own != copy->members.end()) {
      own->second = std::move(value);
    } else if (value->kind != Kind::kEmpty) {
      copy->members.emplace_back(name, std::move(value));
    }
  }
  return copy;
}

bool is_group(const Value& entry) {
  return entry.kind == Kind::kMap && (entry.find("rounds") != nullptr || entry.find("matrix") != nullptr);
}

class Expansion {
 public:
  Expansion(ConfigNode::Shared& shared, std::string list) : shared_(shared), list_(std::move(list)) {}

  // Appends the entries of `items`, expanding groups. variables: those of the enclosing groups. Returns false if there
  // are too many entries.
  bool add(const std::vector<std::unique_ptr<Value>>& items, const std::string& path, const Variables& variables,
           std::vector<std::unique_ptr<Value>>& out) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string at = fmt::format("{}.{}", path, i);
      if (is_group(*items[i])) {
        if (!add_group(*items[i], at, variables, out)) return false;
        continue;
      }
      if (!variables.empty() && !(has_own_name(*items[i], at, variables) && has_known_names(*items[i], at, variables) &&
                                  differs(*items[i], at, variables) && has_sound_first_round(*items[i], at, variables)))
        continue;
      if (!variables.empty() && out.size() >= kMostEntries) {
        fault(*items[i], at,
              fmt::format("more than {} {} when all is repeated (each opens its data before the first "
                          "one begins); make several experiments of it",
                          kMostEntries, list_));
        return false;
      }
      out.push_back(copy_of_entry(*items[i], variables));
    }
    return true;
  }

 private:
  // Reports a fault of the file once, however often the entry is repeated.
  void fault(const Value& at, const std::string& path, std::string message) {
    const auto same = [&](const ConfigFault& other) { return other.position == at.key_position && other.path == path; };
    if (std::none_of(shared_.faults.begin(), shared_.faults.end(), same))
      shared_.faults.push_back({at.key_position, path, std::move(message)});
  }

  bool add_group(const Value& group, const std::string& path, const Variables& variables,
                 std::vector<std::unique_ptr<Value>>& out) {
    const Value *const rounds = group.find("rounds"), *const matrix = group.find("matrix"),
                       *const entries = group.find(list_);
    if (!has_group_keys(group, path)) return true;
    if (rounds != nullptr && matrix != nullptr) {
      fault(*matrix, path + ".matrix",
            "is given together with rounds (it is not clear which is repeated within the other); put one group into "
            "the other's " +
                list_);
      return true;
    }
    if (entries == nullptr || entries->kind != Kind::kList || entries->items.empty()) {
      fault(entries == nullptr ? group : *entries, path + "." + list_,
            "no list of entries (nothing would be repeated); list what is to be repeated");
      return true;
    }
    std::vector<Variables> all = rounds != nullptr ? of_rounds(*rounds, path + ".rounds", variables)
                                                   : of_matrix(*matrix, path + ".matrix", variables);
    const std::size_t num_faults = shared_.faults.size();
    for (Variables& own : all) {
      own.insert(own.begin(), variables.begin(), variables.end());
      if (!add(entries->items, path + "." + list_, own, out)) return false;
      if (shared_.faults.size() > num_faults) return true;  // further copies have the same fault
    }
    return true;
  }

  bool has_group_keys(const Value& group, const std::string& path) {
    const std::vector<std::string> known = {"rounds", "matrix", list_};
    bool good = true;
    for (const auto& [name, member] : group.members) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string nearest = nearest_name(name, known);
      fault(*member, path + "." + printable(name, 60),
            fmt::format("unknown key of a group that is repeated (known here: {}); {}", join_names(known),
                        nearest.empty() ? fmt::format("put it into the entries of {}", list_)
                                        : fmt::format("did you mean {}?", nearest)));
      good = false;
    }
    return good;
  }

  bool is_free(const std::string& name, const Variables& variables, const Value& at, const std::string& path) {
    const bool taken = std::any_of(variables.begin(), variables.end(), [&](const Variable& v) { return v.of == name; });
    if (taken) {
      fault(at, path,
            fmt::format(
                "{{{}}} is already what a group around this one repeats (it would not be clear which is meant); {}",
                name, name == "round" ? "make one group of the two" : "give it another name"));
    }
    return !taken;
  }

  std::vector<Variables> of_rounds(const Value& rounds, const std::string& path, const Variables& variables) {
    if (!is_free("round", variables, rounds, path)) return {};
    const std::unique_ptr<Value> written = copy_of(rounds, variables);
    const ScalarResult<std::int64_t> number = read_integer(written->scalar, written->quoted);
    const std::int64_t* const count = written->kind == Kind::kScalar ? std::get_if<std::int64_t>(&number) : nullptr;
    if (count == nullptr || *count < 1 || *count > static_cast<std::int64_t>(kMostEntries)) {
      fault(rounds, path,
            fmt::format("{} is given (it says how often the {} are repeated); give a whole number from 1 to {}",
                        written->kind == Kind::kScalar ? printable(written->scalar, 60) : name_of(written->kind), list_,
                        kMostEntries));
      return {};
    }
    std::vector<Variables> all;
    for (std::int64_t round = 1; round <= *count; ++round) all.push_back({{"round", "round", "", false, round}});
    return all;
  }

  // All combinations with one value per variable; the last variable changes fastest.
  std::vector<Variables> of_matrix(const Value& matrix, const std::string& path, const Variables& variables) {
    std::vector<Variables> all = {{}};
    if (matrix.kind != Kind::kMap || matrix.members.empty()) {
      fault(matrix, path,
            "no map of names to lists of values (nothing would be repeated); write for example matrix: "
            "{seed: [0, 1, 2]}");
      return {};
    }
    std::size_t combinations = 1;
    for (const auto& [name, values] : matrix.members) {
      if (!is_variable(name, *values, path + "." + printable(name, 60), variables)) return {};
      combinations = combinations > kMostEntries ? combinations : combinations * values->items.size();
    }
    if (combinations > kMostEntries) {
      fault(matrix, path,
            fmt::format("more than {} combinations (each would be opened before the first one begins); "
                        "take values away, or make several experiments of it",
                        kMostEntries));
      return {};
    }
    for (const auto& [name, values] : matrix.members) {
      std::vector<Variables> more;
      for (const Variables& one : all) {
        for (const auto& value : values->items) {
          more.push_back(one);
          append(name, *value, variables, more.back());
        }
      }
      all = std::move(more);
    }
    return all;
  }

  static void append(const std::string& name, const Value& value, const Variables& around, Variables& out) {
    if (value.kind == Kind::kScalar) {
      const std::unique_ptr<Value> written = copy_of(value, around);
      out.push_back({name, name, written->scalar, written->quoted});
    }
    for (const auto& [key, member] : value.members) {
      const std::unique_ptr<Value> written = copy_of(*member, around);
      out.push_back({name, name + "." + key, written->scalar, written->quoted});
    }
  }

  // Accepts a single value or a map of single values; all maps must have the keys of the first.
  static bool is_value(const Value& value, const Value& first) {
    if (value.kind != Kind::kMap) return value.kind == Kind::kScalar && first.kind == Kind::kScalar;
    return !value.members.empty() && value.members.size() == first.members.size() &&
           std::all_of(value.members.begin(), value.members.end(), [&](const auto& member) {
             return member.second->kind == Kind::kScalar && first.find(member.first) != nullptr;
           });
  }

  bool is_variable(const std::string& name, const Value& values, const std::string& path, const Variables& variables) {
    const bool plain = !name.empty() && name != "round" && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    const bool listed = values.kind == Kind::kList && !values.items.empty() &&
                        std::all_of(values.items.begin(), values.items.end(),
                                    [&](const auto& value) { return is_value(*value, *values.items.front()); });
    if (!plain) {
      fault(values, path,
            "no name of a variable (it is written in braces in the entries); use letters, digits and _, and not round");
    } else if (!listed) {
      fault(values, path,
            "no list of single values, or of maps of single values with the same keys (each replaces its name in "
            "braces); write for example [0, 1, 2], or [{name: small, path: a}, {name: large, path: b}]");
    }
    return plain && listed && is_free(name, variables, values, path);
  }

  // Requires that the name contains every variable, because each copy writes a file with its name.
  bool has_own_name(const Value& entry, const std::string& path, const Variables& variables) {
    if (entry.kind != Kind::kMap) return true;  // the reader reports it
    const Value* const name = entry.find("name");
    const std::string text = name != nullptr && name->kind == Kind::kScalar ? name->scalar : "";
    for (const Variable& variable : variables) {
      if (!text.empty() && has_variable(*name, variable.of, variables)) continue;
      fault(name == nullptr ? entry : *name, path + ".name",
            fmt::format("{} {{{}}}, for which this is repeated (all would write the same file); write for example "
                        "name: {}-{{{}}}",
                        text.empty() ? "there is none with" : printable(text, 100) + " is without", variable.name,
                        text.empty() ? "student" : printable(text, 100), variable.name));
      return false;
    }
    return true;
  }

  bool has_sound_first_round(const Value& entry, const std::string& path, const Variables& variables) {
    const Value* const first = entry.find(kFirstRound);
    const bool in_rounds =
        std::any_of(variables.begin(), variables.end(), [](const Variable& variable) { return variable.round > 0; });
    if (first == nullptr || !in_rounds || (first->kind == Kind::kMap && !first->members.empty())) return true;
    fault(*first, path + "." + kFirstRound,
          "no map of keys (it says what this entry has in the first round in place of its own); write for example "
          "first_round: {guide: ~}, which takes the guide away");
    return false;
  }

  // Refuses text that looks like a variable: it would be copied verbatim.
  bool has_known_names(const Value& value, const std::string& path, const Variables& variables) {
    bool good = true;
    for (const auto& [name, member] : value.members)
      good &= has_known_names(*member, path + "." + printable(name, 60), variables);
    for (std::size_t i = 0; i < value.items.size(); ++i)
      good &= has_known_names(*value.items[i], fmt::format("{}.{}", path, i), variables);
    const std::string unknown = value.kind == Kind::kScalar ? unknown_in(value.scalar, variables) : "";
    if (unknown.empty()) return good;
    std::vector<std::string> known;
    for (const Variable& variable : variables)
      known.push_back("{" + variable.name + (variable.round > 0 ? "}, {round-1}, {round+1}" : "}"));
    fault(value, path,
          fmt::format("{} is no variable of this group (it would be copied as it is; known here: {}); write one of "
                      "them, or give the variable another name",
                      printable(unknown, 60), join_names(known)));
    return false;
  }

  // Finds for example "{m.pth}" where m is known and m.pth is not; "" if there is none.
  static std::string unknown_in(const std::string& text, const Variables& variables) {
    for (std::size_t begin = text.find('{'); begin != std::string::npos; begin = text.find('{', begin + 1)) {
      if (text.compare(begin, 2, "{{") == 0) {
        ++begin;
        continue;
      }
      const std::size_t end = text.find('}', begin), first = text.find_first_not_of(' ', begin + 1);
      if (end == std::string::npos || variable_at(text, begin, variables)) continue;
      const std::size_t last = std::min(
          text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", first), end);
      const std::string head = first < last ? text.substr(first, last - first) : "";
      if (std::any_of(variables.begin(), variables.end(), [&](const Variable& v) { return v.of == head; }))
        return text.substr(begin, end + 1 - begin);
    }
    return "";
  }

  // Refuses copies that differ only in their names, because they would compute the same.
  bool differs(const Value& entry, const std::string& path, const Variables& variables) {
    for (const Variable& variable : variables) {
      const bool stands = std::any_of(entry.members.begin(), entry.members.end(), [&](const auto& member) {
        return member.first != "name" && has_variable(*member.second, variable.of, variables);
      });
      if (stands) continue;
      fault(entry, path,
            fmt::format("{{{}}} is used in the name alone (the copies would compute the same); take it out of the "
                        "group, or use {{{}}} in another value",
                        variable.name, variable.name));
      return false;
    }
    return true;
  }

  static bool has_variable(const Value& value, const std::string& of, const Variables& variables) {
    for (std::size_t at = value.scalar.find('{'); at != std::string::npos; at = value.scalar.find('{', at + 1)) {
      const std::optional<Found> found = variable_at(value.scalar, at, variables);
      if (found && found->variable->of == of) return true;
    }
    const auto inside = [&](const Value& other) { return has_variable(other, of, variables); };
    return std::any_of(value.members.begin(), value.members.end(),
                       [&](const auto& one) { return inside(*one.second); }) ||
           std::any_of(value.items.begin(), value.items.end(), [&](const auto& one) { return inside(*one); });
  }

  ConfigNode::Shared& shared_;
  const std::string list_;
};

}  // namespace

bool expand_groups(ConfigNode::Shared& shared, const std::string& list) {
  Value* const entries = shared.tree->find(list);
  if (entries == nullptr || entries->kind != Kind::kList) return true;
  if (std::none_of(entries->items.begin(), entries->items.end(), [](const auto& entry) { return is_group(*entry); }))
    return true;
  const std::size_t num_faults = shared.faults.size();
  std::vector<std::unique_ptr<Value>> all;
  Expansion(shared, list).add(entries->items, list, {}, all);
  entries->items = std::move(all);
  return shared.faults.size() == num_faults;
}

}  // namespace magister
