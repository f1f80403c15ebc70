// Decides whether results belong to one experiment. The root attribute `experiment` holds the resolved experiment; the
// keys that decide the results are compared. A key that only says where a model, data or an earlier task's results are
// stored is not compared, because a hash identifies the content (model_sha256, dataset_sha256, answers_sha256, ...); so
// copies, links and other spellings of a path are the same. Nor are the names of experiment and task, the slice, and
// the devices, whose kind and number per group are attributes, too. Local.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "magister/io/results/results_file.h"

namespace magister {

// Hash of the keys that count in an `experiment` of one task. Files of earlier builds have another hash, which included
// the paths. So compare experiments (identity_differences()), which all builds write alike, and not hashes. Throws
// Error(kData) if the text is not YAML.
std::string config_sha256(const std::string& experiment);

// Names of the two sides in messages: "top_k is 16 in it and 8 in this run".
struct IdentitySides {
  std::string one = "in it", other = "in this run";
  std::string task_key = "tasks.0.";  // prefix of a task's own keys
};

// The keys that count and differ, each with both values. Empty: both ask for the same. Throws as config_sha256().
std::vector<std::string> differing_keys(const std::string& one, const std::string& other, const IdentitySides& sides);

// The keys that decide the value of an attribute.
struct KeysBehind {
  std::vector<std::string> differing;  // "model.path is a in it and b in this run"
  std::vector<std::string> same;       // "model.path names other content"
  std::string in_brackets() const;  // " (...)": the differing keys, or the others if none differs; empty: none is known
};
// Throws as config_sha256().
KeysBehind keys_behind(const std::string& attribute, const std::string& one, const std::string& other,
                       const IdentitySides& sides);

// The differences between `expected` and a file with attributes `found`: key by key where the two experiments differ,
// else attribute by attribute with the keys that decide it. Empty: the file belongs to this run.
std::string identity_differences(const Attributes& found, const Attributes& expected,
                                 const std::string& task_key = "tasks.0.");

// A value as text for messages.
std::string shown_attribute(const AttributeValue& value);

}  // namespace magister
