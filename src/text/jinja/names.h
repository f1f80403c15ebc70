// The names that a template reads from its variables: those that it neither sets itself nor gets from a loop, a macro
// or `with`.
#pragma once

#include <vector>

#include "magister/text/chat_template.h"
#include "text/jinja/ast.h"

namespace magister::jinja {

// Returns the names in the order of first use, each once.
std::vector<TemplateName> free_names(const Block& program);

}  // namespace magister::jinja
