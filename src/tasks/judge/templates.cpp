// The ready prompts, the rule for the reply, and the fields that they need: question, references (a list), answer,
// answer_a, answer_b, options, rubric, classes, reply_rule.
#include "tasks/judge/templates.h"

#include <fmt/ranges.h>

#include <map>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr const char* kAgainstReferences =
    "Question: {{ question }}\n{% if references | length == 1 %}Reference answer: {{ references[0] }}\n{% else "
    "%}Reference answers (any of them counts):\n{% for reference in references %}- {{ reference }}\n{% endfor %}{% "
    "endif %}Proposed answer: {{ answer }}\n\nDoes the proposed answer mean the same as {% if references | length == 1 "
    "%}the reference answer{% else %}any of the reference answers{% endif %}?";
constexpr const char* kScored =
    "{% if rubric %}Rubric: {{ rubric }}\n{% endif %}Question: {{ question }}\n{% if references %}Reference answer: "
    "{{ references | join(' / ') }}\n{% endif %}Answer: {{ answer }}\n\nScore from 1 to {{ classes }}:";
constexpr const char* kPair =
    "Question: {{ question }}\n{% if references %}Reference answer: {{ references | join(' / ') }}\n{% endif "
    "%}\nAnswer A: {{ answer_a }}\n\nAnswer B: {{ answer_b }}\n\nWhich answer is better, A or B?";

const std::map<JudgeMode, std::vector<JudgeTemplate>>& all_templates() {
  static const std::map<JudgeMode, std::vector<JudgeTemplate>> templates = {
      {JudgeMode::kReference,
       {{"same_meaning",
         "You decide whether a proposed answer means the same as a reference answer. Wording may differ; facts may "
         "not. An answer that is incomplete, evasive or nonsense does not mean the same. {{ reply_rule }}",
         kAgainstReferences},
        {"strict",
         "You check a proposed answer against reference answers. It passes only if all of this holds: it gives the "
         "reference's core fact; names, numbers and dates are the same; nothing in it contradicts the reference; it is "
         "complete; it is an answer and not a loose collection of related words. How it is worded does not matter. {{ "
         "reply_rule }}",
         kAgainstReferences}}},
      {JudgeMode::kSimpleQa,
       {{"three_way",
         "You grade an answer against a reference answer. A: correct, it contains the reference's facts and "
         "contradicts none. B: incorrect, it contradicts them. C: not attempted, it neither contains nor contradicts "
         "them. {{ reply_rule }}",
         "Question: {{ question }}\nReference answer: {{ references | join(' / ') }}\nAnswer: {{ answer }}\n\nIs the "
         "answer A (correct), B (incorrect) or C (not attempted)?"}}},
      {JudgeMode::kRubric,
       {{"score", "You score an answer on a scale from 1 (worst) to {{ classes }} (best). {{ reply_rule }}", kScored},
        {"quality",
         "You score an assistant's answer on a scale from 1 (worst) to {{ classes }} (best). Count how helpful, "
         "relevant, accurate, deep and detailed it is. Length alone is worth nothing. {{ reply_rule }}",
         kScored}}},
      {JudgeMode::kPairwise,
       {{"better",
         "You compare two answers to a question and decide which one is better. Their order says nothing. {{ "
         "reply_rule }}",
         kPair},
        {"quality",
         "You compare two assistants' answers to a question: how helpful, relevant, accurate, deep and detailed they "
         "are. Neither their order nor their length may sway you. {{ reply_rule }}",
         kPair}}},
      {JudgeMode::kChoice,
       {{"letters", "You answer a multiple-choice question. {{ reply_rule }}",
         "Question: {{ question }}\n{% for option in options %}{{ 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[loop.index0] }}. {{ "
         "option }}\n{% endfor %}Answer:"}}},
  };
  return templates;
}

}  // namespace

const std::vector<JudgeTemplate>& judge_templates(JudgeMode mode) { return all_templates().at(mode); }

const JudgeTemplate& judge_template(JudgeMode mode, const std::string& name) {
  const std::vector<JudgeTemplate>& templates = judge_templates(mode);
  std::vector<std::string> names;
  for (const JudgeTemplate& one : templates) {
    if (name.empty() || name == one.name) return one;
    names.emplace_back(one.name);
  }
  fail(ExitCode::kConfig,
       "prompt.named: \"{}\" is not a prompt of this mode (known: {}); choose one of them or write your own with "
       "prompt.user",
       printable(name, 40), fmt::join(names, ", "));
}

std::string reply_rule(const JudgeRules& config, const std::vector<std::string>& verdicts) {
  std::string words;
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    words += (i == 0 ? "" : i + 1 == verdicts.size() ? " or " : ", ") + verdicts[i];
  if (config.method == JudgeMethod::kDecode && config.read == JudgeRead::kScore) {
    return "First reason in a few sentences. Then end with one line: \"Verdict: \" followed by " + words + ".";
  }
  if (config.mode == JudgeMode::kRubric) return "You reply with one number.";
  return (config.mode == JudgeMode::kReference ? "You reply with one word: " : "You reply with one letter: ") + words +
         ".";
}

std::vector<std::string> needed_fields(JudgeMode mode) {
  switch (mode) {
    case JudgeMode::kReference:
    case JudgeMode::kSimpleQa:
      return {"question", "references", "answer"};
    case JudgeMode::kRubric:
      return {"question", "answer"};
    case JudgeMode::kPairwise:
      return {"question", "answer_a", "answer_b"};
    case JudgeMode::kChoice:
      return {"question", "options"};
  }
  return {};
}

}  // namespace magister
