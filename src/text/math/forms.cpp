// form_of(); see compare.h.
#include <algorithm>

#include "text/math/compare.h"
#include "text/math/prepared.h"

namespace magister::math {
namespace {

constexpr std::uint64_t kFormSeed = 42;
// Larger numbers have no digits after the point.
constexpr std::int64_t kRoundedMagnitude = 4096;

// A number rounded to six decimals, or the values of an expression at two points.
std::string value_form(const TreePtr& tree, Budget& budget) {
  if (infinite_sign(*tree) != 0) return infinite_sign(*tree) > 0 ? "inf" : "-inf";
  if (const std::optional<Rational> exact = exact_value(*tree, budget)) return "n" + rounded_to_six(*exact).get_str();
  const std::vector<std::string> names = symbols_of(*tree);
  std::string out = "n";
  for (const int number : {0, 1}) {
    const std::optional<Complex> value = value_at(*tree, drawn_point(names, kFormSeed, number), budget);
    if (!value) return "t" + text_of(*tree);
    if (names.empty()) return out + (value->magnitude() > kRoundedMagnitude ? value->text(40) : value->rounded_text());
    out += value->text(12) + " ";
  }
  return out;
}

std::string form_within(const TreePtr& given, Budget& budget) {
  TreePtr tree = prepared(given);
  if (is_equation(*tree) && names_something(*first_of(*tree))) tree = prepared(last_of(*tree));
  if (is_value(*tree)) return value_form(tree, budget);
  if (is_collection(*tree)) {
    std::vector<std::string> forms;
    for (const TreePtr& part : tree->parts) forms.push_back(form_within(part, budget));
    std::sort(forms.begin(), forms.end());
    forms.erase(std::unique(forms.begin(), forms.end()), forms.end());
    std::string out = "{";
    for (const std::string& form : forms) out += form + ";";
    return out + "}";
  }
  if (tree->kind == Kind::kGroup || tree->kind == Kind::kMatrix) {
    std::string out = tree->name + "(";
    for (const TreePtr& part : tree->parts) out += form_within(part, budget) + ";";
    return out + ")";
  }
  return "t" + text_of(*tree);
}

}  // namespace

std::string form_of(const TreePtr& tree) {
  Budget budget;
  return form_within(tree, budget);
}

}  // namespace magister::math
