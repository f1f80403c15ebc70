// The judge's ready prompts, by mode and name, as templates over a record's fields. The wording is this project's own,
// for the usual kinds of grading (one word against references, three-way, 1-5 and 1-10 rubrics, pairs, letters).
#pragma once

#include <string>
#include <vector>

#include "magister/tasks/judge/rules.h"

namespace magister {

struct JudgeTemplate {
  const char* name;
  const char* system;
  const char* user;
};

// The mode's prompts; the first is the default.
const std::vector<JudgeTemplate>& judge_templates(JudgeMode mode);
// The prompt called `name`; the default for "". Throws Error(kConfig) listing the known names.
const JudgeTemplate& judge_template(JudgeMode mode, const std::string& name);
// The text of {{ reply_rule }}: how the judge must reply. verdicts: the words to choose from.
std::string reply_rule(const JudgeRules& config, const std::vector<std::string>& verdicts);
// Fields that the mode's ready prompts need.
std::vector<std::string> needed_fields(JudgeMode mode);

}  // namespace magister
