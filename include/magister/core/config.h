// Typed reading of an experiment file (YAML). A read names its key, default and range. Faults are collected and
// reported together.
// A key that no read asks for is an unknown key. The values that were read, in the order of the reads, are the resolved
// experiment.
// The format is YAML 1.2 without anchors, tags, merge keys, repeated keys, several documents, or values such as 010 and
// yes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "magister/core/config_rules.h"

namespace magister {

using ConfigValue = std::variant<bool, std::int64_t, double, std::string>;

// A map of the experiment, or the place of an absent map (then every read gives its default). Cheap to copy; valid as
// long as its ConfigDocument. Each read declares its key (config_rules.h) and adds it to the resolved experiment once.
// A reader therefore reads every key of its map, whatever the other values are; keys that apply under a condition are
// read through only_if().
class ConfigNode {
 public:
  static constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
  struct Value;     // a node of the parsed file
  struct Resolved;  // a node of the resolved experiment
  struct Shared;    // state that all nodes of a document share
  // A value as it stands in the file, and its key ("tasks.0.dataset.path").
  struct Written {
    std::string text, path;
    const Value* value;
  };

  // Required: an absent key is a fault. The returned value is then empty or 0 and must not be used before finish().
  std::string text(std::string_view key);
  // A text or a list of at least one text; [] is a fault.
  std::vector<std::string> texts(std::string_view key);
  // With a default.
  std::string text(std::string_view key, std::string_view fallback);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                       std::int64_t most = kMaxInteger);
  // integer() for a value that is never negative.
  std::uint64_t count(std::string_view key, std::int64_t fallback, std::int64_t least,
                      std::int64_t most = kMaxInteger) {
    return static_cast<std::uint64_t>(integer(key, fallback, least, most));
  }
  double number(std::string_view key, double fallback, double least, double most);
  double number(std::string_view key, double least, double most);  // required
  bool boolean(std::string_view key, bool fallback);
  // `auto` (the default) gives std::nullopt.
  std::optional<bool> boolean_or_auto(std::string_view key);
  // `also` describes other forms that the caller accepts for this key ("a list such as [0, 1]"); it is used in the
  // message.
  std::string choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                     std::string_view also = {});
  // Required.
  std::string choice(std::string_view key, const std::vector<std::string>& names);
  // For a key that was added in a later version. The first name is the default and means the earlier behaviour. It is
  // left out of the resolved experiment, even if the file gives it, so that older files keep their identity.
  std::string later_choice(std::string_view key, const std::vector<std::string>& names);
  // An absent key stays absent, in the result and in the resolved experiment.
  std::optional<std::string> optional_text(std::string_view key);
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t least,
                                               std::int64_t most = kMaxInteger);
  // `auto` (the default) gives std::nullopt.
  std::optional<std::int64_t> integer_or_auto(std::string_view key, std::int64_t least,
                                              std::int64_t most = kMaxInteger);
  // The same for a value that must be one of `numbers`.
  std::optional<std::int64_t> integer_or_auto_among(std::string_view key, const std::vector<std::int64_t>& numbers);
  // A list of at least one whole number; [] is a fault. Call it only if is_list(key).
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // One whole number or a list of them; `auto` (the default) gives an empty list.
  std::vector<std::int64_t> integers_or_auto(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // Sets the list that the resolved experiment shows for a key, where several spellings mean the same list or none
  // does.
  void resolve_as(std::string_view key, const std::vector<std::int64_t>& numbers);
  // Sets the number that the resolved experiment shows for a key of integer_or_auto() whose value is `auto`, once the
  // number is known.
  void resolve_as(std::string_view key, std::int64_t number);
  // One whole number or a list of them; an absent key gives an empty list.
  std::vector<std::int64_t> optional_integers(std::string_view key, std::int64_t least,
                                              std::int64_t most = kMaxInteger);
  // One of `names`, or a list of whole numbers (the returned name is then empty).
  std::string choice_or_integers(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                                 std::string_view also, std::vector<std::int64_t>& numbers, std::int64_t least,
                                 std::int64_t most = kMaxInteger);
  // A text or a list of at least one text; an absent key gives an empty list.
  std::vector<std::string> optional_texts(std::string_view key);

  // A map under this key. If it is absent, every read in it gives its default.
  ConfigNode section(std::string_view key);
  std::optional<ConfigNode> optional_section(std::string_view key);
  // A map of free names with one value each, as written ("8", "true"). An absent key is empty, here and in the resolved
  // experiment.
  std::vector<std::pair<std::string, std::string>> text_map(std::string_view key);
  // The same, with each value's type as YAML has it: true, 8, 0.5, or a text ("8" in quotes is a text).
  std::vector<std::pair<std::string, ConfigValue>> value_map(std::string_view key);
  // A list of at least one map. For optional_sections() an absent key gives an empty list.
  std::vector<ConfigNode> sections(std::string_view key);
  std::vector<ConfigNode> optional_sections(std::string_view key);

  // The same map, for keys that apply only under a condition. If it does not hold, a given key is a fault with the text
  // `refusal`, reads give their defaults, and none of these keys is in the resolved experiment. `false` for a boolean
  // whose default it is asks for nothing and is no fault.
  ConfigNode only_if(bool applies, std::string refusal) const;
  // Exactly one of these keys, which were read before, must be given. This is for the schema, which then requires none
  // of them alone. The reader itself reports a missing or a second key.
  void one_of(const std::vector<std::string>& keys);
  // Other programs' names of a key ("max_tokens" for max_new_tokens), for "did you mean". The key may be in another map
  // ("layout.gpus_per_group").
  void also_called(std::string_view key, const std::vector<std::string>& other_names);
  // This key, which was read before, does not decide results: ConfigDocument::identity_yaml() leaves it out.
  void outside_identity(std::string_view key);
  // This key, which was read before, does not apply after all, and a reader would refuse it: resolved_yaml() leaves it
  // out. identity_yaml() keeps it, so that older files keep their identity.
  void identity_alone(std::string_view key);
  // Sets the form of a text that was read before, as a regular expression (ECMA 262), for the schema.
  void text_form(std::string_view key, std::string_view pattern);

  // Sets an end of the range of a number that was read before, for the schema: the reader itself refuses what is beyond
  // it, because it has more to say than the range of the read. kAbove: `number` itself is refused, too.
  enum class RangeEnd { kAbove, kLeast, kMost };
  void range_end(std::string_view key, RangeEnd end, double number);

  // has() and is_list() do not mark the key as known.
  bool has(std::string_view key) const;
  bool is_list(std::string_view key) const;
  // Returns every scalar below this map, whatever its key.
  std::vector<Written> all_values() const;
  // "tasks.0.dataset"; empty for the whole experiment.
  const std::string& path() const { return path_; }
  // Returns "experiment.yaml:7:5: tasks.0.top_k", or names the argument that set the key. It is for faults that are
  // found later, when the model or the data are known. The place of an absent key is that of its map.
  std::string place(std::string_view key = {}) const;

  // Adds a fault at this key (at this map if the key is absent or empty): "<problem> (<why>); <what to do>".
  template <typename... Args>
  void reject(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    add_fault(key, fmt::format(format, std::forward<Args>(args)...));
  }
  // Adds a fault at one of all_values().
  template <typename... Args>
  void reject(const Written& written, fmt::format_string<Args...> format, Args&&... args) {
    add_fault(written, fmt::format(format, std::forward<Args>(args)...));
  }
  // Stops the check for unknown keys below this map, for example because the kind of the task is unknown.
  void abandon();

 private:
  friend class ConfigDocument;
  ConfigNode(Shared* shared, Value* value, Value* place, Resolved* resolved, ConfigRules* rules, std::string path,
             bool broken);
  Value* find(std::string_view key) const;
  Value* find_known(std::string_view key);
  ConfigKey& declare(std::string_view key, ConfigRule rule, std::string fallback = {});
  ConfigRules& declare_map(std::string_view key, std::size_t index, bool is_list);
  std::string path_of(std::string_view key) const;
  void add_fault(std::string_view key, std::string message);
  void add_fault(const Written& written, std::string message);
  void missing(std::string_view key, std::string_view expected);
  ConfigNode child(std::string_view key, Value* value, Resolved* resolved, ConfigRules* rules, bool broken) const;
  std::optional<std::string> read_text(std::string_view key);
  double read_number_or(std::string_view key, double fallback, double least, double most);
  // Calls entry(name, value, place in the resolved experiment) for every scalar of a map of free names.
  void for_entries(std::string_view key, const std::function<void(const std::string&, const Value&, Resolved&)>& entry);
  std::string read_choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                          std::string_view also);
  // The same without an entry in the resolved experiment.
  std::string chosen_name(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                          std::string_view also);

  Shared* shared_;
  Value* value_;  // null: absent
  Value* place_;  // value_, or the nearest map around it that exists: missing keys are reported there
  Resolved* resolved_;
  ConfigRules* rules_;
  std::string path_;
  std::string refusal_;  // not empty: keys do not apply here; the reason
  bool broken_;          // a fault was already reported here: further faults are suppressed
};

class ConfigDocument {
 public:
  static constexpr std::size_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 32;
  static constexpr std::size_t kMaxNodes = 100'000;

  // The file's text, at most kMaxBytes. Throws Error(kConfig) for a folder, a FIFO, an absent or too large file.
  static std::string read_file(const std::string& path);
  // Parses the text of the file `source` and the command line's "key.path=value" arguments, in order; the last one
  // wins. Throws Error(kConfig) if the text is not a YAML map; every other fault is reported by finish().
  ConfigDocument(std::string_view text, const std::string& source, const std::vector<std::string>& overrides = {});
  ~ConfigDocument();
  // A document that is read for its rules alone: absent maps and lists of maps are read as if they were present once,
  // and its faults are ignored.
  static std::unique_ptr<ConfigDocument> for_rules(std::string_view text);

  // Call before root(). Replaces the groups in this list by copies of their entries. A group is
  //   {rounds: 3, tasks: [...]} or {matrix: {seed: [0, 1]}, tasks: [...]},
  // and {round} and {seed} are replaced in the values of its entries (core/config_groups.h). Throws Error(kConfig) for
  // groups that cannot be expanded.
  void expand_groups(const std::string& list);
  ConfigNode root();
  const ConfigRules& rules() const;
  // After all reads: throws Error(kConfig) with all faults (at most 50 are shown), one per line, in the order of the
  // file, then of the arguments:
  //   file:line:column: key.path: <problem> (<why>); <what to do>
  void finish() const;

  // The resolved experiment as YAML. It is deterministic: every default is filled in, and keys are in the order of the
  // reads. Reading it again gives the same text.
  std::string resolved_yaml() const;
  // The part of the resolved experiment that decides the results of one entry of the list of maps `list`: the other
  // entries of the list and the keys of outside_identity() are left out.
  std::string identity_yaml(std::string_view list, std::size_t entry) const;

 private:
  std::unique_ptr<ConfigNode::Shared> shared_;
};

}  // namespace magister
