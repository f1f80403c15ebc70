// Requests are numbered so that a draw's key is (seed, objective, item, attempt): a text has the sample
// item * kAttempts + attempt, a check kFirstCheck + item * kChecksAnItem + check.
#include "tasks/exam/objective_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "tasks/exam/duplicate_pairs.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kAttempts = 64, kFirstCheck = 1ull << 32, kChecksAnItem = 64;
constexpr std::size_t kMostNear = 8;      // items of the objective to which an item is compared by the model
constexpr std::size_t kMostAvoided = 10;  // stems of other items in a prompt

// Choice i of the order that begins with choice `first`.
std::vector<std::string> in_order(const std::vector<ItemChoice>& choices, std::size_t first) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < choices.size(); ++i) texts.push_back(choices[(first + i) % choices.size()].text);
  return texts;
}

float mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// Probability of one class among all classes.
double share_of(const Verdict& verdict, std::size_t which) {
  double all = 0;
  for (const float logprob : verdict.class_logprobs) all += std::exp(static_cast<double>(logprob));
  return std::exp(static_cast<double>(verdict.class_logprobs[which])) / all;
}

}  // namespace

bool is_check(const GenerationRequest& request) { return request.sample >= kFirstCheck; }

ordered_json writing_fields(const ExamTopic& topic, const AskedItem& asked) {
  ordered_json fields = empty_fields();
  fields["passages"] = topic.passages;
  fields["objective"] = topic.text;
  fields["kind"] = words_of(asked.form.kind);
  fields["difficulty"] = name_of(asked.difficulty);
  fields["level"] = name_of(asked.bloom);
  fields["form"] = item_keys(asked.form);
  return fields;
}

ObjectiveRun::ObjectiveRun(const ExamRules& rules, ExamTopic topic, std::vector<TokenId> first_prompt)
    : rules_(rules),
      topic_(std::move(topic)),
      first_prompt_(std::move(first_prompt)),
      items_(rules.config.items),
      progress_(rules.config.items) {}

std::vector<GenerationRequest> ObjectiveRun::begin() { return write_open(); }

std::vector<GenerationRequest> ObjectiveRun::write_open() {
  checking_ = false;
  std::vector<GenerationRequest> requests;
  for (std::size_t item = 0; item < items_.size(); ++item) {
    if (!progress_[item].open) continue;
    const AskedItem asked = asked_item(rules_.config, topic_.passages.size(), topic_.number_in_exam, item);
    GenerationRequest one{topic_.number_in_exam, item * kAttempts + items_[item].size(), writing_prompt(item),
                          static_cast<std::int64_t>(rules_.config.max_new_tokens.tokens()),
                          rules_.constraint(asked.form)};
    ItemVersion version;
    version.item = static_cast<std::uint32_t>(item);
    version.attempt = static_cast<std::uint32_t>(items_[item].size());
    version.numbers.assign(rules_.numbers, std::numeric_limits<float>::quiet_NaN());
    items_[item].push_back(std::move(version));
    requests.push_back(std::move(one));
  }
  pending_ = requests.size();
  return requests;
}

// Gives the reasons against the attempt before, that attempt, and the stems that exist; without them, in this order
// from the end, where the prompt would be too long.
std::vector<TokenId> ObjectiveRun::writing_prompt(std::size_t item) const {
  const std::vector<ItemVersion>& versions = items_[item];
  const AskedItem asked = asked_item(rules_.config, topic_.passages.size(), topic_.number_in_exam, item);
  ordered_json fields = writing_fields(topic_, asked);
  if (!versions.empty()) {
    fields["reasons"] = reasons_in_words(versions.back(), rules_.config.choices);
    if (versions.back().written) fields["previous"] = versions.back().text;
    for (std::size_t other = 0; other < items_.size() && fields["avoid"].size() < kMostAvoided; ++other) {
      if (other == item || items_[other].empty() || !items_[other].back().written) continue;
      if (items_[other].back().state == ExamState::kAccepted)
        fields["avoid"].push_back(items_[other].back().written->item.stem);
    }
  }
  for (const char* const optional : {"avoid", "previous", "reasons", ""}) {
    std::vector<TokenId> prompt = rules_.prompts.encode(ExamPrompt::kWrite, fields, topic_.number);
    if (prompt.size() <= rules_.config.max_prompt_length.tokens() || *optional == '\0') return prompt;
    fields[optional] = fields[optional].is_array() ? ordered_json::array() : ordered_json("");
  }
  return {};
}

std::vector<GenerationRequest> ObjectiveRun::take(Generation&& answer) {
  --pending_;
  if (answer.sample < kFirstCheck) {
    take_text(answer.sample / kAttempts, std::move(answer));
    return pending_ == 0 ? after_writing() : std::vector<GenerationRequest>();
  }
  const std::size_t item = (answer.sample - kFirstCheck) / kChecksAnItem;
  const std::size_t index = (answer.sample - kFirstCheck) % kChecksAnItem;
  Check& check = progress_[item].checks[index];
  rules_.checks.reader(answers_of(check.prompt)).take(check.judged, answer);
  if (!check.judged.done()) {
    ++pending_;
    std::vector<GenerationRequest> more;
    more.push_back(request(item, index));
    return more;
  }
  return pending_ == 0 ? after_checking() : std::vector<GenerationRequest>();
}

void ObjectiveRun::take_text(std::size_t item, Generation&& answer) {
  ItemVersion& version = newest(item);
  version.tokens = std::move(answer.tokens);
  version.text = rules_.text_of(first_prompt_, version.tokens);
  const AskedItem asked = asked_item(rules_.config, topic_.passages.size(), topic_.number_in_exam, item);
  version.written = read_item(version.text, asked.form);
}

// Items are looked at in their order, so that of two that are alike the first one stays.
std::vector<GenerationRequest> ObjectiveRun::after_writing() {
  checking_ = true;
  std::vector<GenerationRequest> requests;
  for (std::size_t item = 0; item < items_.size(); ++item) {
    if (!progress_[item].open) continue;
    ItemVersion& version = newest(item);
    progress_[item].checks.clear();
    std::uint32_t reasons =
        version.written ? structure_reasons(version.written->item, rules_.config.choices) : bit_of(ExamReason::kCutOff);
    const bool again = version.attempt > 0 && items_[item][version.attempt - 1].text == version.text;
    if (again) reasons |= bit_of(ExamReason::kUnchanged);
    if (version.written && repeats(item)) reasons |= bit_of(ExamReason::kRepeated);
    if (reasons == 0) add_checks(item);
    if (reasons == 0 && progress_[item].checks.empty()) reasons |= bit_of(ExamReason::kTooLong);
    if (reasons != 0) {
      // Nothing has changed: another attempt would write the same.
      progress_[item].malformed = again && rules_.config.sampling.temperature == 0 ? rules_.config.bounds.generate
                                                                                   : progress_[item].malformed + 1;
      refuse(item, reasons);
      continue;
    }
    for (std::size_t i = 0; i < progress_[item].checks.size(); ++i) requests.push_back(request(item, i));
  }
  pending_ = requests.size();
  return requests.empty() ? write_open() : std::move(requests);
}

// The items that are accepted or have passed so far and say nearly the same.
std::vector<std::size_t> ObjectiveRun::near_items(std::size_t item) const {
  std::vector<std::size_t> near;
  const auto signature = minhash(duplicate_text(items_[item].back().written->item));
  for (std::size_t other = 0; other < items_.size(); ++other) {
    if (other == item || items_[other].empty()) continue;
    const ItemVersion& version = items_[other].back();
    const bool stays = version.state == ExamState::kAccepted || (other < item && version.state == ExamState::kNone);
    if (!stays || !version.written) continue;
    if (similarity(signature, minhash(duplicate_text(version.written->item))) >=
        rules_.config.limits_of_checks.duplicate)
      near.push_back(other);
  }
  return near;
}

// True if one of them has the same words, or if there are too many to ask the model about each.
bool ObjectiveRun::repeats(std::size_t item) const {
  const std::vector<std::size_t> near = near_items(item);
  return near.size() > kMostNear || std::any_of(near.begin(), near.end(), [&](std::size_t other) {
           return say_the_same(items_[item].back().written->item, items_[other].back().written->item);
         });
}

// Asks in both orders if the item and one of the near ones are the same.
void ObjectiveRun::add_pair_checks(std::size_t item, bool& fits) {
  const ExamItem& own = newest(item).written->item;
  for (const std::size_t other : near_items(item)) {
    const ExamItem& near = newest(other).written->item;
    std::size_t order = 0;
    for (const ordered_json& fields : {same_fields(near, own), same_fields(own, near)}) {
      std::vector<TokenId> tokens = rules_.checks.encode(ExamPrompt::kSame, fields, topic_.number);
      fits = fits && tokens.size() <= rules_.config.max_prompt_length.tokens();
      progress_[item].checks.push_back({ExamPrompt::kSame, 2 * other + order++,
                                        rules_.checks.reader(answers_of(ExamPrompt::kSame)).begin(std::move(tokens))});
    }
  }
}

// Rewritten if the bounds allow another attempt, else rejected.
void ObjectiveRun::refuse(std::size_t item, std::uint32_t reasons) {
  Progress& progress = progress_[item];
  const ExamBounds& bounds = rules_.config.bounds;
  progress.open =
      progress.malformed < bounds.generate && progress.invalid < bounds.validate && progress.unclear < bounds.review;
  newest(item).reasons = reasons;
  newest(item).state = progress.open ? ExamState::kRewritten : ExamState::kRejected;
}

// Adds no check if a prompt would be too long.
void ObjectiveRun::add_checks(std::size_t item) {
  const WrittenItem& written = *newest(item).written;
  const ExamItem& exam_item = written.item;
  ordered_json fields = empty_fields();
  fields["passages"] = topic_.passages;
  fields["objective"] = topic_.text;
  fields["cited"] = written.passage;
  fields["question"] = exam_item.stem;
  fields["answer"] = exam_item.kind == ItemKind::kChoice ? exam_item.choices[0].text : right_answer(exam_item);
  fields["explanation"] = exam_item.explanation;
  std::vector<Check>& checks = progress_[item].checks;
  bool fits = true;
  const auto add = [&](ExamPrompt prompt, std::size_t index) {
    std::vector<TokenId> tokens = rules_.checks.encode(prompt, fields, topic_.number);
    fits = fits && tokens.size() <= rules_.config.max_prompt_length.tokens();
    checks.push_back({prompt, index, rules_.checks.reader(answers_of(prompt)).begin(std::move(tokens))});
  };
  if (exam_item.kind == ItemKind::kChoice) {
    for (std::size_t order = 0; order < exam_item.choices.size(); ++order) {
      fields["options"] = in_order(exam_item.choices, order);
      add(ExamPrompt::kAnswer, order);
      add(ExamPrompt::kClosedAnswer, order);
    }
    const ordered_json answer = fields["answer"];
    for (std::size_t wrong = 1; wrong < exam_item.choices.size(); ++wrong) {
      fields["answer"] = exam_item.choices[wrong].text;
      add(ExamPrompt::kRight, wrong);
    }
    fields["answer"] = answer;
  } else {
    const bool statement = exam_item.kind == ItemKind::kTrueFalse;
    add(statement ? ExamPrompt::kStatement : ExamPrompt::kRight, 0);
    add(statement ? ExamPrompt::kClosedStatement : ExamPrompt::kClosedRight, 0);
  }
  for (const ExamPrompt prompt :
       {ExamPrompt::kSupport, ExamPrompt::kAlignment, ExamPrompt::kWording, ExamPrompt::kBloom})
    add(prompt, 0);
  add_pair_checks(item, fits);
  MAGISTER_ASSERT(checks.size() <= kChecksAnItem);
  if (!fits) checks.clear();
}

GenerationRequest ObjectiveRun::request(std::size_t item, std::size_t check) const {
  const Check& one = progress_[item].checks[check];
  return rules_.checks.reader(answers_of(one.prompt))
      .request(topic_.number_in_exam, kFirstCheck + item * kChecksAnItem + check, one.judged);
}

std::vector<GenerationRequest> ObjectiveRun::after_checking() {
  for (std::size_t item = 0; item < items_.size(); ++item) {
    Progress& progress = progress_[item];
    if (!progress.open || progress.checks.empty()) continue;
    read_checks(item);
    const std::uint32_t reasons = check_reasons(newest(item), rules_.config.limits_of_checks);
    constexpr std::uint32_t kUnclear = bit_of(ExamReason::kChecks, static_cast<std::size_t>(ExamCheck::kWording));
    if (reasons == 0) {
      newest(item).state = ExamState::kAccepted;
      progress.open = false;
    } else {
      ++(reasons == kUnclear ? progress.unclear : progress.invalid);
      refuse(item, reasons);
    }
    progress.checks.clear();
  }
  return write_open();
}

void ObjectiveRun::read_checks(std::size_t item) {
  ItemVersion& version = newest(item);
  const ExamItem& exam_item = version.written->item;
  const std::size_t n = exam_item.choices.size(), width = rules_.config.choices;
  std::vector<double> blind, right, closed, wrong;
  std::map<std::size_t, double> same;  // by the other item: sum over both orders
  float mass = 1;
  for (const Check& check : progress_[item].checks) {
    const Verdict& verdict = check.judged.verdict;
    mass = std::min(mass, verdict.mass);
    // The key is choice 0: in the order that begins with choice i it has the place n - i.
    const std::size_t place = (n - check.index) % std::max<std::size_t>(1, n);
    switch (check.prompt) {
      case ExamPrompt::kAnswer:
        blind.push_back(share_of(verdict, place));
        right.push_back(verdict.verdict == static_cast<std::int32_t>(place) ? 1 : 0);
        for (std::size_t i = 0; i < n; ++i)
          version.numbers[kNumExamNumbers + check.index * width + i] = verdict.class_logprobs[i];
        break;
      case ExamPrompt::kClosedAnswer:
        closed.push_back(share_of(verdict, place));
        break;
      case ExamPrompt::kStatement:
        blind.push_back(share_of(verdict, exam_item.key));
        right.push_back(verdict.verdict == static_cast<std::int32_t>(exam_item.key) ? 1 : 0);
        break;
      case ExamPrompt::kClosedStatement:
        closed.push_back(share_of(verdict, exam_item.key));
        break;
      case ExamPrompt::kRight:
        if (exam_item.kind == ItemKind::kChoice) {
          wrong.push_back(verdict.log_odds);
          version.numbers[kNumExamNumbers + width * width + check.index - 1] = verdict.log_odds;
        } else {
          blind.push_back(share_of(verdict, 0));
          right.push_back(verdict.verdict == 0 ? 1 : 0);
        }
        break;
      case ExamPrompt::kClosedRight:
        closed.push_back(share_of(verdict, 0));
        break;
      case ExamPrompt::kSupport:
        version.number(ExamNumber::kSupport) = verdict.log_odds;
        break;
      case ExamPrompt::kAlignment:
        version.number(ExamNumber::kAlignment) = verdict.log_odds;
        break;
      case ExamPrompt::kWording:
        version.number(ExamNumber::kWording) = verdict.log_odds;
        break;
      case ExamPrompt::kBloom:
        version.bloom = verdict.verdict;
        version.number(ExamNumber::kBloomProbability) = verdict.probability;
        break;
      case ExamPrompt::kSame:
        same[check.index / 2] += verdict.log_odds;
        break;
      case ExamPrompt::kWrite:
      case ExamPrompt::kObjective:
        break;
    }
  }
  version.number(ExamNumber::kBlind) = mean(blind);
  version.number(ExamNumber::kBlindRight) = mean(right);
  version.number(ExamNumber::kClosedBook) = mean(closed);
  if (!wrong.empty())
    version.number(ExamNumber::kSingleKey) = static_cast<float>(*std::max_element(wrong.begin(), wrong.end()));
  version.number(ExamNumber::kMass) = mass;
  for (const auto& [other, sum] : same) {
    float& number = version.number(ExamNumber::kSame);
    if (!std::isnan(number) && sum / 2 <= number) continue;
    number = static_cast<float>(sum / 2);
    version.near = static_cast<std::int32_t>(other);
  }
}

}  // namespace magister
