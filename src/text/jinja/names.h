// Which names a template reads from its variables: those that it neither sets itself nor gets from a loop, a macro or `with`.
#pragma once

#include <vector>

#include "magister/text/chat_template.h"
#include "text/jinja/ast.h"

namespace magister::jinja {

// In the order of their first use, each once.
std::vector<TemplateName> free_names(const Block& program);

}  // namespace magister::jinja
