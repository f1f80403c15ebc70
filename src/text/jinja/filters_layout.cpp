// Filters for layout: wordwrap and pprint.
// Source: Jinja 3.1 filters.py, which calls Python's textwrap.wrap() and pprint.pformat(); both are reproduced chunk by
// chunk.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"
#include "text/pattern.h"

namespace magister::jinja {
namespace {

bool is_blank(std::string_view text) { return strip(text, nullptr, Side::kBoth).empty(); }
std::int64_t length_of_text(std::string_view text) { return static_cast<std::int64_t>(count_points(text)); }

// Python's TextWrapper with drop_whitespace, without its other options.
class Wrapper {
 public:
  Wrapper(std::int64_t width, bool break_words, bool break_hyphens)
      : width_(width), break_words_(break_words), break_hyphens_(break_hyphens) {}

  std::vector<std::string> lines_of(std::string_view text) {
    split(text);
    std::vector<std::string> lines;
    while (next_ < chunks_.size()) {
      if (!lines.empty() && is_blank(chunks_[next_])) ++next_;
      std::vector<std::string_view> line = take_line();
      if (!line.empty() && is_blank(line.back())) line.pop_back();
      if (!line.empty()) lines.push_back(fmt::format("{}", fmt::join(line, "")));
    }
    return lines;
  }

 private:
  // Matches white space, a dash between words, or a word: up to its end, up to and including a hyphen between letters,
  // or up to a dash.
  static std::string hyphen_pattern() {
    const std::string word = R"([\p{L}\p{N}_])", letter = R"([\p{L}\p{Nl}\p{No}_])", mark = R"([\p{L}\p{N}_!"'&.,?])";
    const std::string hyphen =
        "-(?:(?<=" + letter + letter + "-)|(?<=" + letter + "-" + letter + "-))(?=" + letter + "-?" + letter + ")";
    return R"([\t\n\x0b\x0c\r ]+|(?<=)" + mark + ")-{2,}(?=" + word + R"()|[^\t\n\x0b\x0c\r ]+?(?:)" + hyphen +
           R"(|(?=[\t\n\x0b\x0c\r ])|$|(?<=)" + mark + ")(?=-{2,}" + word + "))";
  }

  void split(std::string_view text) {
    static const Pattern kSpaces(R"([\t\n\x0b\x0c\r ]+|[^\t\n\x0b\x0c\r ]+)", "wordwrap", Pattern::Syntax::kRust);
    static const Pattern kHyphens(hyphen_pattern(), "wordwrap", Pattern::Syntax::kRust);
    std::vector<Match> found;
    (break_hyphens_ ? kHyphens : kSpaces).find_all(text, found);
    chunks_.clear();
    next_ = 0;
    for (const Match& match : found) chunks_.push_back(text.substr(match.begin, match.end - match.begin));
  }

  std::vector<std::string_view> take_line() {
    std::vector<std::string_view> line;
    std::int64_t length = 0;
    for (; next_ < chunks_.size() && !is_longer(chunks_[next_], width_ - length); ++next_) {
      line.push_back(chunks_[next_]);
      length += length_of_text(chunks_[next_]);
    }
    if (next_ < chunks_.size() && is_longer(chunks_[next_], width_)) divide_word(line, width_ - length);
    return line;
  }

  // Looks at no more than `most` characters, because the rest of a long word is checked once per line.
  static bool is_longer(std::string_view word, std::int64_t most) {
    return byte_of_point(word, static_cast<std::size_t>(most)) < word.size();
  }

  // Splits a word that fits into no line.
  void divide_word(std::vector<std::string_view>& line, std::int64_t room) {
    std::string_view& word = chunks_[next_];
    if (break_words_) {
      std::size_t end = byte_of_point(word, static_cast<std::size_t>(room));
      const std::size_t hyphen = break_hyphens_ && end > 0 ? word.rfind('-', end - 1) : std::string_view::npos;
      const bool inside = hyphen != std::string_view::npos && hyphen > 0;
      if (inside && word.substr(0, hyphen).find_first_not_of('-') != std::string_view::npos) end = hyphen + 1;
      line.push_back(word.substr(0, end));
      word.remove_prefix(end);
    } else if (line.empty()) {
      line.push_back(word);
      ++next_;
    }
  }

  std::int64_t width_;
  bool break_words_, break_hyphens_;
  std::vector<std::string_view> chunks_;
  std::size_t next_ = 0;
};

Value word_wrap(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound given = bind_arguments(runtime, "the filter wordwrap", arguments,
                                     {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const std::int64_t width = given[0] == nullptr ? 79 : need_integer(runtime, *given[0], "width");
  const bool has_end = given[2] != nullptr && !given[2]->is(Kind::kNone);
  const std::string end = has_end ? need_text(runtime, *given[2], "wrapstring") : "\n";
  const std::string& text = need_text(runtime, input, "what wordwrap takes");
  // Every character may become a line of its own.
  runtime.charge_text(text.size() * (1 + end.size()));
  runtime.charge(text.size());
  Wrapper wrapper(width, given[1] == nullptr || truthy(*given[1]), given[3] == nullptr || truthy(*given[3]));
  std::vector<std::string> paragraphs;
  for (const std::string_view line : split_lines(text, false)) {
    if (width <= 0) runtime.refuse("lines of {} characters", width);
    paragraphs.push_back(fmt::format("{}", fmt::join(wrapper.lines_of(line), end)));
  }
  return runtime.text(fmt::format("{}", fmt::join(paragraphs, end)));
}

// Python's PrettyPrinter with a width of 80 and sorted keys.
class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& runtime) : runtime_(runtime) {}

  std::string print(const Value& value) {
    format(value, 0, 0, 1);
    return std::move(out_);
  }

 private:
  using Entries = std::vector<std::pair<Value, Value>>;
  static constexpr std::int64_t kWidth = 80;

  // Sorts the entries by key; keys that have no common order are sorted by the names of their types.
  Entries sorted(const Dict& dict) {
    Entries entries = dict.entries;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
      const bool ordered = (a.first.is_number() && b.first.is_number()) ||
                           (a.first.kind() == b.first.kind() && !a.first.is(Kind::kNone));
      return ordered ? less(runtime_, a.first, b.first)
                     : std::string_view(type_name(a.first)) < std::string_view(type_name(b.first));
    });
    return entries;
  }

  std::string repr(const Value& value) {
    std::string text;
    const auto add_all = [&](const Values& items) {
      for (std::size_t i = 0; i < items.size(); ++i) text += (i > 0 ? ", " : "") + repr(items[i]);
    };
    if (value.is(Kind::kDict)) {
      text = "{";
      for (const auto& [key, item] : sorted(value.object<Dict>()))
        text += (text.size() > 1 ? ", " : "") + repr(key) + ": " + repr(item);
      text += '}';
    } else if (value.is(Kind::kList)) {
      text = "[";
      add_all(value.object<Sequence>().items);
      text += ']';
    } else if (value.is(Kind::kTuple) && !value.object<Sequence>().is_group) {  // groupby's have their own repr()
      text = "(";
      add_all(value.object<Sequence>().items);
      text += value.object<Sequence>().items.size() == 1 ? ",)" : ")";
    } else {
      text = repr_of(runtime_, value);
    }
    runtime_.charge_text(text.size());
    return text;
  }

  // allowance: the number of characters that follow on the last line.
  void format(const Value& value, std::int64_t indent, std::int64_t allowance, int level) {
    const std::string whole = repr(value);
    const bool fits = length_of_text(whole) <= kWidth - indent - allowance;
    if (!fits && value.is(Kind::kDict)) {
      print_dict(value.object<Dict>(), indent, allowance, level);
    } else if (!fits && value.is(Kind::kList)) {
      out_ += '[';
      print_items(value.object<Sequence>().items, indent, allowance + 1, level);
      out_ += ']';
    } else if (!fits && value.is(Kind::kTuple) && !value.object<Sequence>().is_group) {
      const std::string_view end = value.object<Sequence>().items.size() == 1 ? ",)" : ")";
      out_ += '(';
      print_items(value.object<Sequence>().items, indent, allowance + static_cast<std::int64_t>(end.size()), level);
      out_ += end;
    } else if (!fits && value.is(Kind::kString) && !value.as_text().empty() && !value.is_markup()) {
      print_text(value.as_text(), indent, allowance, level);
    } else {
      out_ += whole;
    }
    runtime_.charge_text(out_.size());
  }

  void new_line(std::int64_t indent) { out_ += "\n" + std::string(static_cast<std::size_t>(indent), ' '); }

  void print_dict(const Dict& dict, std::int64_t indent, std::int64_t allowance, int level) {
    out_ += '{';
    const Entries entries = sorted(dict);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string key = repr(entries[i].first);
      out_ += key + ": ";
      const bool last = i + 1 == entries.size();
      format(entries[i].second, indent + 1 + length_of_text(key) + 2, last ? allowance + 1 : 1, level + 1);
      if (last) break;
      out_ += ',';
      new_line(indent + 1);
    }
    out_ += '}';
  }

  void print_items(const Values& items, std::int64_t indent, std::int64_t allowance, int level) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      format(items[i], indent + 1, last ? allowance : 1, level + 1);
      if (last) break;
      out_ += ',';
      new_line(indent + 1);
    }
  }

  // Prints a long text line by line, then word by word, with each piece in quotation marks.
  void print_text(const std::string& text, std::int64_t indent, std::int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const std::vector<std::string_view> lines = split_lines(text, true);
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool last = i + 1 == lines.size();
      std::string whole = repr_of_text(lines[i]);
      if (length_of_text(whole) <= kWidth - indent - (last ? allowance : 0)) {
        pieces.push_back(std::move(whole));
      } else {
        add_words(lines[i], kWidth - indent, last ? allowance : 0, pieces);
      }
    }
    if (level == 1 && pieces.size() > 1) out_ += '(';
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) new_line(indent);
      out_ += pieces[i];
    }
    if (level == 1 && pieces.size() > 1) out_ += ')';
  }

  void add_words(std::string_view line, std::int64_t width, std::int64_t allowance, std::vector<std::string>& pieces) {
    static const Pattern kWords(R"([^\s\x1c-\x1f]*[\s\x1c-\x1f]*)", "pprint", Pattern::Syntax::kRust);
    std::vector<Match> words;
    kWords.find_all(line, words);
    std::size_t begin = 0, end = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string candidate = repr_of_text(line.substr(begin, words[i].end - begin));
      runtime_.charge_text(candidate.size());
      if (length_of_text(candidate) > width - (i + 1 == words.size() ? allowance : 0)) {
        if (end > begin) pieces.push_back(repr_of_text(line.substr(begin, end - begin)));
        begin = words[i].begin;
      }
      end = words[i].end;
    }
    if (end > begin) pieces.push_back(repr_of_text(line.substr(begin, end - begin)));
  }

  Runtime& runtime_;
  std::string out_;
};

Value pretty(Runtime& runtime, const Value& input, const Arguments& arguments) {
  bind_arguments(runtime, "the filter pprint", arguments, {});
  return runtime.text(PrettyPrinter(runtime).print(input));
}

}  // namespace

std::vector<NamedFilter> layout_filters() { return {{"wordwrap", word_wrap}, {"pprint", pretty}}; }
}  // namespace magister::jinja
