// What makes results those of one experiment. The root attribute `experiment` says what was asked for, and what decides the results counts. A key that
// only says where a model, data or an earlier task's results stand does not: what stands there is told by a hash of its own (model_sha256,
// dataset_sha256, answers_sha256, ...), so copies, links and other spellings of a path are the same. Nor do the names of experiment and task, the
// slice, and the devices, whose kind and number in a group are attributes, too. Local.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/results_file.h"

namespace magister {

// Of the keys that count in an `experiment` of one task. Files of earlier builds have another one, over the paths, too: whoever compares files
// compares their experiments (identity_differences()), of which all builds have written the same. Throws Error(kData) for what is no YAML.
std::string config_sha256(const std::string& experiment);

// How two sides are called: "top_k is 16 in it and 8 in this run".
struct IdentitySides {
  std::string one = "in it", other = "in this run";
  std::string task_key = "tasks.0.";  // what stands before a task's own keys
};

// The keys that count and differ, each with both values. Empty: they ask for the same. Throws as config_sha256().
std::vector<std::string> differing_keys(const std::string& one, const std::string& other, const IdentitySides& sides);

// The keys that lead to what an attribute of this name tells.
struct KeysBehind {
  std::vector<std::string> differing;  // "model.path is a in it and b in this run"
  std::vector<std::string> same;       // "model.path names other content"
  std::string in_brackets() const;     // " (...)": those that differ, else the others; empty: none is known
};
// Throws likewise.
KeysBehind keys_behind(const std::string& attribute, const std::string& one, const std::string& other,
                       const IdentitySides& sides);

// What of `expected` a file with these attributes does not say, key by key where the two experiments differ, else attribute by attribute with
// the keys behind it. Empty: it belongs to this run.
std::string identity_differences(const Attributes& found, const Attributes& expected,
                                 const std::string& task_key = "tasks.0.");

// A value for people.
std::string shown_attribute(const AttributeValue& value);

}  // namespace magister
