// Builds a document from nlohmann-json's events, because only the events of numbers with a fraction give the spelling.
#include "magister/io/dataset/record_json.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "io/large_numbers.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

ordered_json spelled_number(const std::string& digits) {
  return ordered_json::binary(std::vector<std::uint8_t>(digits.begin(), digits.end()));
}

class RecordBuilder final : public nlohmann::json_sax<ordered_json> {
 public:
  explicit RecordBuilder(LargeNumbersInOrder large = LargeNumbersInOrder()) : large_(std::move(large)) {}

  ordered_json root;
  bool met_a_large_number = false;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return large_.next(), add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    const std::string* const large = large_.next();
    return large != nullptr ? add(spelled_number(*large)) : add(value);
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    large_.next();
    return is_whole_spelling(digits) ? add(spelled_number(digits)) : add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // does not occur in JSON text
  bool start_object(std::size_t) override { return open(ordered_json::object()); }
  bool start_array(std::size_t) override { return open(ordered_json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override { return key_ = std::move(name), true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    met_a_large_number = error.id == kNumberTooLarge;
    return false;
  }

 private:
  bool add(ordered_json value) { return place(std::move(value)), true; }
  bool open(ordered_json container) {
    open_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  // An open container's parent does not change before the container is closed, so its address stays valid.
  ordered_json& place(ordered_json value) {
    if (open_.empty()) return root = std::move(value);
    ordered_json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  LargeNumbersInOrder large_;
  std::vector<ordered_json*> open_;
  std::string key_;
};

void append_record(std::string& text, const ordered_json& value) {
  const auto scalar = [&](const ordered_json& one) {
    text += one.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  if (value.is_binary()) {
    text.append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_array()) {
    text += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) text += ',';
      append_record(text, value[i]);
    }
    text += ']';
  } else if (value.is_object()) {
    text += '{';
    for (auto entry = value.begin(); entry != value.end(); ++entry) {
      if (entry != value.begin()) text += ',';
      scalar(entry.key());
      text += ':';
      append_record(text, entry.value());
    }
    text += '}';
  } else {
    scalar(value);
  }
}

}  // namespace

ordered_json parse_record(std::string_view text) {
  RecordBuilder builder;
  if (ordered_json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root);
  if (!builder.met_a_large_number) return ordered_json(ordered_json::value_t::discarded);
  WithoutLargeNumbers finite = without_large_numbers(text);
  RecordBuilder again{LargeNumbersInOrder(std::move(finite.numbers))};
  const bool good = ordered_json::sax_parse(finite.text, &again);
  return good ? std::move(again.root) : ordered_json(ordered_json::value_t::discarded);
}

std::string record_text(const ordered_json& record) {
  std::string text;
  append_record(text, record);
  return text;
}

}  // namespace magister
