#include "tasks/evaluate/summary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "magister/core/wilson.h"
#include "tasks/evaluate/columns.h"
#include "tasks/evaluate/matched.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// null for no records.
ordered_json mean(double sum, std::uint64_t records) {
  return records == 0 ? ordered_json() : ordered_json(sum / static_cast<double>(records));
}

// {share, count, of, wilson95}; count is the sum of the records' shares.
ordered_json interval(double sum, std::uint64_t records) {
  const auto [low, high] = wilson_interval(sum, static_cast<double>(records));
  return {{"count", sum}, {"of", records}, {"share", mean(sum, records)}, {"wilson95", {low, high}}};
}

CurvePoint point_of(double cost, const ordered_json& share) {
  return {cost, share["share"].get<double>(), share["wilson95"][0].get<double>(), share["wilson95"][1].get<double>()};
}

// Share of one right text: the mean over all texts if pass_at has 1, otherwise that of the first texts.
const ordered_json& share_of_one(const ordered_json& method) {
  return method["pass_at"].contains("1") ? method["pass_at"]["1"] : method["accuracy"];
}

// Texts without a guide have a KL of 0.
std::vector<Curve> curves_over_kl(const EvaluateConfig& config, const ordered_json& methods) {
  std::vector<Curve> curves;
  for (const auto& [name, scores] : config.curves) {
    Curve& curve = curves.emplace_back(Curve{name, {}});
    for (const std::string& score : scores) {
      const ordered_json& method = methods[score];
      const double kl = method["guide_kl"].is_null() ? 0.0 : method["guide_kl"].get<double>();
      curve.points.push_back(point_of(kl, share_of_one(method)));
    }
  }
  return curves;
}

// The cost of one text, and k times this cost for votes of k.
std::vector<Curve> curves_over_flops(const EvaluateConfig& config, const ordered_json& methods) {
  std::vector<Curve> curves;
  for (const auto& [name, scores] : config.curves) {
    Curve& curve = curves.emplace_back(Curve{name, {}});
    for (const std::string& score : scores) {
      const ordered_json& method = methods[score];
      if (method["flops"].is_null()) continue;
      const double one = method["flops"].get<double>();
      curve.points.push_back(point_of(one, share_of_one(method)));
      for (const std::uint64_t k : config.majority_at) {
        if (k > 1)
          curve.points.push_back(point_of(one * static_cast<double>(k), method["majority_at"][std::to_string(k)]));
      }
    }
  }
  return curves;
}

}  // namespace

std::optional<ordered_json> evaluation_summary(const EvaluateConfig& config, const std::vector<ScoresFile>& scored,
                                               std::uint64_t num_records, const ReadRows& read, const StopSign& stop) {
  const std::size_t methods = config.scores.size(), passes = config.pass_at.size(), votes = config.majority_at.size();
  const bool unread = std::any_of(scored.begin(), scored.end(), [](const auto& one) { return one.reports_unread(); });
  std::vector<double> correct(methods), tokens(methods), kl(methods), flops(methods), pass(methods * passes),
      majority(methods * votes), by_reason(methods * kNumUnread);
  const auto add = [&]<typename T>(const Column<T>& column, std::uint64_t first, std::uint64_t count,
                                   std::vector<double>& sums) {
    std::vector<T> values(count * sums.size());
    read(column.path, first, std::as_writable_bytes(std::span(values)));
    for (std::size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += static_cast<double>(values[i]);
  };
  for (std::uint64_t first = 0; first < num_records; first += kEvaluatedUnit) {
    if (stop.raised()) return std::nullopt;
    const std::uint64_t count = std::min(kEvaluatedUnit, num_records - first);
    add(evaluate_column::kCorrect, first, count, correct);
    add(evaluate_column::kPassAt, first, count, pass);
    if (votes > 0) add(evaluate_column::kMajorityAt, first, count, majority);
    add(evaluate_column::kNumTokens, first, count, tokens);
    add(evaluate_column::kGuideKl, first, count, kl);
    add(evaluate_column::kFlops, first, count, flops);
    if (unread) add(evaluate_column::kUnread, first, count, by_reason);
  }
  ordered_json summary = {{"records", num_records}};
  for (std::size_t m = 0; m < methods; ++m) {
    ordered_json& one = summary["methods"][config.scores[m]];
    one["texts_a_record"] = scored[m].texts_a_record();
    one["accuracy"] = interval(correct[m], num_records);
    for (std::size_t k = 0; k < passes; ++k)
      one["pass_at"][std::to_string(config.pass_at[k])] = interval(pass[m * passes + k], num_records);
    for (std::size_t k = 0; k < votes; ++k)
      one["majority_at"][std::to_string(config.majority_at[k])] = interval(majority[m * votes + k], num_records);
    for (const auto& [name, sum] :
         {std::pair("tokens", tokens[m]), std::pair("guide_kl", kl[m]), std::pair("flops", flops[m])})
      one[name] = sum < -0.5 ? ordered_json() : mean(sum, num_records);
    if (!scored[m].reports_unread()) continue;
    UnreadCounts counts{};
    for (std::size_t i = 0; i < kNumUnread; ++i) counts[i] = static_cast<std::uint64_t>(by_reason[m * kNumUnread + i]);
    one["unread"] = unread_json(counts);
  }
  if (!config.curves.empty() && num_records > 0) {
    summary["matched"] = {{"guide_kl", matched_shares(curves_over_kl(config, summary["methods"]), "guide_kl")},
                          {"flops", matched_shares(curves_over_flops(config, summary["methods"]), "flops")}};
  }
  return summary;
}

}  // namespace magister
