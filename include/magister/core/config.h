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
#include <vector>

namespace magister {

// A map of the experiment, or a place where one could stand (then every read gives its default). Cheap to copy; valid as
// long as its ConfigDocument. Each read marks the key as known and adds it to the resolved experiment once.
class ConfigNode {
 public:
  static constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();

  // Required: absent is a fault (the returned value is then empty or 0 and must not be used before finish()).
  std::string text(std::string_view key);
  // A text or a list of texts, at least one: [] is a fault.
  std::vector<std::string> texts(std::string_view key);
  // With a default.
  std::string text(std::string_view key, std::string_view fallback);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most = kMaxInteger);
  double number(std::string_view key, double fallback, double least, double most);
  bool boolean(std::string_view key, bool fallback);
  // `also`: what else the caller takes under this key, for the message ("a list such as [0, 1]").
  std::string choice(std::string_view key, const std::vector<std::string>& names, std::string_view fallback,
                     std::string_view also = {});
  // Absent stays absent, here and in the resolved experiment.
  std::optional<std::string> optional_text(std::string_view key);
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // `auto` (the default) gives nothing.
  std::optional<std::int64_t> integer_or_auto(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);
  // A list of whole numbers, at least one: [] is a fault. Only where is_list(key).
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t least, std::int64_t most = kMaxInteger);

  // A map under this key; absent: every read in it gives its default.
  ConfigNode section(std::string_view key);
  std::optional<ConfigNode> optional_section(std::string_view key);
  // A map of free names with one value each, as written ("8", "true"); absent: empty, here and in the resolved experiment.
  std::vector<std::pair<std::string, std::string>> text_map(std::string_view key);
  // A list of maps, at least one.
  std::vector<ConfigNode> sections(std::string_view key);

  // Neither marks the key as known.
  bool has(std::string_view key) const;
  bool is_list(std::string_view key) const;
  // "tasks.0.dataset"; empty for the whole experiment.
  const std::string& path() const { return path_; }

  // A fault at this key (at this map when the key is absent or empty): "<problem> (<why>); <what to do>".
  template <typename... Args>
  void reject(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    add_fault(key, fmt::format(format, std::forward<Args>(args)...));
  }
  // Keys below this map are not looked at any more and not called unknown (its kind is unknown, say).
  void abandon();

  struct Value;     // a node of the parsed file
  struct Resolved;  // a node of the resolved experiment
  struct Shared;    // the document's list of faults

 private:
  friend class ConfigDocument;
  ConfigNode(Shared* shared, Value* value, Value* place, Resolved* resolved, std::string path, bool broken);
  Value* find(std::string_view key) const;
  Value* find_known(std::string_view key);
  std::string path_of(std::string_view key) const;
  void add_fault(std::string_view key, std::string message);
  void missing(std::string_view key, std::string_view expected);
  ConfigNode child(std::string_view key, Value* value, Resolved* resolved, bool broken) const;

  Shared* shared_;
  Value* value_;  // null: absent
  Value* place_;  // value_, or the nearest map around that is there: where a missing key is reported
  Resolved* resolved_;
  std::string path_;
  bool broken_;  // a fault was already reported for this place: what is missing in it is no news
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

  ConfigNode root();
  // After all reads: throws Error(kConfig) with every fault, one a line, in the order of the file, then of the arguments:
  //   file:line:column: key.path: <problem> (<why>); <what to do>
  void finish() const;

  // The resolved experiment as YAML, deterministic: every default filled in, keys in the order of the reads. Reading it
  // again gives the same text. keep(key path) == false leaves a part out.
  std::string resolved_yaml(const std::function<bool(const std::string& key_path)>& keep = {}) const;

 private:
  std::unique_ptr<ConfigNode::Shared> shared_;
};

}  // namespace magister
