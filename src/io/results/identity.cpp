// A task's keys are named as in its own map ("dataset.path"), independent of their place in the experiment.
#include "magister/io/results/identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/yaml_values.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

using KeyParts = std::vector<std::string>;
constexpr std::size_t kMostTold = 6;

struct IdentityKey {
  std::string name;    // without the parts that say where the task is in the experiment
  std::string counts;  // compared value; unused if a hash identifies the content
  std::string path;    // in the task's map
  std::string text;    // as written
  bool of_task = false, decides = true, by_content = false;
};

bool is_entry_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

// "runs/x/scores.h5" and "scores" are the same name; digests show which results they are.
std::string stem_of(const std::string& name_or_path) {
  const std::string name = std::filesystem::path(name_or_path).lexically_normal().filename().string();
  return name.ends_with(".h5") ? name.substr(0, name.size() - 3) : name;
}

// The task's key without list indices at its end, because a list of paths counts as one place.
KeyParts place_of(KeyParts key) {
  while (key.size() > 1 && is_entry_number(key.back())) key.pop_back();
  return key;
}

// The place of a key whose content has a hash in the results; nullopt for other keys.
std::optional<KeyParts> place_of_content(const KeyParts& key) {
  KeyParts place = place_of(key);
  const std::string last = place.back(), parent = place.size() > 1 ? place[place.size() - 2] : "";
  if (place == KeyParts{"answers"}) return place;
  if (parent == "constraint" && is_one_of(last, {"json_schema", "grammar"})) return place;
  if (parent == "dataset" && is_one_of(last, {"path", "task"})) return KeyParts{"dataset", "path"};
  if (is_one_of(parent, {"source", "objectives"}) && last == "path") return place;
  if (place.size() > 3 && place[place.size() - 4] == "dataset" && place[place.size() - 3] == "sources" &&
      last == "path")
    return place;
  if ((parent == "model" && is_one_of(last, {"path", "task", "config"})) ||
      (is_one_of(parent, {"teacher", "rollouts"}) && is_one_of(last, {"results", "task"}))) {
    place.pop_back();  // all these keys name the same content
    return place;
  }
  return std::nullopt;
}

// True for keys that do not decide the results: they are part of the model's or data set's hash, or an attribute in
// every file records them, or they are names.
bool decides_nothing(const KeyParts& key) {
  const KeyParts place = place_of(key);
  const std::string& last = place.back();
  if (place == KeyParts{"name"} || place == KeyParts{"slice"}) return true;
  if (place.front() == "layout") return place != KeyParts{"layout", "collectives"};
  if (place.size() < 2) return false;
  const std::string& parent = place[place.size() - 2];
  return (parent == "model" && is_one_of(last, {"adapter", "chat_template", "tokenizer"})) ||
         (parent == "dataset" && is_one_of(last, {"config", "split"}));
}

bool names_results(const KeyParts& key) {
  const KeyParts place = place_of(key);
  if (place == KeyParts{"panel"} || place == KeyParts{"scores"}) return true;
  return place.size() == 4 && place[1] == "curves" && place[3] == "scores";
}

IdentityKey key_of(const KeyParts& own, const YamlValue& value, bool of_task) {
  const std::string text = value.quoted ? "\"" + value.text + "\"" : value.text;
  const std::string path = fmt::format("{}", fmt::join(own, "."));
  IdentityKey key{path, text, path, text, of_task};
  if (decides_nothing(own)) {
    key.decides = false;
  } else if (const auto place = place_of_content(own)) {
    key.name = fmt::format("{}", fmt::join(*place, "."));
    key.path = fmt::format("{}", fmt::join(place_of(own), "."));
    key.by_content = true;
  } else if (names_results(own)) {
    key.counts = stem_of(value.text);
  }
  return key;
}

// Sorted by name. A shared `model` or `seed` counts as the task's, unless the task has its own.
std::vector<IdentityKey> keys_of(const std::string& experiment) {
  const std::vector<YamlValue> values = yaml_values(experiment, "experiment");
  const auto of_task = [](const YamlValue& value) { return value.path.size() > 2 && value.path[0] == "tasks"; };
  const auto has_own = [&](const char* name) {
    return std::any_of(values.begin(), values.end(),
                       [&](const YamlValue& value) { return of_task(value) && value.path[2] == name; });
  };
  const bool own_model = has_own("model"), own_seed = has_own("seed");
  std::vector<IdentityKey> keys;
  for (const YamlValue& value : values) {
    MAGISTER_CHECK(!value.path.empty(), ExitCode::kData,
                   "experiment: is no map of keys (what it asks for is not known); compare its hash");
    const std::string& first = value.path.front();
    if ((first == "model" && own_model) || (first == "seed" && own_seed)) continue;
    KeyParts own = value.path;
    if (of_task(value)) own.erase(own.begin(), own.begin() + 2);
    keys.push_back(key_of(own, value, of_task(value)));
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const IdentityKey& a, const IdentityKey& b) { return a.name < b.name; });
  return keys;
}

struct Compared {
  std::string path, one, other;  // values for messages; empty: not given
  std::string counts_one, counts_other;
  bool decides = true, by_content = false;
};

// The keys of both experiments by name; a key may be in only one of them.
std::map<std::string, Compared> compared_keys(const std::string& one, const std::string& other,
                                              const IdentitySides& sides) {
  std::map<std::string, Compared> all;
  const auto add = [&](const std::vector<IdentityKey>& keys, std::string Compared::* text,
                       std::string Compared::* counts) {
    for (const IdentityKey& key : keys) {
      Compared& entry = all[key.name];
      entry.path = key.of_task ? sides.task_key + key.path : key.path;
      entry.decides = key.decides;
      entry.by_content = key.by_content;
      std::string &shown = entry.*text, &counted = entry.*counts;
      shown += (shown.empty() ? "" : ", ") + key.text;
      counted = key.by_content ? "given" : counted + "\n" + key.counts;
    }
  };
  add(keys_of(one), &Compared::one, &Compared::counts_one);
  add(keys_of(other), &Compared::other, &Compared::counts_other);
  return all;
}

std::string both_values(const Compared& key, const IdentitySides& sides) {
  const auto value = [](const std::string& text) { return text.empty() ? "not given" : printable(text, 200); };
  return fmt::format("{} is {} {} and {} {}", key.path, value(key.one), sides.one, value(key.other), sides.other);
}

// True if the key decides the attribute's value.
bool leads_to(const std::string& attribute, const std::string& name) {
  const auto begins = [&](const char* prefix) { return attribute.starts_with(prefix); };
  const std::string parts = "." + name + ".";
  const auto has = [&](const char* part) { return parts.find(fmt::format(".{}.", part)) != std::string::npos; };
  const bool beside = has("guide") || has("reward") || has("evaluate") || has("validator");
  if (begins("evaluate_")) return has("evaluate") && !has("curves");
  if (begins("dataset_") || attribute == "source_records")
    return !beside && (has("dataset") || name == "teacher" || name == "rollouts" || name == "objectives.path");
  if (begins("source_sha256")) return name == "source.path";
  if (begins("slice_")) return name == "slice";
  if (begins("validator_")) return has("validator") && has("model");
  if (begins("guide_")) return has("guide") && has("model");
  if (begins("reward_") || begins("judge_")) return has("reward") && has("model");
  if (begins("answers_")) return name == "answers";
  if (begins("panel_")) return has("panel");
  if (begins("scores_") || attribute == "methods") return name.starts_with("scores");
  if (begins("constraint_")) return has("constraint");
  if (begins("teacher_")) return name == "teacher";
  if (begins("tp_")) return name.starts_with("layout.");
  for (const char* const of_model :
       {"model_", "tokenizer_", "chat_template_", "adapter_", "generation_rules_", "copied_files_"}) {
    if (begins(of_model)) return !beside && has("model");
  }
  return attribute == "end_tokens" && !beside && has("model");
}

// Files that model.path has too, and that a key of `model` may name instead.
constexpr const char* kOwnFiles[] = {"adapter", "chat_template", "tokenizer"};

// True if the key names the file of the attribute: model.adapter that of adapter_sha256.
bool names_own_file(const std::string& attribute, const std::string& name) {
  return leads_to(attribute, name) && std::ranges::any_of(kOwnFiles, [&](const std::string& file) {
           return attribute.starts_with(file + "_") && name.ends_with("model." + file);
         });
}

// True if the attribute may differ where the key's value is the same, as it is that of what the key names.
bool names_content(const std::string& attribute, const std::string& name, const Compared& key) {
  const bool adapter_of_model = attribute.starts_with("model_") && name.ends_with("model.adapter");
  return key.by_content || names_own_file(attribute, name) || adapter_of_model;
}

const std::string* text_of_attribute(const Attributes& attributes, const std::string& name) {
  const AttributeValue* const value = find_attribute(attributes, name);
  return value == nullptr ? nullptr : std::get_if<std::string>(value);
}

}  // namespace

std::string shown_attribute(const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return printable(*text);
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return std::to_string(*number);
  return std::to_string(std::get<std::uint8_t>(value));
}

std::string config_sha256(const std::string& experiment) {
  std::string lines, last;
  for (const IdentityKey& key : keys_of(experiment)) {
    if (!key.decides || (key.by_content && key.name == last)) continue;
    lines += key.by_content ? key.name + "\n" : key.name + ": " + key.counts + "\n";
    last = key.name;
  }
  return sha256_hex(lines);
}

std::vector<std::string> differing_keys(const std::string& one, const std::string& other, const IdentitySides& sides) {
  std::vector<std::string> all;
  for (const auto& [name, key] : compared_keys(one, other, sides)) {
    if (key.decides && key.counts_one != key.counts_other) all.push_back(both_values(key, sides));
  }
  return all;
}

KeysBehind keys_behind(const std::string& attribute, const std::string& one, const std::string& other,
                       const IdentitySides& sides) {
  KeysBehind keys;
  std::vector<std::string> same;
  const auto compared = compared_keys(one, other, sides);
  const bool has_own =
      std::ranges::any_of(compared, [&](const auto& entry) { return names_own_file(attribute, entry.first); });
  for (const auto& [name, key] : compared) {
    const bool counts = has_own ? names_own_file(attribute, name) : !key.decides || key.by_content;
    if (!counts || !leads_to(attribute, name)) continue;
    if (key.one != key.other) {
      keys.differing.push_back(both_values(key, sides));
    } else if (names_content(attribute, name, key)) {
      same.push_back(key.path);
    }
  }
  if (!same.empty()) keys.same = {fmt::format("{} names other content", fmt::join(same, " or "))};
  return keys;
}

std::string identity_differences(const Attributes& found, const Attributes& expected, const std::string& task_key) {
  const IdentitySides sides{.task_key = task_key};
  const std::string* const there = text_of_attribute(found, "experiment");
  const std::string* const here = text_of_attribute(expected, "experiment");
  std::vector<std::string> all;
  bool compared = false;
  if (there != nullptr && here != nullptr) {
    try {
      all = differing_keys(*there, *here, sides);
      compared = true;
    } catch (const Error&) {  // the attribute was changed: compare its hash
    }
  }
  const bool by_keys = !all.empty();  // then attributes that follow from these keys are not reported
  for (const auto& [name, value] : expected) {
    if (name == "experiment" || (compared && name == "config_sha256")) continue;
    const AttributeValue* const at = find_attribute(found, name);
    if (at != nullptr && *at == value) continue;
    const KeysBehind keys = compared ? keys_behind(name, *there, *here, sides) : KeysBehind();
    if (by_keys && keys.differing.empty()) continue;
    all.push_back(fmt::format("its {} is {}, this run's is {}{}", name, at == nullptr ? "absent" : shown_attribute(*at),
                              shown_attribute(value), keys.in_brackets()));
  }
  if (all.empty()) return "";
  const std::size_t more = all.size() > kMostTold ? all.size() - kMostTold : 0;
  all.resize(all.size() - more);
  return fmt::format("{}{}", fmt::join(all, ", "), more > 0 ? fmt::format(", and {} more", more) : "");
}

std::string KeysBehind::in_brackets() const {
  const std::vector<std::string>& keys = differing.empty() ? same : differing;
  return keys.empty() ? "" : fmt::format(" ({})", fmt::join(keys, ", "));
}

}  // namespace magister
