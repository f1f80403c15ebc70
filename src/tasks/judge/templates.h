// The judge's ready prompts, by mode and name, as templates over a record's fields. Wording: this project's own, after what the
// field asks for (one-word grading against references, three-way grading, 1-5 and 1-10 rubrics, pairs, letters).
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
// The one called `name`, the default for "". Throws Error(kConfig) naming those that there are.
const JudgeTemplate& judge_template(JudgeMode mode, const std::string& name);
// What {{ reply_rule }} says: how the judge is to reply. verdicts: the words to choose from.
std::string reply_rule(const JudgeRules& config, const std::vector<std::string>& verdicts);
// Fields without which the mode's ready prompts mean nothing.
std::vector<std::string> needed_fields(JudgeMode mode);

}  // namespace magister
