// yaml-cpp 0.7 by itself accepts repeated keys (the first wins), expands alias bombs, takes U+0004 for the end of the
// text and counts columns in bytes. This file corrects all four. Source: YAML 1.2 specification, chapters 5 to 8.
#include "core/yaml_tree.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "core/yaml_source.h"
#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {

ConfigNode::Value* ConfigNode::Value::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return value.get();
  }
  return nullptr;
}

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

std::string too_deep() {
  return fmt::format(
      "values nested deeper than {} levels (no experiment needs that; it would exhaust the reader); flatten it",
      ConfigDocument::kMaxDepth);
}

// U+0080 to U+009F in valid UTF-8: a terminal may obey these, too.
bool is_c1_control(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]) == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
}

// Thrown to leave yaml-cpp during a parse; the fault was already stored.
struct StopParsing {};

// Builds the tree. open_ has one open container per level; a map expects a key and a value in turn.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const SourceText& source, std::string root_path, std::vector<ConfigFault>& faults)
      : source_(source), root_path_(std::move(root_path)), faults_(faults) {}

  std::unique_ptr<Value> root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) {
      fault(mark, "a key without a name (nothing can be read from it); give it a name or remove the line");
      open_.back().key = std::string();
      open_.back().repeated = true;
      open_.back().key_position = source_.at(mark);
      return;
    }
    add(mark, Kind::kEmpty);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    stop(mark, "an alias *name (a file of a few lines could expand to millions); write the value out");
  }

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    stop(mark, fmt::format("an anchor &{} (aliases are not supported: a file of a few lines could expand to millions); "
                           "write the value out, in quotes when & belongs to it",
                           printable(name, 60)));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    check_characters(mark, value);
    if (expects_key()) return take_key(mark, value);
    Value& scalar = add(mark, Kind::kScalar);
    scalar.scalar = value;
    scalar.quoted = tag == "!";
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin_container(mark, tag, anchor, Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin_container(mark, tag, anchor, Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

  [[noreturn]] void stop(const YAML::Mark& mark, std::string message) {
    fault(mark, std::move(message));
    throw StopParsing{};
  }

 private:
  struct Open {
    Value* container;
    std::string path;
    std::optional<std::string> key;
    ConfigPosition key_position;
    bool repeated = false;  // the value under this key is dropped
    std::unique_ptr<Value> nowhere;
    std::unordered_map<std::string, ConfigPosition> seen;  // keys of a map so far
  };

  bool expects_key() const { return !open_.empty() && open_.back().container->kind == Kind::kMap && !open_.back().key; }

  std::string path_of_next() const {
    if (open_.empty()) return root_path_;
    const Open& open = open_.back();
    const bool in_map = open.container->kind == Kind::kMap;
    if (in_map && !open.key) return open.path;
    const std::string name = in_map ? printable(*open.key, 60) : fmt::format("{}", open.container->items.size());
    return open.path.empty() ? name : open.path + "." + name;
  }

  void fault(const YAML::Mark& mark, std::string message) {
    faults_.push_back({source_.at(mark), path_of_next(), std::move(message)});
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) OnAnchor(mark, "name");
  }

  // yaml-cpp reports "?" as the tag of a plain value without a tag, and "!" for a quoted one.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    stop(mark,
         fmt::format("the tag {} (a value's type follows from its key); remove the tag, or write the value in quotes",
                     printable(tag, 60)));
  }

  // Escapes in quoted text can produce characters that the file itself may not contain.
  void check_characters(const YAML::Mark& mark, const std::string& value) {
    if (find_invalid_utf8(value) != value.size()) {
      stop(mark, "a value that is not valid UTF-8 (it cannot be stored as text); save the file as UTF-8");
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      const auto byte = static_cast<unsigned char>(value[i]);
      const bool c1 = is_c1_control(value, i);
      if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || c1) {
        stop(mark, fmt::format("the control character {} in a value (no key has a use for it, and a terminal may "
                               "obey it); remove it",
                               printable(value.substr(i, c1 ? 2 : 1))));
      }
    }
  }

  void take_key(const YAML::Mark& mark, const std::string& name) {
    Open& open = open_.back();
    open.key = name;
    open.key_position = source_.at(mark);
    open.repeated = false;
    if (name == "<<") {
      stop(mark, "a merge key << (every key must be written where it applies); write the keys out");
    }
    const auto [first, is_new] = open.seen.emplace(name, open.key_position);
    if (!is_new) {
      open.repeated = true;
      const std::string where = first->second.line == 0
                                    ? std::string("in the same argument")
                                    : fmt::format("first at {}:{}", first->second.line, first->second.column);
      fault(mark, fmt::format("the key is repeated, {} (only one of the two could count); remove one of them", where));
    }
  }

  void begin_container(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      // {{ name }} begins two maps, and the second is where the key of the first is expected.
      stop(mark,
           fmt::format("a list or a map where a key is expected (keys are plain words); {}",
                       kind == Kind::kMap ? "write a value that begins with {{ in quotes, as any template; else "
                                            "write a word before the colon, or close the bracket that was left open"
                                          : "write a word before the colon, or close the bracket that was left "
                                            "open"));
    }
    if (open_.size() >= static_cast<std::size_t>(ConfigDocument::kMaxDepth)) {
      faults_.push_back({source_.at(mark), "", too_deep()});
      throw StopParsing{};
    }
    std::string path = path_of_next();
    Value& container = add(mark, kind);
    open_.push_back({&container, std::move(path), std::nullopt, {}, false, nullptr, {}});
  }

  Value& add(const YAML::Mark& mark, Kind kind) {
    if (++num_nodes_ > ConfigDocument::kMaxNodes) {
      stop(mark, fmt::format("more than {} values (an experiment has a few dozen); put data into files of its own",
                             ConfigDocument::kMaxNodes));
    }
    auto value = std::make_unique<Value>();
    value->kind = kind;
    value->position = value->key_position = source_.at(mark);
    Value& added = *value;
    if (open_.empty()) {
      root = std::move(value);
      return added;
    }
    Open& open = open_.back();
    if (open.container->kind == Kind::kList) {
      open.container->items.push_back(std::move(value));
      return added;
    }
    value->key_position = open.key_position;
    if (kind == Kind::kEmpty) value->position = open.key_position;  // yaml-cpp's mark is at the next token
    if (open.repeated) {
      open.nowhere = std::move(value);  // parsed for its own faults, then dropped
    } else {
      open.container->members.emplace_back(*open.key, std::move(value));
    }
    // The path of a container was taken before. A scalar completes the pair; a container has consumed its key.
    open.key.reset();
    return added;
  }

  const SourceText& source_;
  std::string root_path_;
  std::vector<ConfigFault>& faults_;
  std::vector<Open> open_;
  std::size_t num_nodes_ = 0;
};

// Checks the characters of the text before yaml-cpp reads it. Returns true if it can be parsed.
bool check_text(std::string_view text, const SourceText& source, const std::string& root_path,
                std::vector<ConfigFault>& faults) {
  const std::size_t before = faults.size();
  const auto fault = [&](std::size_t byte, std::string message) {
    faults.push_back({source.at_byte(byte), root_path, std::move(message)});
  };
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != text.size()) {
    fault(invalid,
          fmt::format("the byte \\x{:02X} is not valid UTF-8 (the text cannot be read); save the file as UTF-8",
                      static_cast<unsigned char>(text[invalid])));
    return false;
  }
  bool in_indentation = true;
  int brackets = 0;  // open brackets in a row: yaml-cpp reads a million of them (230 MB) before it reports the first
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (in_indentation && byte == '\t') {
      fault(i,
            "a tab in the indentation (editors show it with different widths, so the nesting is not clear); indent "
            "with spaces");
      return false;
    }
    if (byte != ' ') in_indentation = byte == '\n';
    brackets = byte == '[' || byte == '{' ? brackets + 1 : byte == ' ' ? brackets : 0;
    if (brackets > ConfigDocument::kMaxDepth) {
      fault(i, too_deep());
      return false;
    }
    const bool newline = byte == '\n' || (byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
    const bool c1 = is_c1_control(text, i);
    if ((byte < 0x20 && !newline && byte != '\t') || byte == 0x7F || c1) {
      fault(i, fmt::format("the control character {} (a terminal may obey it, and no key has a use for it); remove it",
                           printable(text.substr(i, c1 ? 2 : 1))));
      return false;
    }
  }
  return faults.size() == before;
}

// Parses once with yaml-cpp; its exceptions pass to the caller.
std::unique_ptr<Value> read_events(const std::string& text, const SourceText& source, const std::string& root_path,
                                   std::vector<ConfigFault>& faults) {
  TreeBuilder builder(source, root_path, faults);
  // yaml-cpp takes an open quote for closed if the text ends with a line break; a comment as the last line prevents
  // this.
  std::istringstream stream{text + (text.ends_with('\n') || text.empty() ? "#" : "\n#")};
  YAML::Parser parser(stream);
  if (!parser.HandleNextDocument(builder)) return nullptr;
  struct SecondDocument : YAML::EventHandler {
    explicit SecondDocument(TreeBuilder& first) : first(first) {}
    TreeBuilder& first;
    void OnDocumentStart(const YAML::Mark& mark) override {
      first.stop(mark,
                 "a second document begins (an experiment is one document, and everything after it would be "
                 "ignored); remove the line ---, or indent what belongs to the first");
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
    void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
    void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
    void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnMapEnd() override {}
  } second(builder);
  parser.HandleNextDocument(second);
  return std::move(builder.root);
}

}  // namespace

std::unique_ptr<Value> parse_yaml(std::string_view text, int argument, const std::string& root_path,
                                  std::vector<ConfigFault>& faults) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark has no meaning here
  const SourceText whole(text, argument);
  if (text.size() > ConfigDocument::kMaxBytes) {
    faults.push_back({whole.at_byte(0), root_path,
                      fmt::format("{} bytes of text (an experiment has at most {}); put data "
                                  "into files of its own",
                                  text.size(), ConfigDocument::kMaxBytes)});
    return nullptr;
  }
  if (!check_text(text, whole, root_path, faults)) return nullptr;
  constexpr int kMostJoined = 200;  // texts with pairs of escapes: each of them takes another pass
  std::string joined(text);
  std::vector<std::size_t> shortened;
  for (int pass = 0;; ++pass) {
    const SourceText source(joined, argument, shortened);
    const std::size_t faults_before = faults.size();
    try {
      return read_events(joined, source, root_path, faults);
    } catch (const StopParsing&) {
      return nullptr;
    } catch (const YAML::Exception& error) {
      if (pass < kMostJoined && !error.mark.is_null() &&
          join_surrogates(joined, source.byte_of(error.mark), shortened)) {
        faults.resize(faults_before);
        continue;
      }
      const std::string near = printable(source.rest_of_line(error.mark), 40);
      faults.push_back(
          {source.at(error.mark), root_path,
           fmt::format("not valid YAML: {}{} (what follows cannot be understood); correct this place, or put "
                       "a value with special characters in quotes",
                       printable(error.msg), near.empty() ? "" : " near \"" + near + "\"")});
      return nullptr;
    }
  }
}

}  // namespace magister
