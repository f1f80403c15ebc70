// nlohmann's SAX interface: values of the top level are looked at, everything deeper is only counted.
#include "io/jsonl_record.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

using nlohmann::json;
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxKeyBytes = 4096;

class RecordReader final : public json::json_sax_t {
 public:
  RecordReader(const DatasetConfig& config, const std::string& where, Record& record)
      : config_(config), where_(where), record_(record) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a truth value"); }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return integer(value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())
                       ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return other("a number with a fraction"); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool string(string_t& value) override {
    if (depth_ != 1) return other("text");
    if (field_ == config_.key_field) return key_text(value);
    if (wants_text() && field_ == config_.text_field) {
      MAGISTER_CHECK(value.find('\0') == std::string::npos, ExitCode::kData, "{}: \"{}\" holds a NUL character (no text does; "
                     "the file is damaged); mend the line", where_, printable(field_));
      record_.text = std::move(value);
      found_ = true;
      return true;
    }
    return other("text");
  }

  bool start_object(std::size_t) override {
    if (depth_ > 0) other("an object");
    return deeper();
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    MAGISTER_CHECK(depth_ > 0, ExitCode::kData, "{}: the line is an array (a record is an object); write one object a line",
                   where_);
    in_tokens_ = depth_ == 1 && !wants_text() && field_ == config_.tokens_field;
    if (in_tokens_) {
      found_ = true;
    } else {
      other("an array");
    }
    return deeper();
  }
  bool end_array() override {
    in_tokens_ = false;
    return --depth_, true;
  }

  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    for (const std::string& seen : fields_) {
      MAGISTER_CHECK(seen != name, ExitCode::kData, "{}: \"{}\" is there twice (which one is meant?); mend the line", where_,
                     printable(name));
    }
    fields_.push_back(name);
    field_ = name;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string reason = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    if (const auto colon = reason.find(": "); colon != std::string::npos) reason = reason.substr(colon + 2);
    fail(ExitCode::kData, "{}:{}: not valid JSON: {} (the record cannot be read); mend the line or remove it", where_, position,
         printable(reason));
  }

  void finish() const {
    const std::string& wanted = wants_text() ? config_.text_field : config_.tokens_field;
    require(found_, wanted);
    require(config_.key_field.empty() || found_key_, config_.key_field);
  }

 private:
  bool wants_text() const { return config_.tokens_field.empty(); }

  void require(bool found, const std::string& wanted) const {
    const std::string near = nearest_name(wanted, fields_);
    MAGISTER_CHECK(found, ExitCode::kData, "{}: there is no field \"{}\" (the experiment asks for it){}; mend the line or the "
                   "dataset section", where_, printable(wanted), near.empty() ? "" : "; did you mean \"" + printable(near) + "\"?");
  }

  bool deeper() {
    MAGISTER_CHECK(++depth_ <= kMaxDepth, ExitCode::kData, "{}: nested deeper than {} (no record is); mend the line", where_,
                   kMaxDepth);
    return true;
  }

  bool integer(std::int64_t value) {
    if (in_tokens_ && depth_ == 2) {
      MAGISTER_CHECK(value >= 0 && value <= std::numeric_limits<TokenId>::max(), ExitCode::kData,
                     "{}: token {} of \"{}\" is {} (token ids go from 0 to {}); mend the line", where_, record_.tokens.size(),
                     printable(field_), value, std::numeric_limits<TokenId>::max());
      record_.tokens.push_back(static_cast<TokenId>(value));
      return true;
    }
    if (depth_ == 1 && field_ == config_.key_field) return key_text(std::to_string(value));
    return other("a number");
  }

  bool key_text(std::string value) {
    MAGISTER_CHECK(value.size() <= kMaxKeyBytes && value.find('\0') == std::string::npos, ExitCode::kData,
                   "{}: the key \"{}\" has {} bytes (at most {} and no NUL are stored); mend the line", where_,
                   printable(value, 60), value.size(), kMaxKeyBytes);
    record_.key = std::move(value);
    found_key_ = true;
    return true;
  }

  // A value that is not what a field needs, or one that nobody asked for.
  bool other(const char* what) {
    MAGISTER_CHECK(depth_ > 0, ExitCode::kData, "{}: the line is {} (a record is an object); write one object a line", where_,
                   what);
    MAGISTER_CHECK(!(in_tokens_ && depth_ >= 2), ExitCode::kData, "{}: \"{}\" holds {} (token ids are whole numbers); mend the "
                   "line", where_, printable(field_), what);
    if (depth_ != 1) return true;
    const std::string& wanted = wants_text() ? config_.text_field : config_.tokens_field;
    MAGISTER_CHECK(field_ != wanted, ExitCode::kData, "{}: \"{}\" is {} (expected {}); mend the line", where_,
                   printable(field_), what, wants_text() ? "text" : "a list of token ids");
    MAGISTER_CHECK(config_.key_field.empty() || field_ != config_.key_field, ExitCode::kData,
                   "{}: the key \"{}\" is {} (text or a whole number is expected); mend the line", where_, printable(field_),
                   what);
    return true;
  }

  const DatasetConfig& config_;
  const std::string& where_;
  Record& record_;
  std::vector<std::string> fields_;
  std::string field_;
  int depth_ = 0;
  bool in_tokens_ = false, found_ = false, found_key_ = false;
};

}  // namespace

void parse_jsonl_record(std::string_view line, const DatasetConfig& config, const std::string& where, Record& record) {
  MAGISTER_CHECK(line.find_first_not_of(" \t\r") != std::string_view::npos, ExitCode::kData,
                 "{}: the line is empty (a JSONL line is one object); remove it", where);
  const std::size_t bad = find_invalid_utf8(line);
  MAGISTER_CHECK(bad == line.size(), ExitCode::kData, "{}: not valid UTF-8 at byte {} of the line (the text would be guessed); "
                 "convert the file to UTF-8", where, bad + 1);
  RecordReader reader(config, where, record);
  json::sax_parse(line, &reader);
  reader.finish();
}

}  // namespace magister
