// QTI packages of 2.1 and 3.0 (1EdTech, "Question and Test Interoperability"): an item each, a test that lists them,
// and the manifest. Both versions have the same content; 3.0 names elements qti-choice-interaction instead of
// choiceInteraction, and attributes likewise.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"
#include "tasks/exam/zip_file.h"

namespace magister {
namespace {

struct Version {
  bool is_3;
  const char *item_space, *item_schema, *package_space, *package_schema, *item_type, *test_type, *schema, *version,
      *templates;
};

constexpr Version k21{false,
                      "http://www.imsglobal.org/xsd/imsqti_v2p1",
                      "http://www.imsglobal.org/xsd/qti/qtiv2p1/imsqti_v2p1.xsd",
                      "http://www.imsglobal.org/xsd/imscp_v1p1",
                      "http://www.imsglobal.org/xsd/qti/qtiv2p1/qtiv2p1_imscpv1p2_v1p0.xsd",
                      "imsqti_item_xmlv2p1",
                      "imsqti_test_xmlv2p1",
                      "QTIv2.1 Package",
                      "1.0.0",
                      "http://www.imsglobal.org/question/qti_v2p1/rptemplates/"};
constexpr Version k30{true,
                      "http://www.imsglobal.org/xsd/imsqtiasi_v3p0",
                      "https://purl.imsglobal.org/spec/qti/v3p0/schema/xsd/imsqti_asiv3p0_v1p0.xsd",
                      "http://www.imsglobal.org/xsd/qti/qtiv3p0/imscp_v1p1",
                      "https://purl.imsglobal.org/spec/qti/v3p0/schema/xsd/imsqtiv3p0_imscpv1p2_v1p0.xsd",
                      "imsqti_item_xmlv3p0",
                      "imsqti_test_xmlv3p0",
                      "QTI Package",
                      "3.0.0",
                      "https://purl.imsglobal.org/spec/qti/v3p0/rptemplates/"};

std::string kebab(std::string_view camel) {
  std::string result;
  for (const char c : camel) {
    if (c >= 'A' && c <= 'Z') {
      result += '-';
      result += static_cast<char>(c - 'A' + 'a');
    } else {
      result += c;
    }
  }
  return result;
}

using XmlAttributes = std::vector<std::pair<const char*, std::string>>;

// Elements with QTI 2.1's names in the names of a version. Text is escaped where it becomes content.
class QtiWriter {
 public:
  explicit QtiWriter(const Version& version) : v_(version) {}

  std::string element(const char* name, const XmlAttributes& attributes, const std::string& content = {}) const {
    const std::string tag = v_.is_3 ? "qti-" + kebab(name) : name;
    std::string text = "<" + tag;
    for (const auto& [key, value] : attributes) {
      text += fmt::format(" {}=\"{}\"", v_.is_3 ? kebab(key) : key, markup(value));
    }
    return text + (content.empty() ? "/>" : ">" + content + "</" + tag + ">");
  }

  // A paragraph in HTML's name, with a direction of its own where the version has one.
  std::string paragraph(std::string_view text) const {
    return fmt::format("<p{}>{}</p>", v_.is_3 ? " dir=\"auto\"" : "", markup_lines(shown_text(text), "<br/>"));
  }

  std::string item(const ExamItem& item, const std::string& identifier, const std::string& language) const;
  std::string test(const Exam& exam, const std::vector<std::string>& identifiers) const;
  std::string manifest(const std::vector<std::string>& identifiers) const;

 private:
  std::string root(const char* name, const XmlAttributes& attributes, const std::string& content) const;
  std::string value(const std::string& text) const { return element("value", {}, markup(text)); }
  std::string response_declaration(const ExamItem& item) const;
  std::string outcome(const char* name, const char* type, const std::string& first) const;
  std::string body(const ExamItem& item) const;
  std::string processing(const ExamItem& item, bool has_feedback) const;
  std::string feedback(const char* outcome, const std::string& identifier, std::string_view text) const;

  const Version& v_;
};

bool has_choices(const ExamItem& item) { return item.kind == ItemKind::kChoice || item.kind == ItemKind::kTrueFalse; }

// Identifiers of a statement's choices are words, since its meaning does not depend on their place.
std::string identifier_of(const ExamItem& item, std::size_t choice) {
  if (item.kind == ItemKind::kTrueFalse) return choice == 0 ? "TRUE" : "FALSE";
  return std::string(1, choice_letter(choice));
}

bool explains_choices(const ExamItem& item) {
  if (!has_choices(item)) return false;
  for (const ItemChoice& choice : item.choices) {
    if (!shown_text(choice.explanation).empty()) return true;
  }
  return false;
}

std::string QtiWriter::root(const char* name, const XmlAttributes& attributes, const std::string& content) const {
  XmlAttributes all{{"xmlns", v_.item_space}};
  all.insert(all.end(), attributes.begin(), attributes.end());
  const std::string text = element(name, all, content);
  const std::string schema =
      fmt::format(" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:schemaLocation=\"{} {}\"",
                  v_.item_space, v_.item_schema);
  std::string with_schema = text;
  with_schema.insert(text.find(' '), schema);
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + with_schema + "\n";
}

std::string QtiWriter::response_declaration(const ExamItem& item) const {
  const char* type = has_choices(item) ? "identifier" : item.kind == ItemKind::kNumeric ? "float" : "string";
  const std::string right = has_choices(item)                     ? identifier_of(item, item.key)
                            : item.kind == ItemKind::kShortAnswer ? one_line(item.accepted[0])
                                                                  : shortest_number(item.value);
  std::string content = element("correctResponse", {}, value(right));
  if (item.kind == ItemKind::kShortAnswer) {
    std::string entries;
    for (const std::string& accepted : item.accepted) {
      entries +=
          element("mapEntry", {{"mapKey", one_line(accepted)}, {"mappedValue", "1"}, {"caseSensitive", "false"}});
    }
    content += element("mapping", {{"defaultValue", "0"}, {"upperBound", "1"}}, entries);
  }
  return element("responseDeclaration", {{"identifier", "RESPONSE"}, {"cardinality", "single"}, {"baseType", type}},
                 content);
}

std::string QtiWriter::outcome(const char* name, const char* type, const std::string& first) const {
  return element("outcomeDeclaration", {{"identifier", name}, {"cardinality", "single"}, {"baseType", type}},
                 first.empty() ? "" : element("defaultValue", {}, value(first)));
}

std::string QtiWriter::body(const ExamItem& item) const {
  std::string content = paragraph(item.stem);
  if (!has_choices(item)) {
    const std::string entry = element("textEntryInteraction", {{"responseIdentifier", "RESPONSE"}});
    return element("itemBody", {}, content + "<p>" + entry + "</p>");
  }
  std::string choices;
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    const std::string text(item.kind == ItemKind::kTrueFalse ? truth_word(item, i)
                                                             : std::string_view(item.choices[i].text));
    choices += element("simpleChoice", {{"identifier", identifier_of(item, i)}}, paragraph(text));
  }
  return element(
      "itemBody", {},
      content + element("choiceInteraction",
                        {{"responseIdentifier", "RESPONSE"}, {"shuffle", "false"}, {"maxChoices", "1"}}, choices));
}

// One of the standard's templates where it says everything, which all players know; else the same rules written out.
std::string QtiWriter::processing(const ExamItem& item, bool has_feedback) const {
  if (item.kind == ItemKind::kShortAnswer) {
    return element("responseProcessing",
                   {{"template", std::string(v_.templates) + "map_response" + (v_.is_3 ? ".xml" : "")}});
  }
  if (has_choices(item) && !has_feedback) {
    return element("responseProcessing",
                   {{"template", std::string(v_.templates) + "match_correct" + (v_.is_3 ? ".xml" : "")}});
  }
  const std::string both =
      element("variable", {{"identifier", "RESPONSE"}}) + element("correct", {{"identifier", "RESPONSE"}});
  const std::string tolerance = shortest_number(item.tolerance);
  const std::string is_right =
      has_choices(item) ? element("match", {}, both)
      : item.tolerance == 0
          ? element("equal", {{"toleranceMode", "exact"}}, both)
          : element("equal", {{"toleranceMode", "absolute"}, {"tolerance", tolerance + " " + tolerance}}, both);
  const std::string one = element("baseValue", {{"baseType", "float"}}, "1");
  std::string rules =
      element("responseCondition", {},
              element("responseIf", {}, is_right + element("setOutcomeValue", {{"identifier", "SCORE"}}, one)));
  if (has_feedback) {
    rules +=
        element("setOutcomeValue", {{"identifier", "FEEDBACK"}}, element("variable", {{"identifier", "RESPONSE"}}));
  }
  return element("responseProcessing", {}, rules);
}

std::string QtiWriter::feedback(const char* outcome, const std::string& identifier, std::string_view text) const {
  const std::string content = paragraph(text);
  return element("modalFeedback", {{"outcomeIdentifier", outcome}, {"identifier", identifier}, {"showHide", "show"}},
                 v_.is_3 ? element("contentBody", {}, content) : content);
}

std::string QtiWriter::item(const ExamItem& item, const std::string& identifier, const std::string& language) const {
  const bool has_feedback = explains_choices(item), is_explained = !shown_text(item.explanation).empty();
  std::string content = response_declaration(item) + "\n" + outcome("SCORE", "float", "0") + "\n";
  content += outcome("MAXSCORE", "float", "1") + "\n";
  if (has_feedback) content += outcome("FEEDBACK", "identifier", "") + "\n";
  if (is_explained) content += outcome("SOLUTION", "identifier", "SOLUTION") + "\n";
  content += body(item) + "\n" + processing(item, has_feedback) + "\n";
  for (std::size_t i = 0; has_feedback && i < item.choices.size(); ++i) {
    if (shown_text(item.choices[i].explanation).empty()) continue;
    content += feedback("FEEDBACK", identifier_of(item, i), item.choices[i].explanation) + "\n";
  }
  if (is_explained) content += feedback("SOLUTION", "SOLUTION", item.explanation) + "\n";
  return root("assessmentItem",
              {{"identifier", identifier},
               {"title", one_line(item.id)},
               {"xml:lang", language},
               {"adaptive", "false"},
               {"timeDependent", "false"}},
              "\n" + content);
}

std::string QtiWriter::test(const Exam& exam, const std::vector<std::string>& identifiers) const {
  std::string references;
  for (const std::string& identifier : identifiers) {
    references +=
        element("assessmentItemRef", {{"identifier", identifier}, {"href", "items/" + identifier + ".xml"}}) + "\n";
  }
  const std::string title = one_line(exam.title).empty() ? "Exam" : one_line(exam.title);
  const std::string section = element(
      "assessmentSection", {{"identifier", "section"}, {"title", title}, {"visible", "true"}}, "\n" + references);
  const std::string part = element(
      "testPart", {{"identifier", "part"}, {"navigationMode", "nonlinear"}, {"submissionMode", "individual"}}, section);
  return root("assessmentTest", {{"identifier", "exam"}, {"title", title}}, part);
}

std::string QtiWriter::manifest(const std::vector<std::string>& identifiers) const {
  const auto resource = [](const std::string& identifier, const char* type, const std::string& file,
                           const std::string& more) {
    return fmt::format("<resource identifier=\"{}\" type=\"{}\" href=\"{}\"><file href=\"{}\"/>{}</resource>\n",
                       identifier, type, file, file, more);
  };
  std::string resources, dependencies;
  for (const std::string& identifier : identifiers) {
    resources += resource(identifier, v_.item_type, "items/" + identifier + ".xml", "");
    dependencies += fmt::format("<dependency identifierref=\"{}\"/>", identifier);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<manifest xmlns=\"{}\" "
      "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:schemaLocation=\"{} {}\" identifier=\"manifest\">\n"
      "<metadata><schema>{}</schema><schemaversion>{}</schemaversion></metadata>\n<organizations/>\n<resources>\n"
      "{}{}</resources>\n</manifest>\n",
      v_.package_space, v_.package_space, v_.package_schema, v_.schema, v_.version,
      resource("exam", v_.test_type, "exam.xml", dependencies), resources);
}

std::string package(const Exam& exam, const Version& version) {
  const QtiWriter writer(version);
  std::vector<std::string> identifiers;
  std::vector<std::pair<std::string, std::string>> items;
  for (const ExamItem& item : exam.items) {
    identifiers.push_back(fmt::format("item-{}", items.size() + 1));
    items.emplace_back("items/" + identifiers.back() + ".xml", writer.item(item, identifiers.back(), exam.language));
  }
  std::vector<std::pair<std::string, std::string>> files{{"imsmanifest.xml", writer.manifest(identifiers)},
                                                         {"exam.xml", writer.test(exam, identifiers)}};
  files.insert(files.end(), items.begin(), items.end());
  return zip_file(files);
}

}  // namespace

// A package has a file for each item, one for the test and one for the manifest.
std::vector<std::string> refused_by_qti(const Exam& exam) {
  constexpr std::size_t kMostFiles = 65535;
  if (exam.items.size() + 2 <= kMostFiles) return {};
  return {fmt::format("{} items in a package of at most 65,535 files", exam.items.size())};
}

std::vector<ExamFile> exam_qti21(const Exam& exam) { return {{".qti21.zip", package(exam, k21)}}; }
std::vector<ExamFile> exam_qti30(const Exam& exam) { return {{".qti30.zip", package(exam, k30)}}; }

}  // namespace magister
