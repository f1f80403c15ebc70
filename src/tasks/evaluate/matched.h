// Methods at equal cost: curves of how often a method is right over what it costs, read at the same places.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace magister {

struct CurvePoint {
  double cost = 0;
  double share = 0, low = 0, high = 0;  // with its 95 % interval
};

struct Curve {
  std::string name;
  std::vector<CurvePoint> points;  // in any order
};

// At the cost of each point that lies within two curves or more, ascending: [{<cost_name>: x, "curves": {name: {share, wilson95}}}], a curve
// between two of its points being the line between them. Of points of equal cost the first counts.
nlohmann::ordered_json matched_shares(std::vector<Curve> curves, const std::string& cost_name);

}  // namespace magister
