// What the reads of an experiment say about its keys: names, types, defaults and ranges. Nothing is stated twice: a read is
// the declaration, so a ConfigDocument that is read "for its rules" has every key that the program knows, and a message about
// an unknown key names all keys of its map. `magister schema` is written from the same rules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

// One way in which a key may be written. A key read in several ways ("auto", or a number) has several.
struct ConfigRule {
  enum class Type { kText, kInteger, kNumber, kBoolean, kChoice, kTextMap };  // kTextMap: free names, one value each
  Type type = Type::kText;
  bool is_list = false;                    // a list of these, at least one
  std::vector<std::string> names = {};     // kChoice: what is possible
  std::vector<std::int64_t> numbers = {};  // kInteger: what is possible, where a range does not say it
  std::string least = {}, most = {};       // kInteger, kNumber: as JSON numbers; empty: unbounded
  std::string pattern = {};                // kText: a regular expression (ECMA 262)
  bool operator==(const ConfigRule&) const = default;
};

struct ConfigRules;

struct ConfigKey {
  std::string name;
  bool required = false;
  std::vector<ConfigRule> rules;                   // empty: a map, or a list of maps
  std::string fallback;                            // the default as JSON; empty: none
  std::vector<std::string> other_names;            // what other programs call it
  bool is_list = false;                            // a list of maps
  std::vector<std::unique_ptr<ConfigRules>> maps;  // the map; of a list, one an entry
};

// The keys of one map, in the order of the reads.
struct ConfigRules {
  std::vector<std::unique_ptr<ConfigKey>> keys;
  std::vector<std::vector<std::string>> one_of;  // of each of these lists exactly one key is there

  const ConfigKey* find(std::string_view name) const;
  ConfigKey& key(std::string_view name);  // added where it is new
  std::vector<std::string> names() const;
};

}  // namespace magister
