// Votes are summed in double, first those of the prompts, then those of the panel: the same bits everywhere.
#include "tasks/judge/combine.h"

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"

namespace magister {
namespace {

void normalise(std::vector<double>& logprobs) {
  const double top = *std::max_element(logprobs.begin(), logprobs.end());
  double sum = 0;
  for (const double value : logprobs) sum += std::exp(value - top);
  for (double& value : logprobs) value -= top + std::log(sum);
}

CombinedVerdict most_votes(const std::vector<const Vote*>& sound, std::size_t num_votes, std::size_t num_classes,
                           bool unanimous) {
  std::vector<double> counts(num_classes, 0);
  for (const Vote* vote : sound) {
    if (vote->verdict >= 0) ++counts[static_cast<std::size_t>(vote->verdict)];
  }
  const std::int32_t best = single_largest(counts);
  if (best < 0) return {};
  const double votes = counts[static_cast<std::size_t>(best)];
  if (unanimous && votes != static_cast<double>(num_votes)) return {};
  return {best, static_cast<float>(votes) / static_cast<float>(num_votes)};
}

}  // namespace

Vote vote_of(std::int32_t verdict, std::span<const float> class_logprobs, ParseClass parse, bool exchanged) {
  const bool is_tie = parse == ParseClass::kTie;
  if (!is_tie && (parse != ParseClass::kOk || verdict < 0)) return {};
  Vote vote{true, is_tie ? -1 : exchanged ? 1 - verdict : verdict, {}};
  if (class_logprobs.empty() || std::isnan(class_logprobs[0])) return vote;
  vote.logprobs.assign(class_logprobs.begin(), class_logprobs.end());
  if (exchanged) std::swap(vote.logprobs[0], vote.logprobs[1]);
  if (single_largest(vote.logprobs) < 0) vote.verdict = -1;  // a file may store the first of equal classes
  normalise(vote.logprobs);
  return vote;
}

CombinedVerdict combine(const std::vector<Vote>& votes, std::size_t num_classes, JudgeCombine rule) {
  std::vector<const Vote*> sound;
  for (const Vote& vote : votes) {
    if (vote.sound) sound.push_back(&vote);
  }
  if (sound.empty()) return {};
  const bool all_scored =
      std::all_of(sound.begin(), sound.end(), [](const Vote* vote) { return !vote->logprobs.empty(); });
  if (rule != JudgeCombine::kMeanLogOdds || !all_scored) {
    const bool unanimous = rule == JudgeCombine::kUnanimous;
    return most_votes(sound, unanimous ? votes.size() : sound.size(), num_classes, unanimous);
  }
  std::vector<double> mean(num_classes, 0.0);
  for (const Vote* vote : sound) {
    for (std::size_t c = 0; c < num_classes; ++c) mean[c] += vote->logprobs[c] / static_cast<double>(sound.size());
  }
  normalise(mean);
  const std::int32_t best = single_largest(mean);
  if (best < 0) return {};
  return {best, static_cast<float>(std::exp(mean[static_cast<std::size_t>(best)]))};
}

void check_panel_judge(const std::string& path, const std::string& verdict_names, const Attributes& expected) {
  const VerdictsFile all(path);
  MAGISTER_CHECK(all.names() == verdict_names, ExitCode::kData,
                 "{}: its verdicts are {}, this task's are {} (they cannot be combined); give "
                 "both tasks one mode",
                 printable(path), printable(all.names(), 200), verdict_names);
  for (const char* name : {"dataset_sha256", "answers_sha256", "slice_begin", "slice_end"}) {
    const auto wanted =
        std::find_if(expected.begin(), expected.end(), [&](const auto& one) { return one.first == name; });
    const AttributeValue* const found = all.attribute(name);
    const bool same =
        found == nullptr ? wanted == expected.end() : wanted != expected.end() && *found == wanted->second;
    MAGISTER_CHECK(same, ExitCode::kData,
                   "{}: judges other texts than this task ({} differs; verdicts on different texts would be combined); "
                   "give both tasks one data set, limit, slice and answers",
                   printable(path), name);
  }
}

JudgePanel::JudgePanel(const std::vector<std::string>& paths, const std::string& verdict_names,
                       std::uint64_t num_texts) {
  for (const std::string& path : paths) {
    auto judge = std::make_shared<const VerdictsFile>(path);
    MAGISTER_CHECK(judge->names() == verdict_names, ExitCode::kData,
                   "{}: its verdicts are {}, this task's are {} (they cannot be "
                   "combined); give both tasks one mode",
                   printable(path), printable(judge->names(), 200), verdict_names);
    const std::uint64_t each = judge->samples_a_text(), all = judge->num_samples();
    const bool same = each > 0 && all % each == 0 && all / each == num_texts;
    MAGISTER_CHECK(same, ExitCode::kData,
                   "{}: holds {} verdicts, {} a text, but {} texts are judged here (they are not the same texts); "
                   "give both tasks one data set, limit, slice and answers",
                   printable(path), all, each, num_texts);
    judges_.push_back(std::move(judge));
  }
}

void JudgePanel::add_votes(std::uint64_t t, std::vector<Vote>& votes) const {
  for (const auto& judge : judges_) {
    const std::uint64_t each = judge->samples_a_text(), classes = judge->num_classes();
    const VerdictsFile::Block block = judge->read(t * each, each);
    for (std::uint64_t i = 0; i < each; ++i) {
      const std::span<const float> logprobs(block.class_logprob.data() + i * classes, classes);
      votes.push_back(
          vote_of(block.verdict[i], logprobs, static_cast<ParseClass>(block.parse[i]), block.order[i] != 0));
    }
  }
}

}  // namespace magister
