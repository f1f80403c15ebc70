// A value of a JSON file that knows its path, so that messages can name it.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/types.h"

namespace magister {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path, const std::string& source)
      : value_(value), path_(std::move(path)), source_(source) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::kData, "{}: {}: {}", source_, path_.empty() ? "the file" : printable(path_),
         fmt::format(format, std::forward<Args>(args)...));
  }
  void need(bool good, const char* expected) const {
    if (!good) refuse("is no {} (the file cannot be used); fetch it again", expected);
  }

  const nlohmann::json& value() const { return value_; }
  const std::string& source() const { return source_; }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  JsonNode at(const std::string& key) const {
    need(value_.is_object(), "object");
    if (!value_.contains(key)) refuse("has no \"{}\" (the file cannot be used); fetch it again", printable(key));
    return {value_[key], path_.empty() ? key : path_ + "." + key, source_};
  }
  std::vector<JsonNode> list() const {
    need(value_.is_array(), "list");
    std::vector<JsonNode> nodes;
    nodes.reserve(value_.size());
    for (std::size_t i = 0; i < value_.size(); ++i)
      nodes.emplace_back(value_[i], fmt::format("{}[{}]", path_, i), source_);
    return nodes;
  }
  std::string text() const {
    need(value_.is_string(), "text");
    return value_.get<std::string>();
  }
  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    at(key).need(value_[key].is_boolean(), "true or false");
    return value_[key].get<bool>();
  }
  TokenId id() const {
    need(value_.is_number_integer(), "whole number");
    need(!value_.is_number_unsigned() || value_.get<std::uint64_t>() <= 0x7FFFFFFF, "token id");
    const auto number = value_.get<std::int64_t>();
    need(number >= 0 && number <= std::numeric_limits<TokenId>::max(), "token id");
    return static_cast<TokenId>(number);
  }
  double number() const {
    need(value_.is_number(), "number");
    return value_.get<double>();
  }
  std::size_t size(std::size_t most) const {
    need(value_.is_number_integer(), "whole number");
    const auto number = value_.get<std::int64_t>();
    if (number < 0 || static_cast<std::uint64_t>(number) > most)
      refuse("is {} (0 to {} are known); fetch the file again", number, most);
    return static_cast<std::size_t>(number);
  }
  std::string type() const { return at("type").text(); }
  // Refuses keys that are not read: they could change ids.
  void only(std::initializer_list<const char*> known) const {
    need(value_.is_object(), "object");
    for (const auto& [key, ignored] : value_.items()) {
      bool found = key == "type";
      for (const char* name : known) found = found || key == name;
      if (!found)
        refuse("has the key \"{}\", which is not known here (it could change the tokens); use a supported tokenizer",
               printable(key));
    }
  }

 private:
  const nlohmann::json& value_;
  std::string path_;
  const std::string& source_;
};

// Throws Error(kData) if the text is not JSON, not UTF-8, or nested too deeply.
nlohmann::json parse_tokenizer_file(std::string_view text, const std::string& source);

}  // namespace magister
