// Rules of an experiment's keys: names, types, defaults and ranges. A read is the declaration, so nothing is stated
// twice. A ConfigDocument that is read for its rules has every key that the program knows; a message about an unknown
// key names all keys of its map; `magister schema` is written from the same rules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

// One form in which a key may be written. A key with several forms ("auto" or a number) has several rules.
struct ConfigRule {
  enum class Type { kText, kInteger, kNumber, kBoolean, kChoice, kTextMap };  // kTextMap: free names, one value each
  Type type = Type::kText;
  bool is_list = false;                    // a list of at least one of these
  std::vector<std::string> names = {};     // kChoice: the possible names
  std::vector<std::int64_t> numbers = {};  // kInteger: the possible numbers, if a range does not describe them
  std::string least = {}, most = {};       // kInteger, kNumber: as JSON numbers; empty: unbounded
  bool above_least = false;                // `least` itself is not possible
  std::string pattern = {};                // kText: a regular expression (ECMA 262)
  bool operator==(const ConfigRule&) const = default;
};

struct ConfigRules;

struct ConfigKey {
  std::string name;
  bool required = false;
  std::vector<ConfigRule> rules;                   // empty: a map, or a list of maps
  std::string fallback;                            // the default as JSON; empty: no default
  std::vector<std::string> other_names;            // other programs' names of this key
  bool is_list = false;                            // a list of maps
  std::vector<std::unique_ptr<ConfigRules>> maps;  // the map; for a list, one per entry
};

// The keys of one map, in the order of the reads.
struct ConfigRules {
  std::vector<std::unique_ptr<ConfigKey>> keys;
  std::vector<std::vector<std::string>> one_of;  // exactly one key of each of these lists is required

  const ConfigKey* find(std::string_view name) const;
  ConfigKey& key(std::string_view name);  // added if it is new
  std::vector<std::string> names() const;
};

}  // namespace magister
