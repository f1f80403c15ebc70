// Combines several verdicts on one text - of prompts, orders of a pair, judges - into one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/tasks/judge/scoring.h"
#include "tasks/judge/config.h"
#include "tasks/judge/verdicts_file.h"

namespace magister {

// One vote. For a pair's second order the answers were exchanged, so its classes are exchanged back.
struct Vote {
  bool sound = false;            // false: it does not count as a vote
  std::int32_t verdict = -1;     // -1: none, several classes are equally good
  std::vector<double> logprobs;  // normalised over the classes; empty: only the verdict is known
};

struct CombinedVerdict {
  std::int32_t verdict = -1;  // -1: undecided (no sound vote, a tie, not unanimous)
  float probability = 0;      // mean_log_odds: of the verdict among the classes; otherwise its share of the votes
};

// class_logprobs as stored (NaN: none). Rows that are not sound (parse is neither ok nor a tie) give no vote.
Vote vote_of(std::int32_t verdict, std::span<const float> class_logprobs, ParseClass parse, bool exchanged);

// votes: all rows of one text, including those without a vote. mean_log_odds: averages the classes' normalised
// log-probabilities over the sound votes (for two classes this is the mean of the log-odds); equal largest means are a
// tie (single_largest()). If any sound vote has only a verdict, the rule becomes majority. majority: a vote that is a
// tie itself counts for no class, and equal largest counts are a tie. unanimous: every row must have the verdict.
// Local, pure.
CombinedVerdict combine(const std::vector<Vote>& votes, std::size_t num_classes, JudgeCombine rule);

// Checks that the complete file at path judges the same texts with the same verdicts: data set, answers and slice as in
// `expected`, the identity of this task. Throws Error(kData) naming the difference. Local.
void check_panel_judge(const std::string& path, const std::string& verdict_names, const Attributes& expected);

// The verdicts of other judge tasks on the same texts.
class JudgePanel {
 public:
  // paths: complete files. Throws Error(kData) if one judges other texts or has other verdicts. num_texts: the plan's.
  JudgePanel(const std::vector<std::string>& paths, const std::string& verdict_names, std::uint64_t num_texts);
  // Appends their votes on text t, read from the files. Thread-safe.
  void add_votes(std::uint64_t t, std::vector<Vote>& votes) const;

 private:
  std::vector<std::shared_ptr<const VerdictsFile>> judges_;
};

}  // namespace magister
