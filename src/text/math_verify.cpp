// See math_verify.h.
#include "magister/text/math_verify.h"

#include "text/math/verify.h"

namespace magister {

MathExplanation explain_math(std::string_view gold, std::string_view answer) {
  const math::Verdict verdict = math::verify(gold, answer);
  const auto shown = [](const math::Reading& reading) {
    return MathReading{reading.formula, reading.tree ? math::drawing_of(*reading.tree) : "", reading.fault};
  };
  return {verdict.right, verdict.why, shown(verdict.gold), shown(verdict.answer)};
}

}  // namespace magister
