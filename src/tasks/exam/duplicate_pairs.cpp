// See duplicate_pairs.h.
#include "tasks/exam/duplicate_pairs.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "magister/core/sha256.h"
#include "magister/text/folded.h"
#include "tasks/exam/duplicates.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

constexpr float kNotAsked = std::numeric_limits<float>::quiet_NaN();

// Pairs of accepted items of different objectives; those of one objective were compared when they were written.
std::vector<ExamPair> near_pairs(const std::vector<ExamVersion>& versions, double least) {
  std::vector<std::size_t> accepted;
  std::vector<MinHashSignature> signatures;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (versions[i].version.state != ExamState::kAccepted) continue;
    accepted.push_back(i);
    signatures.push_back(minhash(duplicate_text(versions[i].item)));
  }
  std::vector<ExamPair> pairs;
  for (const DuplicatePair& pair : find_duplicates(signatures, least)) {
    const std::size_t first = accepted[pair.first], second = accepted[pair.second];
    if (versions[first].record != versions[second].record) pairs.push_back({first, second, pair.similarity, kNotAsked});
  }
  return pairs;
}

std::string digest_of(const std::vector<ExamVersion>& versions) {
  Sha256 hash;
  for (const ExamVersion& one : versions) {
    const std::string text = duplicate_text(one.item);
    hash.update(fmt::format("{} {} {} {}\n", one.item.id, one.version.attempt, text.size(), text));
  }
  return hash.hex();
}

std::string answer_of(const ExamItem& item) {
  return item.kind == ItemKind::kChoice && item.key < item.choices.size() ? item.choices[item.key].text
                                                                          : right_answer(item);
}

}  // namespace

ordered_json same_fields(const ExamItem& one, const ExamItem& other) {
  ordered_json fields = empty_fields();
  fields["question"] = one.stem;
  fields["answer"] = answer_of(one);
  fields["other_question"] = other.stem;
  fields["other_answer"] = answer_of(other);
  return fields;
}

bool say_the_same(const ExamItem& one, const ExamItem& other) {
  return folded_words(duplicate_text(one)) == folded_words(duplicate_text(other));
}

PairCheck::PairCheck(const std::vector<ExamVersion>& versions, const ExamPrompts& prompts, double least,
                     std::uint64_t most_tokens)
    : reader_(prompts.reader(answers_of(ExamPrompt::kSame))), pairs_(near_pairs(versions, least)) {
  for (const ExamPair& pair : pairs_) {
    const ExamItem &first = versions[pair.first].item, &second = versions[pair.second].item;
    std::vector<JudgedPrompt> orders;
    if (!say_the_same(first, second)) {
      for (const auto& fields : {same_fields(first, second), same_fields(second, first)}) {
        std::vector<TokenId> tokens = prompts.encode(ExamPrompt::kSame, fields, second.id);
        if (tokens.size() <= most_tokens) orders.push_back(reader_.begin(std::move(tokens)));
      }
    }
    if (orders.size() < 2) orders.clear();
    asked_.push_back(std::move(orders));
  }
}

std::vector<GenerationRequest> PairCheck::begin() const {
  std::vector<GenerationRequest> requests;
  for (std::size_t pair = 0; pair < asked_.size(); ++pair) {
    for (std::size_t order = 0; order < asked_[pair].size(); ++order) requests.push_back(request(pair, order));
  }
  return requests;
}

GenerationRequest PairCheck::request(std::size_t pair, std::size_t order) const {
  return reader_.request(kPairRecords + pair, order, asked_[pair][order]);
}

std::vector<GenerationRequest> PairCheck::take(const Generation& answer) {
  const std::size_t pair = answer.record - kPairRecords;
  JudgedPrompt& asked = asked_[pair][answer.sample];
  reader_.take(asked, answer);
  std::vector<GenerationRequest> more;
  if (!asked.done()) more.push_back(request(pair, answer.sample));
  return more;
}

std::vector<ExamPair> PairCheck::pairs() const {
  std::vector<ExamPair> pairs = pairs_;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!asked_[i].empty()) pairs[i].log_odds = (asked_[i][0].verdict.log_odds + asked_[i][1].verdict.log_odds) / 2;
  }
  return pairs;
}

std::string pairs_as_text(const std::vector<ExamPair>& pairs, const std::vector<ExamVersion>& versions) {
  ordered_json list = ordered_json::array();
  for (const ExamPair& pair : pairs) {
    list.push_back({pair.first, pair.second, pair.similarity,
                    std::isnan(pair.log_odds) ? ordered_json() : ordered_json(pair.log_odds)});
  }
  return ordered_json{{"items_sha256", digest_of(versions)}, {"pairs", list}}.dump() + "\n";
}

std::optional<std::vector<ExamPair>> read_pairs(const std::string& bytes, const std::vector<ExamVersion>& versions) {
  const ordered_json all = ordered_json::parse(bytes, nullptr, false);
  if (!all.is_object() || all.value("items_sha256", "") != digest_of(versions)) return std::nullopt;
  std::vector<ExamPair> pairs;
  for (const ordered_json& one : all["pairs"]) {
    pairs.push_back({one[0].get<std::size_t>(), one[1].get<std::size_t>(), one[2].get<double>(),
                     one[3].is_null() ? kNotAsked : one[3].get<float>()});
  }
  return pairs;
}

void reject_duplicates(std::vector<ExamVersion>& versions, const std::vector<ExamPair>& pairs, double most_log_odds) {
  for (const ExamPair& pair : pairs) {
    ExamVersion &first = versions.at(pair.first), &second = versions.at(pair.second);
    if (first.version.state != ExamState::kAccepted || second.version.state != ExamState::kAccepted) continue;
    float& number = second.version.number(ExamNumber::kSame);
    if (std::isnan(number) || pair.log_odds > number) {
      number = pair.log_odds;
      second.repeats = first.item.id;
    }
    if (pair.log_odds <= most_log_odds) continue;  // NaN: it was not asked, and the similarity decides
    second.repeats = first.item.id;
    second.version.state = ExamState::kRejected;
    second.version.reasons |= bit_of(ExamReason::kDuplicate);
  }
}

}  // namespace magister
