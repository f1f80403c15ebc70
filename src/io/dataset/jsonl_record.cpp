// Only top-level values are read; deeper ones are only checked for repeated keys and depth, unless a field is a path. A
// record's key is a string or an integer of any length, whose digits are kept; token ids are integers from 0 to 2^31 -
// 1.
#include "io/dataset/jsonl_record.h"

#include <limits>

#include "io/strict_json.h"
#include "magister/core/error.h"
#include "magister/io/dataset/field_path.h"
#include "magister/io/dataset/record_json.h"

namespace magister {
namespace {

constexpr int kRecordDepth = 64;
constexpr std::size_t kRecordKeyBytes = 4096;  // keys are stored in the results file as strings of one length
constexpr std::uint64_t kMaxToken = std::numeric_limits<TokenId>::max();

}  // namespace

class JsonlParser::Events final : public StrictJson {
 public:
  Events(const DatasetConfig& config, const char* unit)
      : StrictJson("", kRecordDepth),
        unit_(unit),
        whole_record_(config.whole_record),
        needs_text_(config.tokens_field.empty()),
        wanted_(needs_text_ ? config.text_field : config.tokens_field),
        key_field_(config.key_field) {}

  void parse(std::string_view line, const std::string& where, Record& record) {
    record_ = &record;
    found_ = found_key_ = false;
    look_through(line, where);
    if (whole_record_) {
      record.text = line;
      record.fields = std::make_shared<const nlohmann::ordered_json>(parse_record(line));
    }
    if (const std::string inner = inner_fields(line, where); !inner.empty()) look_through(inner, where);
    require(found_ || whole_record_, wanted_);
    require(found_key_ || key_field_.empty(), key_field_);
  }

 private:
  void look_through(std::string_view line, const std::string& where) {
    restart(where);
    in_tokens_ = false;
    found_before_ = found_;
    found_key_before_ = found_key_;
    read(line);
  }

  bool on_begin_again() override {
    found_ = found_before_;
    found_key_ = found_key_before_;
    if (!found_) record_->tokens.clear();
    return true;
  }

  // Copies fields that are paths ("a.b[0].c") into an object of their own, each under its whole path, so that the same
  // events read and check them. Empty if no path is requested. Builds a document of this one line.
  std::string inner_fields(std::string_view line, const std::string& where) const {
    std::shared_ptr<const nlohmann::ordered_json> record = record_->fields;
    nlohmann::ordered_json inner = nlohmann::ordered_json::object();
    const auto fetch = [&](const std::string& field) {
      if (!record) record = std::make_shared<const nlohmann::ordered_json>(parse_record(line));
      std::string missing;
      const nlohmann::ordered_json* const value = find_field(*record, field, missing);
      MAGISTER_CHECK(
          value != nullptr, ExitCode::kData,
          "{}: there is no field \"{}\" (the experiment asks for it; {}); fix this {} or the dataset section", where,
          printable(field), missing, unit_);
      inner[field] = *value;
    };
    if (!found_ && !whole_record_ && parse_field_path(wanted_)) fetch(wanted_);
    if (!found_key_ && !key_field_.empty() && !inner.contains(key_field_) && parse_field_path(key_field_))
      fetch(key_field_);
    return inner.empty() ? std::string() : record_text(inner);
  }

  void on_value(Kind kind, std::string& text) override {
    MAGISTER_CHECK(depth() > 0 || kind == Kind::kObject, ExitCode::kData,
                   "{}: the {} is {} (a record is an object); write one object a {}", where(), unit_, name_of(kind),
                   unit_);
    if (depth() == 2 && in_tokens_) {
      fail(ExitCode::kData, "{}: entry {} of \"{}\" is {} (token ids are whole numbers from 0 to {}); fix this {}",
           where(), record_->tokens.size(), printable(wanted_), name_of(kind), kMaxToken, unit_);
    }
    if (depth() != 1) return;
    if (!key_field_.empty() && key() == key_field_) take_key(kind, text);
    if (!whole_record_ && key() == wanted_) take_wanted(kind, text);
  }

  void on_whole(bool negative, std::uint64_t magnitude) override {
    if (depth() != 2 || !in_tokens_) return StrictJson::on_whole(negative, magnitude);
    MAGISTER_CHECK(!negative && magnitude <= kMaxToken, ExitCode::kData,
                   "{}: entry {} of \"{}\" is {}{} (token ids go from 0 to {}); fix this {}", where(),
                   record_->tokens.size(), printable(wanted_), negative ? "-" : "", magnitude, kMaxToken, unit_);
    record_->tokens.push_back(static_cast<TokenId>(magnitude));
  }

  void on_end() override {
    if (depth() == 1) in_tokens_ = false;
  }

  void take_key(Kind kind, const std::string& text) {
    MAGISTER_CHECK(kind == Kind::kText || kind == Kind::kWhole, ExitCode::kData,
                   "{}: the key \"{}\" is {} (a text or a whole number is expected); fix this {}", where(),
                   printable(key_field_), name_of(kind), unit_);
    MAGISTER_CHECK(
        text.size() <= kRecordKeyBytes && text.find('\0') == std::string::npos, ExitCode::kData,
        "{}: the key \"{}\" has {} bytes or a NUL character (at most {} bytes and no NUL are stored); fix this {}",
        where(), printable(text, 60), text.size(), kRecordKeyBytes, unit_);
    record_->key = text;
    found_key_ = true;
  }

  void take_wanted(Kind kind, std::string& text) {
    MAGISTER_CHECK(kind == (needs_text_ ? Kind::kText : Kind::kArray), ExitCode::kData,
                   "{}: \"{}\" is {} ({} is expected); fix this {} or name another field", where(), printable(wanted_),
                   name_of(kind), needs_text_ ? "a text" : "a list of token ids", unit_);
    found_ = true;
    in_tokens_ = !needs_text_;
    if (needs_text_) record_->text = std::move(text);
  }

  void require(bool found, const std::string& field) const {
    if (found) return;
    const std::string near = nearest_name(field, keys(1));
    std::string seen;
    for (const std::string& name : keys(1)) seen += (seen.empty() ? "" : ", ") + printable(name, 40);
    fail(ExitCode::kData,
         "{}: there is no field \"{}\" (the experiment asks for it; the record has {}); {}fix this {} or the "
         "dataset section",
         where(), printable(field), seen.empty() ? "none" : printable(seen),
         near.empty() ? "" : "did you mean \"" + printable(near, 80) + "\"? else ", unit_);
  }

  const char* const unit_;
  const bool whole_record_, needs_text_;
  const std::string wanted_, key_field_;
  Record* record_ = nullptr;
  bool found_ = false, found_key_ = false, in_tokens_ = false;
  bool found_before_ = false, found_key_before_ = false;  // the state before the current text of this record
};

JsonlParser::JsonlParser(const DatasetConfig& config, const char* unit)
    : events_(std::make_unique<Events>(config, unit)) {}
JsonlParser::~JsonlParser() = default;

void JsonlParser::parse(std::string_view line, const std::string& where, Record& record) {
  // The parser would skip the mark silently; inside a file it shows that files were concatenated.
  MAGISTER_CHECK(!line.starts_with("\xEF\xBB\xBF"), ExitCode::kData,
                 "{}: begins with a byte order mark (it is allowed only at the beginning of a file); remove it", where);
  events_->parse(line, where, record);
}

void check_text(std::string_view line, const std::string& where) {
  const std::size_t bad = find_bad_utf8(line);
  MAGISTER_CHECK(bad == line.size(), ExitCode::kData,
                 "{}: not valid UTF-8 at byte {} of the line (the text would have to be "
                 "guessed); convert the file to UTF-8",
                 where, bad + 1);
  const std::size_t nul = line.find('\0');
  MAGISTER_CHECK(nul == std::string_view::npos, ExitCode::kData,
                 "{}: a NUL character at byte {} of the line (no text has one; "
                 "the file is damaged or binary); fix this line",
                 where, nul + 1);
}

}  // namespace magister
