// Compares methods at equal cost: curves of the share of right answers over cost, read at the same costs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace magister {

struct CurvePoint {
  double cost = 0;
  double share = 0, low = 0, high = 0;  // share with its 95 % interval
};

struct Curve {
  std::string name;
  std::vector<CurvePoint> points;  // in any order
};

// Reads the curves at the cost of each point that lies within two curves or more, ascending: [{<cost_name>: x,
// "curves": {name: {share, wilson95}}}]. Between two points a curve is linear. Of the points of a curve that have
// equal cost the one with the highest share counts, so the order of points does not matter. Local, pure.
nlohmann::ordered_json matched_shares(std::vector<Curve> curves, const std::string& cost_name);

}  // namespace magister
