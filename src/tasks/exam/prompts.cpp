// The wording is this project's own.
#include "tasks/exam/prompts.h"

#include "magister/core/error.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

constexpr const char* kExaminer = "You write and check exam questions. You rely on the given passages alone.";
constexpr const char* kStudent = "You take an exam. You answer from what you know.";
constexpr const char* kPassages =
    "{% for passage in passages %}Passage {{ loop.index }}:\n{{ passage }}\n\n{% endfor %}";
constexpr const char* kItem = "Question: {{ question }}\nAnswer: {{ answer }}\nExplanation: {{ explanation }}\n\n";
constexpr const char* kLetterQuestion =
    "Question: {{ question }}\n{% for option in options %}{{ 'ABCDEFGHIJ'[loop.index0] }}. {{ option }}\n{% endfor "
    "%}\nWhich answer is right? Reply with its letter.";
constexpr const char* kTrueQuestion = "Statement: {{ question }}\n\nIs it true or false? Reply with one word.";
constexpr const char* kRightQuestion =
    "Question: {{ question }}\nProposed answer: {{ answer }}\n\nIs the proposed answer right? Reply with yes or no.";
constexpr const char* kWriteItem =
    "Learning objective: {{ objective }}\n\nWrite one {{ kind }} that tests this objective"
    "{% if difficulty %}, of {{ difficulty }} difficulty{% endif %}"
    "{% if level %}, at the level \"{{ level }}\" of Bloom's taxonomy{% endif %}. It must be answerable from the "
    "passages. Name no letters of choices. Write one JSON object with the keys {{ form }}."
    "{% if avoid %}\n\nThese questions exist already; ask something else:\n{% for stem in avoid %}- {{ stem }}\n{% "
    "endfor %}{% endif %}"
    "{% if previous %}\n\nAn earlier attempt: {{ previous }}{% endif %}"
    "{% if reasons %}\n\nIt was refused, because:\n{% for reason in reasons %}- {{ reason }}\n{% endfor %}Write a "
    "better one.{% endif %}";

struct Template {
  const char* name;
  const char* system;
  std::string user;
};

// In the order of ExamPrompt.
std::vector<Template> exam_templates() {
  const std::string passages = kPassages, item = kItem;
  return {
      {"write", kExaminer, passages + kWriteItem},
      {"answer", kExaminer, passages + kLetterQuestion},
      {"closed_answer", kStudent, kLetterQuestion},
      {"statement", kExaminer, passages + kTrueQuestion},
      {"closed_statement", kStudent, kTrueQuestion},
      {"right", kExaminer, passages + kRightQuestion},
      {"closed_right", kStudent, kRightQuestion},
      {"support", kExaminer,
       "Passage:\n{{ passages[cited] }}\n\n" + item +
           "Does the passage say that this answer is right? Reply with yes or no."},
      {"alignment", kExaminer,
       "Learning objective: {{ objective }}\n\n" + item +
           "Does the question test this objective? Reply with yes or no."},
      {"wording", kExaminer,
       item + "Is the question clearly worded, complete and free of hints at its answer? Reply with yes or no."},
      {"bloom", kExaminer,
       item + "Which level of Bloom's taxonomy does the question test?\nA. remember\nB. understand\nC. apply\nD. "
              "analyze\nE. evaluate\nF. create\n\nReply with one letter."},
      {"same", kExaminer,
       "Question 1: {{ question }}\nAnswer: {{ answer }}\n\nQuestion 2: {{ other_question }}\nAnswer: {{ other_answer "
       "}}\n\nDo both questions ask the same thing? Reply with yes or no."},
      {"objective", kExaminer,
       passages +
           "Write one learning objective for this passage: one sentence that begins with a verb and says what a "
           "student can do who has read it. Write one JSON object with the key objective.{% if avoid %}\n\nThese "
           "objectives exist already; write another one:\n{% for text in avoid %}- {{ text }}\n{% endfor %}{% endif "
           "%}"},
  };
}

std::vector<VerdictClass> letters(std::uint64_t count) {
  std::vector<VerdictClass> classes;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    classes.push_back({letter, {letter}});
  }
  return classes;
}

std::vector<VerdictClass> classes_of(AnswerSet answers, std::uint64_t choices) {
  switch (answers) {
    case AnswerSet::kLetters:
      return letters(choices);
    case AnswerSet::kTrueFalse:
      return {{"true", {"true"}}, {"false", {"false"}}};
    case AnswerSet::kYesNo:
      return {{"yes", {"yes"}}, {"no", {"no"}}};
    case AnswerSet::kLevels:
      return letters(6);
  }
  return {};
}

}  // namespace

AnswerSet answers_of(ExamPrompt prompt) {
  switch (prompt) {
    case ExamPrompt::kAnswer:
    case ExamPrompt::kClosedAnswer:
      return AnswerSet::kLetters;
    case ExamPrompt::kStatement:
    case ExamPrompt::kClosedStatement:
      return AnswerSet::kTrueFalse;
    case ExamPrompt::kBloom:
      return AnswerSet::kLevels;
    default:
      return AnswerSet::kYesNo;
  }
}

ExamPrompts::ExamPrompts(const ExamConfig& config, Checkpoint& checkpoint)
    : encoder_(checkpoint, config.use_chat_template) {
  ordered_json all;
  for (const Template& one : exam_templates()) {
    all[one.name] = {{"system", one.system}, {"user", one.user}};
    prompts_.emplace_back(PromptTexts{one.system, one.user}, config.name);
  }
  templates_ = all.dump();
  for (std::size_t i = 0; i < kNumAnswerSets; ++i) {
    const auto classes = classes_of(static_cast<AnswerSet>(i), config.choices);
    JudgeRules rules;
    rules.name = config.name;
    rules.low_mass = 0;
    answers_.push_back({std::move(rules), classes, verdict_tokens(checkpoint.tokenizer(), classes)});
  }
  for (const Answers& one : answers_)
    readers_.emplace_back(VerdictSource{one.rules, one.classes, one.tokens, checkpoint.tokenizer(), ends_});
}

std::vector<TokenId> ExamPrompts::encode(ExamPrompt prompt, const ordered_json& fields,
                                         const std::string& where) const {
  static const std::vector<std::string> kMayBeEmpty = {"question", "answer", "explanation", "other_question",
                                                       "other_answer"};
  return encoder_.encode(prompts_[static_cast<std::size_t>(prompt)].render(fields, kMayBeEmpty, where), where);
}

std::string ExamPrompts::identity() const {
  std::string all;
  for (const Answers& one : answers_) all += one.tokens.identity();
  return all;
}

ordered_json empty_fields() {
  ordered_json fields;
  for (const char* const list : {"passages", "options", "avoid", "reasons"}) fields[list] = ordered_json::array();
  for (const char* const text : {"objective", "kind", "difficulty", "level", "form", "previous", "question", "answer",
                                 "explanation", "other_question", "other_answer"})
    fields[text] = "";
  fields["cited"] = 0;
  return fields;
}

const char* words_of(ItemKind kind) {
  switch (kind) {
    case ItemKind::kChoice:
      return "multiple-choice question with a single right answer";
    case ItemKind::kTrueFalse:
      return "statement that is either true or false";
    case ItemKind::kShortAnswer:
      return "question with a short answer";
    case ItemKind::kNumeric:
      return "question whose answer is a number";
  }
  return "";
}

}  // namespace magister
