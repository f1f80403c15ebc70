// JSON events in which faults of foreign files are already refused: NUL bytes, bad UTF-8, deep nesting, repeated keys.
// No document tree is built, so memory does not grow with the text. Source: RFC 8259, nlohmann-json's SAX interface.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/large_numbers.h"

namespace magister {

// Names of one object, to detect repeated ones: up to 16 are compared one by one, more are hashed.
class NameSet {
 public:
  bool insert(const std::string& name);  // false: the name was already there
  void clear();
  const std::vector<std::string>& first() const { return few_; }  // the first 16

 private:
  std::vector<std::string> few_;
  std::unordered_set<std::string> more_;
};

class StrictJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `where` begins every message ("file:line").
  StrictJson(std::string where, int max_depth) : where_(std::move(where)), max_depth_(max_depth) {}

  // Runs the events over one complete text. Throws Error(kData).
  void read(std::string_view text);

 protected:
  // Prepares for another text.
  void restart(const std::string& where);

  enum class Kind { kNull, kBool, kWhole, kFraction, kText, kObject, kArray };
  static const char* name_of(Kind kind);  // "a number with a fraction"

  // Called for a scalar, or at the beginning of an object or array. An integer of any length is kWhole. depth() is the
  // number of open objects and arrays around it, key() the last key at that depth. For kText and kWhole (its digits)
  // the callee may take `text`.
  virtual void on_value(Kind kind, std::string& text) = 0;
  // Called for integers of at most 64 bits, for callees that read many; the default passes their digits to on_value.
  virtual void on_whole(bool negative, std::uint64_t magnitude);
  virtual void on_key(const std::string& name) {}
  // Called before a text with a number that no double holds is parsed again from its beginning, now with that number's
  // spelling: the callee must forget what it took from this text. False: the text is refused.
  virtual bool on_begin_again() { return false; }
  virtual void on_end() {}  // end of an object or array; depth() is already that of the surroundings

  int depth() const { return depth_; }
  const std::string& where() const { return where_; }
  const std::string& key() const { return levels_[static_cast<std::size_t>(depth_)].key; }
  // Keys so far of the object that is open at this depth (at most 16), for "did you mean".
  const std::vector<std::string>& keys(int at_depth) const {
    return levels_[static_cast<std::size_t>(at_depth)].names.first();
  }

 private:
  bool null() final { return scalar(Kind::kNull); }
  bool boolean(bool) final { return scalar(Kind::kBool); }
  bool number_integer(number_integer_t value) final {
    large_.next();
    return on_whole(value < 0, value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value)),
           true;
  }
  bool number_unsigned(number_unsigned_t value) final;
  bool number_float(number_float_t, const string_t& digits) final;
  bool string(string_t& value) final { return on_value(Kind::kText, value), true; }
  bool binary(binary_t&) final { return false; }  // not in JSON text
  bool start_object(std::size_t) final { return open(Kind::kObject); }
  bool end_object() final { return close(); }
  bool start_array(std::size_t) final { return open(Kind::kArray); }
  bool end_array() final { return close(); }
  bool key(string_t& name) final;
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception& error) final;

  bool scalar(Kind kind, std::string text = {}) { return on_value(kind, text), true; }
  bool open(Kind kind);
  bool close();

  struct Level {
    std::string key;
    NameSet names;
  };
  void read_once(std::string_view text);

  std::string where_;
  int max_depth_;
  LargeNumbersInOrder large_;
  bool begins_again_ = false;
  int depth_ = 0;
  std::vector<Level> levels_ = std::vector<Level>(1);
};

// Position of the first byte that is not well-formed UTF-8, or text.size(). Runs of ASCII are skipped 8 bytes at a
// time.
std::size_t find_bad_utf8(std::string_view text) noexcept;

}  // namespace magister
