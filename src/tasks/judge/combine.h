// Several verdicts on one text - prompts, orders of a pair, judges - become one.
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

// One voice as it is combined. A pair's second order speaks of exchanged answers: its classes are exchanged back.
struct Vote {
  bool sound = false;            // whether it is a voice at all
  std::int32_t verdict = -1;     // -1: none, it holds several classes for equally good
  std::vector<double> logprobs;  // of the classes among themselves; empty: known by its verdict alone
};

struct CombinedVerdict {
  std::int32_t verdict = -1;  // -1: undecided (no sound voice, a tie, no unanimity)
  float probability = 0;      // mean_log_odds: of it among the classes; else the share of voices that say it
};

// class_logprobs as stored (NaN: none). Rows that are not sound (parse is neither ok nor a tie) have no vote.
Vote vote_of(std::int32_t verdict, std::span<const float> class_logprobs, ParseClass parse, bool exchanged);

// votes: of one text, one a row, with those that have no vote. mean_log_odds: the classes' normalised log-probabilities are
// averaged over the sound voices (of two classes that is the mean of the log-odds), and equal means at the top are a tie (single_largest());
// a voice that is a verdict alone counts as majority would count it, so with any of these the rule is majority. majority: a voice that is a tie
// itself is for nobody, and equally many voices at the top are a tie. unanimous: every row says it. Local, pure.
CombinedVerdict combine(const std::vector<Vote>& votes, std::size_t num_classes, JudgeCombine rule);

// Whether the complete file at path judges the same texts with the same verdicts: data set, answers and slice as in `expected`, the
// identity of this task. Throws Error(kData) naming what differs. Local.
void check_panel_judge(const std::string& path, const std::string& verdict_names, const Attributes& expected);

// Other judge tasks' verdicts on the same texts.
class JudgePanel {
 public:
  // paths: complete files. Throws Error(kData) when one judges other texts or with other verdicts. num_texts: the plan's.
  JudgePanel(const std::vector<std::string>& paths, const std::string& verdict_names, std::uint64_t num_texts);
  // Their votes on text t, read from the files. Any thread.
  void add_votes(std::uint64_t t, std::vector<Vote>& votes) const;

 private:
  std::vector<std::shared_ptr<const VerdictsFile>> judges_;
};

}  // namespace magister
