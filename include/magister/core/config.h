// Typed reading of an experiment file (YAML). A read names its key, default and range; every fault is kept and all are
// reported at once. What was never asked for is an unknown key; what was read, in the order of the reads, is the resolved
// experiment. YAML 1.2 without its surprises: no anchors, tags, merge or repeated keys, 010, yes, or several documents.
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

// A map of the experiment, or a place where one could stand (then every read gives its default). Cheap to copy; valid as
// long as its ConfigDocument. Each read declares the key (config_rules.h) and adds it to the resolved experiment once, so a
// reader asks for every key of its map whatever the others say: what belongs there only sometimes through only_if().
class ConfigNode {
 public:
  static constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
  struct Value;     // a node of the parsed file
  struct Resolved;  // a node of the resolved experiment
  struct Shared;    // the document's list of faults
  // A value as it stands in the file, and its key ("tasks.0.dataset.path").
  struct Written {
    std::string text, path;
    const Value* value;
  };

  // Required: absent is a fault (the returned value is then empty or 0 and must not be used before finish()).
  std::string text(std::string_view key);
  // A text or a list of texts, at least one: [] is a fault.
  std::vector<std::string> texts(std::string_view key);
  // With a default.
  std::string text(std::string_view key, std::string_view fallback);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                       std::int64_t most = kMaxInteger);
  // integer() of what is never negative.
  std::uint64_t count(std::string_view key, std::int64_t fallback, std::int64_t least,
                      std::int64_t most = kMaxInteger) {
    return static_cast<std::uint64_t>(integer(key, fallback, least, most));
  }
  double number(std::string_view key, double fallback, double least, double most);
  double number(std::string_view key, double least, double most);  // required
  bool boolean(std::string_view key, bool fallback);
  // `auto` (the default) gives nothing.
  std::optional<bool> boolean_or_auto(std::string_view key);
  // `also`: what else the caller takes under this key, for the message ("a list such as [0, 1]").
  std::string choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                     std::string_view also = {});
  // Required.
  std::string choice(std::string_view key, const std::vector<std::string>& names);
  // Of a key that came later: the first name, the default, is what was done before, and is left out of the resolved experiment even where it is
  // given, so that files of before are still the same experiment's.
  std::string later_choice(std::string_view key, const std::vector<std::string>& names);
  // Absent stays absent, here and in the resolved experiment.
  std::optional<std::string> optional_text(std::string_view key);
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t least,
                                               std::int64_t most = kMaxInteger);
  // `auto` (the default) gives nothing.
  std::optional<std::int64_t> integer_or_auto(std::string_view key, std::int64_t least,
                                              std::int64_t most = kMaxInteger);
  // The same for one of these numbers.
  std::optional<std::int64_t> integer_or_auto_among(std::string_view key, const std::vector<std::int64_t>& numbers);
  // A list of whole numbers, at least one: [] is a fault. Only where is_list(key).
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // One whole number or a list of them; `auto` (the default) gives none.
  std::vector<std::int64_t> integers_or_auto(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // What stands for a list in the resolved experiment, where several spellings of such a list mean the same, or none does.
  void resolve_as(std::string_view key, const std::vector<std::int64_t>& numbers);
  // What stands for a key of integer_or_auto() that is `auto` once it is known what that is: as if the number were written.
  void resolve_as(std::string_view key, std::int64_t number);
  // One whole number or a list of them; absent: none.
  std::vector<std::int64_t> optional_integers(std::string_view key, std::int64_t least,
                                              std::int64_t most = kMaxInteger);
  // A word, or a list of whole numbers (then the word is empty).
  std::string choice_or_integers(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                                 std::string_view also, std::vector<std::int64_t>& numbers, std::int64_t least,
                                 std::int64_t most = kMaxInteger);
  // A text or a list of texts, at least one; absent: none.
  std::vector<std::string> optional_texts(std::string_view key);

  // A map under this key; absent: every read in it gives its default.
  ConfigNode section(std::string_view key);
  std::optional<ConfigNode> optional_section(std::string_view key);
  // A map of free names with one value each, as written ("8", "true"); absent: empty, here and in the resolved experiment.
  std::vector<std::pair<std::string, std::string>> text_map(std::string_view key);
  // The same with each value's type as YAML has it: true, 8, 0.5, or a text ("8" in quotes is one).
  std::vector<std::pair<std::string, ConfigValue>> value_map(std::string_view key);
  // A list of maps, at least one; the second is empty where the key is absent.
  std::vector<ConfigNode> sections(std::string_view key);
  std::vector<ConfigNode> optional_sections(std::string_view key);

  // The same map for keys that belong there under a condition alone. Where it does not hold, a key that is given is a fault
  // with this text, reads give their defaults, and nothing of it is resolved.
  ConfigNode only_if(bool applies, std::string refusal) const;
  // Exactly one of these keys, read before, must be there: for the schema, which then demands none of them alone. What is missing or one too
  // many the reader itself tells.
  void one_of(const std::vector<std::string>& keys);
  // What other programs call a key ("max_tokens" for max_new_tokens), for "did you mean". The key may stand elsewhere
  // ("layout.gpus_per_group").
  void also_called(std::string_view key, const std::vector<std::string>& other_names);
  // The key, read before, does not decide results: it is left out of ConfigDocument::identity_yaml().
  void outside_identity(std::string_view key);
  // The form of a text that was read before, as a regular expression (ECMA 262), for the schema.
  void text_form(std::string_view key, std::string_view pattern);

  // Neither marks the key as known.
  bool has(std::string_view key) const;
  bool is_list(std::string_view key) const;
  // Every value below this map, whatever its key.
  std::vector<Written> all_values() const;
  // "tasks.0.dataset"; empty for the whole experiment.
  const std::string& path() const { return path_; }
  // "experiment.yaml:7:5: tasks.0.top_k", or the argument that set the key: for faults that show later, when the model or the
  // data are known. An absent key stands where its map does.
  std::string place(std::string_view key = {}) const;

  // A fault at this key (at this map when the key is absent or empty): "<problem> (<why>); <what to do>".
  template <typename... Args>
  void reject(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    add_fault(key, fmt::format(format, std::forward<Args>(args)...));
  }
  // A fault at one of all_values().
  template <typename... Args>
  void reject(const Written& written, fmt::format_string<Args...> format, Args&&... args) {
    add_fault(written, fmt::format(format, std::forward<Args>(args)...));
  }
  // Keys below this map are not looked at any more and not called unknown (its kind is unknown, say).
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
  // Calls entry(name, value, its place in the resolved experiment) for every scalar of a map of free names.
  void for_entries(std::string_view key, const std::function<void(const std::string&, const Value&, Resolved&)>& entry);
  std::string read_choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                          std::string_view also);
  // The same without an entry in the resolved experiment.
  std::string chosen_name(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                          std::string_view also);

  Shared* shared_;
  Value* value_;  // null: absent
  Value* place_;  // value_, or the nearest map around that is there: where a missing key is reported
  Resolved* resolved_;
  ConfigRules* rules_;
  std::string path_;
  std::string refusal_;  // not empty: keys do not belong here, and this is why
  bool broken_;          // a fault was already reported for this place: follow-on errors are suppressed
};

class ConfigDocument {
 public:
  static constexpr std::size_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 32;
  static constexpr std::size_t kMaxNodes = 100'000;

  // The file's text, at most kMaxBytes. Throws Error(kConfig) for a folder, a FIFO, an absent or too large file.
  static std::string read_file(const std::string& path);
  // text of the file `source` and the command line's "key.path=value" arguments, in order, last wins. What is no YAML
  // at all is Error(kConfig) here; every other fault waits for finish().
  ConfigDocument(std::string_view text, const std::string& source, const std::vector<std::string>& overrides = {});
  ~ConfigDocument();
  // An experiment that is read for its rules alone: maps and lists of maps that are absent are read as if they were there,
  // once each, and nobody asks for its faults.
  static std::unique_ptr<ConfigDocument> for_rules(std::string_view text);

  // Before root(): repeats the entries of this list that are groups, {rounds: 3, tasks: [...]} or {matrix: {seed: [0, 1]}, tasks: [...]}, with
  // {round} and {seed} replaced in their values (core/config_groups.h). Throws Error(kConfig) for groups that cannot be repeated.
  void expand_groups(const std::string& list);
  ConfigNode root();
  const ConfigRules& rules() const;
  // After all reads: throws Error(kConfig) with every fault, one a line, in the order of the file, then of the arguments:
  //   file:line:column: key.path: <problem> (<why>); <what to do>
  void finish() const;

  // The resolved experiment as YAML, deterministic: every default filled in, keys in the order of the reads. Reading it
  // again gives the same text.
  std::string resolved_yaml() const;
  // The part of it that decides the results of one entry of the list of maps `list`: without the other entries, and without
  // the keys that are outside_identity().
  std::string identity_yaml(std::string_view list, std::size_t entry) const;

 private:
  std::unique_ptr<ConfigNode::Shared> shared_;
};

}  // namespace magister
