// schema: the form of experiment files as a JSON Schema (draft 7, which editors' YAML servers support best). Keys,
// types, defaults and ranges are those that the reads declare (config_rules.h); descriptions are those of key_pages.h.
// Rules that involve several keys are checked only by the program.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/key_pages.h"
#include "app/on_rank_zero.h"
#include "magister/app/experiment.h"

namespace magister {

namespace {

using Json = nlohmann::ordered_json;

// Maps each key to its meaning.
std::map<std::string, std::string> meanings() {
  std::map<std::string, std::string> meanings;
  for (KeyEntry& entry : key_entries()) meanings[entry.name] = std::move(entry.meaning);
  return meanings;
}

Json parsed(const std::string& json) { return Json::parse(json); }

Json schema_of(const ConfigRule& rule) {
  Json schema;
  switch (rule.type) {
    case ConfigRule::Type::kText:
      schema = {{"type", "string"}, {"minLength", 1}};
      break;
    case ConfigRule::Type::kInteger:
      schema = {{"type", "integer"}};
      break;
    case ConfigRule::Type::kNumber:
      schema = {{"type", "number"}};
      break;
    case ConfigRule::Type::kBoolean:
      schema = {{"type", "boolean"}};
      break;
    case ConfigRule::Type::kTextMap:
      return {{"type", "object"}, {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
    case ConfigRule::Type::kChoice:
      schema = {{"type", "string"}, {"enum", rule.names}};
      break;
  }
  if (!rule.numbers.empty()) schema["enum"] = rule.numbers;
  if (!rule.least.empty()) schema[rule.above_least ? "exclusiveMinimum" : "minimum"] = parsed(rule.least);
  if (!rule.most.empty()) schema["maximum"] = parsed(rule.most);
  if (!rule.pattern.empty()) schema["pattern"] = rule.pattern;
  if (!rule.is_list) return schema;
  return {{"type", "array"}, {"minItems", 1}, {"items", schema}};
}

// A map is required if one of its keys is.
bool is_required(const ConfigKey& key) {
  if (!key.required || key.maps.empty() || key.is_list) return key.required;
  const ConfigRules& inside = *key.maps.front();
  return !inside.one_of.empty() ||
         std::any_of(inside.keys.begin(), inside.keys.end(), [](const auto& inner) { return is_required(*inner); });
}

class SchemaWriter {
 public:
  Json write(const ConfigRules& experiment, const std::vector<std::string>& kinds) {
    Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"title", "magister experiment"},
                   {"description", "An experiment of magister; configs/keys explains every key."}};
    const ConfigKey& tasks = *experiment.find("tasks");
    Json item = {
        {"type", "object"},
        {"required", {"task"}},
        {"properties", {{"task", {{"type", "string"}, {"enum", kinds}, {"description", meaning("tasks.0.task")}}}}},
        {"allOf", Json::array()}};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::string definition = "task_" + kinds[i];
      definitions_[definition] = map(*tasks.maps[i], kinds[i] + ".");
      definitions_[definition]["properties"]["task"] = {{"const", kinds[i]}};
      item["allOf"].push_back({{"if", {{"required", {"task"}}, {"properties", {{"task", {{"const", kinds[i]}}}}}}},
                               {"then", {{"$ref", "#/$defs/" + definition}}}});
    }
    definitions_["group"] = group();
    item = {{"if", {{"anyOf", {{{"required", {"rounds"}}}, {{"required", {"matrix"}}}}}}},
            {"then", {{"$ref", "#/$defs/group"}}},
            {"else", item}};
    const Json top = map(experiment, "");
    for (const auto& [name, value] : top.items()) schema[name] = value;
    schema["properties"]["tasks"]["items"] = item;
    schema["$defs"] = definitions_;
    return schema;
  }

 private:
  // A group of repeated entries. Values in them may be the name of a variable in braces, so only the program checks
  // them.
  Json group() const {
    const Json entries = {{"type", "array"},
                          {"minItems", 1},
                          {"items", {{"type", "object"}}},
                          {"description",
                           "what is repeated; a value may have {round}, {round-1} or a name of the matrix in it, and "
                           "first_round holds what an entry has in the first round in place of its own keys"}};
    const Json scalar = {{"type", {"string", "number", "boolean"}}};
    return {{"type", "object"},
            {"additionalProperties", false},
            {"oneOf", {{{"required", {"rounds", "tasks"}}}, {{"required", {"matrix", "tasks"}}}}},
            {"properties",
             {{"rounds",
               {{"type", "integer"},
                {"minimum", 1},
                {"maximum", 10'000},
                {"description", "how often the tasks below are repeated, one round after the other"}}},
              {"matrix",
               {{"type", "object"},
                {"minProperties", 1},
                {"additionalProperties",
                 {{"type", "array"},
                  {"minItems", 1},
                  {"items", {{"anyOf", {scalar, {{"type", "object"}, {"additionalProperties", scalar}}}}}}}},
                {"description", "the tasks below are repeated for every combination of these values"}}},
              {"tasks", entries}}}};
  }

  // The meaning from the row of the key itself, or of the key with the same name that tasks share.
  std::string meaning(const std::string& path) const {
    std::vector<std::string> names = {path};
    if (const std::size_t point = path.find('.'); point != std::string::npos) {
      names.push_back("tasks.0." + path.substr(point + 1));
      names.push_back(path.substr(point + 1));
    }
    for (const std::string& name : names) {
      if (const auto found = meanings_.find(name); found != meanings_.end()) return found->second;
    }
    return {};
  }

  // prefix: path of the map's keys in the tables.
  Json map(const ConfigRules& rules, const std::string& prefix) {
    Json schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    Json required = Json::array();
    for (const auto& key : rules.keys) {
      if (key->rules.empty() && key->maps.empty()) continue;  // another program's name for a key of another map
      if (is_required(*key)) required.push_back(key->name);
      schema["properties"][key->name] = value(*key, prefix + key->name);
    }
    if (!required.empty()) schema["required"] = required;
    for (const std::vector<std::string>& choice : rules.one_of) {
      Json ways = Json::array();
      for (const std::string& name : choice) ways.push_back({{"required", {name}}});
      schema["allOf"].push_back({{"oneOf", ways}});
    }
    return schema;
  }

  Json value(const ConfigKey& key, const std::string& path) {
    Json schema = Json::object();
    if (const std::string text = meaning(path); !text.empty()) schema["description"] = text;
    if (!key.maps.empty()) {
      Json inside = shared(key.name, map(*key.maps.front(), path + "."));
      if (key.is_list) {
        schema.update({{"type", "array"}, {"minItems", 1}, {"items", inside}});
      } else if (inside.contains("$ref") && !schema.empty()) {
        schema["allOf"] = {inside};  // draft 7 ignores keys next to a $ref
      } else {
        schema.update(inside);
      }
      return schema;
    }
    if (key.rules.size() == 1) {
      schema.update(schema_of(key.rules.front()));
    } else {
      for (const ConfigRule& rule : key.rules) schema["anyOf"].push_back(schema_of(rule));
    }
    if (!key.fallback.empty()) schema["default"] = parsed(key.fallback);
    return schema;
  }

  // Writes a section that occurs in several places only once.
  Json shared(const std::string& name, Json section) {
    if (!definitions_.contains(name)) definitions_[name] = section;
    if (definitions_[name] == section) return {{"$ref", "#/$defs/" + name}};
    return section;
  }

  const std::map<std::string, std::string> meanings_ = meanings();
  Json definitions_ = Json::object();
};

}  // namespace

ExitCode schema_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::unique_ptr<ConfigDocument> experiment = Experiment::rules(call.kinds);
    say(SchemaWriter().write(experiment->rules(), names_of(call.kinds)).dump(2) + "\n");
    return ExitCode::kDone;
  });
}

}  // namespace magister
