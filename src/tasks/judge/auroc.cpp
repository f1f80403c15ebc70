// Runs of scores are sorted in memory, written to the file, and merged once: 10^8 scores are 96 runs of 1.6 GB in
// total.
#include "tasks/judge/auroc.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <type_traits>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kReadEntries = 4096;

// Computes the statistic from scores in ascending order.
class Ranking {
 public:
  void add(double score, bool truth) {
    if (score != score_) close();
    score_ = score;
    (truth ? equal_positives_ : equal_negatives_) += 1;
  }
  double value() {
    close();
    return positives_ == 0 || negatives_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                                              : wins_ / (positives_ * negatives_);
  }

 private:
  void close() {
    wins_ += equal_positives_ * (negatives_ + equal_negatives_ / 2);
    positives_ += std::exchange(equal_positives_, 0.0);
    negatives_ += std::exchange(equal_negatives_, 0.0);
  }
  double score_ = 0, positives_ = 0, negatives_ = 0, equal_positives_ = 0, equal_negatives_ = 0, wins_ = 0;
};

}  // namespace

Auroc::Auroc(std::string directory, std::size_t max_in_memory)
    : directory_(std::move(directory)), max_in_memory_(max_in_memory) {
  static_assert(std::is_trivially_copyable_v<Entry> && sizeof(Entry) == 16);
}

void Auroc::add(double score, bool truth) {
  if (entries_.size() == max_in_memory_) spill();
  entries_.push_back({score, truth ? 1u : 0u});
  ++num_scores_;
}

void Auroc::spill() {
  if (!runs_) runs_.emplace(directory_);
  std::sort(entries_.begin(), entries_.end());
  runs_->append(entries_.data(), entries_.size() * sizeof(Entry));
  run_sizes_.push_back(entries_.size());
  entries_.clear();
}

double Auroc::value() {
  Ranking ranking;
  if (!runs_) {
    std::sort(entries_.begin(), entries_.end());
    for (const auto& [score, truth] : entries_) ranking.add(score, truth != 0);
    return ranking.value();
  }
  spill();
  runs_->rewind();
  struct Run {
    std::uint64_t next, end;  // entries of the file
    std::vector<Entry> at_hand;
    std::size_t taken = 0;
  };
  std::vector<Run> runs;
  std::uint64_t begin = 0;
  for (const std::uint64_t size : run_sizes_) runs.push_back({begin, begin + size, {}, 0}), begin += size;
  using Head = std::pair<Entry, std::size_t>;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  const auto advance = [&](std::size_t index) {
    Run& run = runs[index];
    if (run.taken == run.at_hand.size()) {
      run.at_hand.resize(std::min<std::uint64_t>(kReadEntries, run.end - run.next));
      run.taken = 0;
      if (run.at_hand.empty()) return;
      const std::size_t bytes = run.at_hand.size() * sizeof(Entry);
      const std::size_t read =
          runs_->read_at(run.next * sizeof(Entry), {reinterpret_cast<std::byte*>(run.at_hand.data()), bytes});
      MAGISTER_CHECK(read == bytes, ExitCode::kInputOutput,
                     "{}: a temporary file became shorter (the summary needs it); check the "
                     "disk and run the command again",
                     directory_);
      run.next += run.at_hand.size();
    }
    heads.emplace(run.at_hand[run.taken++], index);
  };
  for (std::size_t i = 0; i < runs.size(); ++i) advance(i);
  while (!heads.empty()) {
    const auto [entry, index] = heads.top();
    heads.pop();
    ranking.add(entry.score, entry.truth != 0);
    advance(index);
  }
  return ranking.value();
}

}  // namespace magister
