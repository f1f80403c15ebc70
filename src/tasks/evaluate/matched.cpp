// Curves are linear between neighbouring points and are not extended beyond their ends. Points of equal cost are
// common: all methods without a guide have a KL of 0.
#include "tasks/evaluate/matched.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

namespace magister {
namespace {

using nlohmann::ordered_json;

// points: ascending, each cost once.
std::optional<CurvePoint> at(const std::vector<CurvePoint>& points, double cost) {
  const auto above = std::lower_bound(points.begin(), points.end(), cost,
                                      [](const CurvePoint& point, double wanted) { return point.cost < wanted; });
  if (above == points.end()) return std::nullopt;
  if (above->cost == cost) return *above;
  if (above == points.begin()) return std::nullopt;
  const CurvePoint &a = *(above - 1), &b = *above;
  const double t = (cost - a.cost) / (b.cost - a.cost);
  return CurvePoint{cost, std::lerp(a.share, b.share, t), std::lerp(a.low, b.low, t), std::lerp(a.high, b.high, t)};
}

}  // namespace

ordered_json matched_shares(std::vector<Curve> curves, const std::string& cost_name) {
  const auto is_before = [](const CurvePoint& a, const CurvePoint& b) {
    return std::tuple(a.cost, -a.share, -a.low, -a.high) < std::tuple(b.cost, -b.share, -b.low, -b.high);
  };
  const auto costs_the_same = [](const CurvePoint& a, const CurvePoint& b) { return a.cost == b.cost; };
  std::set<double> costs;
  for (Curve& curve : curves) {
    std::sort(curve.points.begin(), curve.points.end(), is_before);
    curve.points.erase(std::unique(curve.points.begin(), curve.points.end(), costs_the_same), curve.points.end());
    for (const CurvePoint& point : curve.points) costs.insert(point.cost);
  }
  ordered_json all = ordered_json::array();
  for (const double cost : costs) {
    ordered_json shares;
    for (const Curve& curve : curves) {
      if (const auto point = at(curve.points, cost))
        shares[curve.name] = {
            {"share", point->share}, {"count", nullptr}, {"of", nullptr}, {"wilson95", {point->low, point->high}}};
    }
    if (shares.size() >= 2) all.push_back({{cost_name, cost}, {"curves", std::move(shares)}});
  }
  return all;
}

}  // namespace magister
