// Lines: in JSONL those that are not blank. CSV by RFC 4180, where a line end inside quotes is part of a field. JSON
// (RFC 8259): a list of objects, or objects one after the other. Only the borders are found here: the parser checks
// each record completely.
#include "io/dataset/record_rule.h"

#include <algorithm>

#include "io/dataset/newlines.h"
#include "magister/core/error.h"

namespace magister {
namespace {

class LineRule final : public RecordRule {
 public:
  explicit LineRule(bool skips_blank) : skips_blank_(skips_blank) {}

  bool find(std::string_view pending, bool last, Cut& cut) override {
    std::size_t begin = 0;  // after blank lines
    for (;;) {
      const std::size_t found = pending.find('\n', std::max(begin, seen_));
      const bool open = found == std::string_view::npos;
      if (open && (!last || begin == pending.size())) break;
      const std::size_t end = open ? pending.size() : found, next = open ? end : end + 1;
      seen_ = 0;
      if (skips_blank_ && is_blank_line(pending.substr(begin, end - begin))) {
        begin = next;
        continue;
      }
      cut = {begin, end, next};
      return true;
    }
    // Only blank lines: as a cut without a record they can be dropped.
    cut = {begin, begin, begin};
    seen_ = pending.size() - begin;
    return false;
  }

 private:
  const bool skips_blank_;
  std::size_t seen_ = 0;  // bytes of the current line that were searched and hold no line end
};

// Blank lines between rows are not rows, as for Python's csv and pandas.
class CsvRule final : public RecordRule {
 public:
  explicit CsvRule(char separator) : separator_(separator) {}

  bool find(std::string_view pending, bool last, Cut& cut) override {
    for (; seen_ < pending.size(); ++seen_) {
      const char c = pending[seen_];
      if (quoted_) {
        quoted_ = c != '"';
        field_begins_ = false;
        continue;
      }
      if (c == '\n') {
        const bool blank = seen_ == begin_ || (seen_ == begin_ + 1 && pending[begin_] == '\r');
        if (!blank) return take(cut, seen_, seen_ + 1);
        begin_ = seen_ + 1;
        field_begins_ = true;
        continue;
      }
      // A second quote directly after the closing one opens the field again: it is the doubled quote of a quoted field.
      quoted_ = c == '"' && (field_begins_ || (seen_ > begin_ && was_quoted_ && pending[seen_ - 1] == '"'));
      was_quoted_ = quoted_ || (was_quoted_ && c != separator_);
      field_begins_ = c == separator_;
    }
    if (!last) {
      if (begin_ < pending.size()) return false;
      // Only blank lines: as a cut without a record they can be dropped.
      cut = {seen_, seen_, seen_};
      seen_ = begin_ = 0;
      return false;
    }
    if (quoted_) {
      throw Fault{begin_, "a quoted field is still open at the end of the file (a \" is missing); fix this row"};
    }
    return begin_ < pending.size() && pending.substr(begin_) != "\r" && take(cut, seen_, seen_);
  }

 private:
  bool take(Cut& cut, std::size_t end, std::size_t next) {
    cut = {begin_, end, next};
    seen_ = begin_ = 0;
    quoted_ = was_quoted_ = false;
    field_begins_ = true;
    return true;
  }

  const char separator_;
  std::size_t seen_ = 0, begin_ = 0;  // begin_: after blank lines
  bool quoted_ = false, was_quoted_ = false, field_begins_ = true;
};

class JsonRule final : public RecordRule {
 public:
  explicit JsonRule(bool begun) : begun_(begun), state_(begun ? State::kBetween : State::kStart) {}

  bool find(std::string_view pending, bool last, Cut& cut) override {
    for (; seen_ < pending.size(); ++seen_) {
      const char c = pending[seen_];
      if (state_ != State::kInside) {
        outside(c);
        continue;
      }
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        cut = {begin_, seen_ + 1, seen_ + 1};
        seen_ = begin_ = 0;
        state_ = is_list_ ? State::kAfter : State::kBetween;
        return true;
      }
    }
    if (!last) return false;
    if (state_ == State::kInside || (is_list_ && state_ != State::kEnd)) {
      throw Fault{begin_, state_ == State::kInside ? "the file ends inside this object (it is cut off); write it again"
                                                   : "the file ends inside its list (it is cut off); write it again"};
    }
    return false;
  }

 private:
  // kStart: nothing read; kBetween: an object may begin (kFirst: or the list may end); kAfter: a comma or the list's
  // end must follow.
  enum class State { kStart, kFirst, kBetween, kAfter, kInside, kEnd };

  void outside(char c) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return;
    if (begun_ && (c == ',' || c == ']')) return;  // the whole file was checked when it was indexed
    if (c == '[' && state_ == State::kStart) {
      is_list_ = true;
      state_ = State::kFirst;
    } else if (c == '{' && state_ != State::kAfter && state_ != State::kEnd) {
      begin_ = seen_;
      depth_ = 1;
      state_ = State::kInside;
    } else if (c == ',' && state_ == State::kAfter) {
      state_ = State::kBetween;
    } else if (c == ']' && (state_ == State::kAfter || state_ == State::kFirst)) {
      state_ = State::kEnd;
    } else {
      throw Fault{seen_, fmt::format("\"{}\" was found where {} (a file of records is a list of objects, or objects "
                                     "one after the other); fix it",
                                     printable(std::string_view(&c, 1)),
                                     state_ == State::kAfter ? "a comma or the end of the list is expected"
                                     : state_ == State::kEnd ? "nothing may follow"
                                                             : "an object begins")};
    }
  }

  const bool begun_;
  State state_;
  std::size_t seen_ = 0, begin_ = 0;
  std::uint64_t depth_ = 0;
  bool is_list_ = false, in_string_ = false, escaped_ = false;
};

}  // namespace

std::unique_ptr<RecordRule> record_rule(DataKind kind, bool begun) {
  if (kind == DataKind::kJson) return std::make_unique<JsonRule>(begun);
  if (kind == DataKind::kCsv || kind == DataKind::kTsv)
    return std::make_unique<CsvRule>(kind == DataKind::kCsv ? ',' : '\t');
  return std::make_unique<LineRule>(kind == DataKind::kJsonLines);
}

}  // namespace magister
