// See work.h.
#include "tasks/exam/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace magister {
namespace {

constexpr double kItemTokens = 130, kWritingEnd = 150, kCheckEnd = 110;
// Pages are shared whole: of a prompt whose passages are in the cache, half a page more than its end is computed.
constexpr double kHalfPage = 24;

// Two digits are known at best.
std::uint64_t about(double count) {
  const double digit = std::pow(10.0, std::max(0.0, std::floor(std::log10(std::max(count, 1.0))) - 1));
  return static_cast<std::uint64_t>(std::round(count / digit) * digit);
}

}  // namespace

ModelWork ExamWork::model_work() const { return {computed, written, 0, at_once}; }

std::string ExamWork::in_words() const {
  return fmt::format(
      "{:.0f} checks and {:.0f} texts for one version of every item: about {} tokens of prompts, of which {} are "
      "computed (equal beginnings once), and {} written, in about {} passes of one group; a second version of every "
      "item costs as much again",
      checks, items, about(given), about(computed), about(written), about(passes));
}

ExamWork expected_work(const ExamConfig& config, double objectives, double prompt_tokens, const PassLimits& pass) {
  ExamWork work;
  const auto per_objective = static_cast<double>(config.items), choices = static_cast<double>(config.choices);
  const double passages = std::max(0.0, prompt_tokens - objectives * kWritingEnd);
  work.items = objectives * per_objective;
  for (const ItemKind kind : config.kinds) {
    const double items = work.items / static_cast<double>(config.kinds.size());
    const bool is_choice = kind == ItemKind::kChoice;
    const double open = is_choice ? 2 * choices - 1 : 1, closed = is_choice ? choices : 1;
    constexpr double kOfTheItem = 3;  // alignment, wording and level; support reads one passage
    const double a_passage = objectives > 0 ? passages / objectives / static_cast<double>(config.passages) : 0;
    work.checks += items * (open + closed + kOfTheItem + 1);
    work.given += items * (passages / std::max(1.0, objectives) * (open + 1) + kWritingEnd + a_passage +
                           (open + closed + kOfTheItem + 1) * kCheckEnd);
  }
  // The passages once for all prompts that read all of them, and once more for those of support.
  work.computed = 2 * passages + work.items * (kWritingEnd + kHalfPage) + work.checks * (kCheckEnd + kHalfPage);
  work.computed = config.share_prefixes ? std::min(work.computed, work.given) : work.given;
  work.written = work.items * kItemTokens;
  work.at_once = std::max(1.0, std::min(work.items, static_cast<double>(pass.sequences)));
  work.passes = std::ceil(work.items / work.at_once) * kItemTokens +
                std::ceil(work.computed / std::max(1.0, static_cast<double>(pass.tokens)));
  return work;
}

}  // namespace magister
