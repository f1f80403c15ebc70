// See regions.h. The ends of regions cut the line into points and the open pieces between them; each is in a region or
// not.
#include "text/math/regions.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace magister::math {
namespace {

// -infinity is before all numbers, infinity after them.
int order_of(const End& a, const End& b) {
  if (a.infinite != 0 || b.infinite != 0) return a.infinite < b.infinite ? -1 : a.infinite > b.infinite ? 1 : 0;
  if (near(a.at, b.at, 110)) return 0;
  return mpfr_cmp(a.at.real(), b.at.real()) < 0 ? -1 : 1;
}

std::optional<End> end_of(const Tree& tree, bool closed, Budget& budget) {
  End end;
  end.infinite = infinite_sign(tree);
  end.closed = closed && end.infinite == 0;
  if (end.infinite != 0) return end;
  if (!symbols_of(tree).empty()) return std::nullopt;
  std::optional<Complex> value = value_at(tree, {}, budget);
  if (!value || !value->is_real()) return std::nullopt;
  end.at = std::move(*value);
  return end;
}

bool contains(const Region& region, const End& point) {
  return std::any_of(region.begin(), region.end(), [&](const Interval& one) {
    const int from = order_of(one.from, point), to = order_of(point, one.to);
    return (from < 0 || (from == 0 && one.from.closed)) && (to < 0 || (to == 0 && one.to.closed));
  });
}

// Reports whether the open piece between two neighbouring ends is in the region.
bool covers(const Region& region, const End& from, const End& to) {
  return std::any_of(region.begin(), region.end(),
                     [&](const Interval& one) { return order_of(one.from, from) <= 0 && order_of(to, one.to) <= 0; });
}

Region combined(const Region& a, const Region& b, const std::function<bool(bool, bool)>& in) {
  std::vector<End> ends = {End{{}, -1, false}, End{{}, 1, false}};
  for (const Region* region : {&a, &b})
    for (const Interval& one : *region) {
      ends.push_back(one.from);
      ends.push_back(one.to);
    }
  std::sort(ends.begin(), ends.end(), [](const End& x, const End& y) { return order_of(x, y) < 0; });
  ends.erase(std::unique(ends.begin(), ends.end(), [](const End& x, const End& y) { return order_of(x, y) == 0; }),
             ends.end());
  Region out;
  bool open = false;  // the last interval of `out` is not closed yet
  for (std::size_t i = 0; i < ends.size(); ++i) {
    End end = ends[i];
    const bool point = end.infinite == 0 && in(contains(a, end), contains(b, end));
    end.closed = point;
    const bool after = i + 1 < ends.size() && in(covers(a, end, ends[i + 1]), covers(b, end, ends[i + 1]));
    if (open && !(point && after)) {
      out.back().to = end;
      open = false;
      if (after) {
        out.push_back({end, end});
        open = true;
      }
    } else if (!open && (point || after)) {
      out.push_back({end, end});
      open = after;
    }
  }
  return out;
}

Region all_reals() { return {Interval{End{{}, -1, false}, End{{}, 1, false}}}; }

bool either(bool x, bool y) { return x || y; }

std::optional<Region> points(const std::vector<TreePtr>& parts, Budget& budget) {
  Region all;
  for (const TreePtr& part : parts) {
    const std::optional<End> end = end_of(*part, true, budget);
    if (!end || end->infinite != 0) return std::nullopt;
    all = combined(all, {Interval{*end, *end}}, either);
  }
  return all;
}

}  // namespace

std::optional<Region> region_of(const Tree& tree, Budget& budget) {
  if (tree.kind == Kind::kConstant && tree.name == "numbers r") return all_reals();
  if (tree.kind == Kind::kSet) return tree.parts.size() <= 50 ? points(tree.parts, budget) : std::nullopt;
  if (tree.kind == Kind::kGroup && tree.parts.size() == 2) {
    const std::optional<End> from = end_of(*tree.parts[0], tree.name[0] == '[', budget),
                             to = end_of(*tree.parts[1], tree.name[1] == ']', budget);
    if (!from || !to || order_of(*from, *to) >= 0) return std::nullopt;
    return Region{Interval{*from, *to}};
  }
  if (tree.kind != Kind::kUnion) return std::nullopt;
  const std::optional<Region> a = region_of(*tree.parts[0], budget), b = region_of(*tree.parts[1], budget);
  if (!a || !b || a->size() + b->size() > 50) return std::nullopt;
  if (tree.name == "union") return combined(*a, *b, either);
  if (tree.name == "intersection") return combined(*a, *b, [](bool x, bool y) { return x && y; });
  return combined(*a, *b, [](bool x, bool y) { return x && !y; });
}

std::optional<Region> solutions_of(const Tree& relation, Budget& budget) {
  if (relation.kind != Kind::kRelation) return std::nullopt;
  Region all = all_reals();
  std::string name;
  for (std::size_t i = 0; i < relation.signs.size(); ++i) {
    const Tree* left = relation.parts[i].get();
    const Tree* right = relation.parts[i + 1].get();
    std::string sign = relation.signs[i];
    if (right->kind == Kind::kSymbol && left->kind != Kind::kSymbol) {
      std::swap(left, right);
      sign = sign == "<" ? ">" : sign == "<=" ? ">=" : sign == ">" ? "<" : sign == ">=" ? "<=" : sign;
    }
    if (left->kind != Kind::kSymbol || (!name.empty() && name != left->name)) return std::nullopt;
    name = left->name;
    const std::optional<End> end = end_of(*right, sign == "<=" || sign == ">=", budget);
    if (!end) return std::nullopt;
    const End below{{}, -1, false}, above{{}, 1, false};
    Region part;
    if (sign == "<" || sign == "<=") {
      part = {Interval{below, *end}};
    } else if (sign == ">" || sign == ">=") {
      part = {Interval{*end, above}};
    } else if (sign == "!=") {
      part = {Interval{below, *end}, Interval{*end, above}};
    } else {
      return std::nullopt;
    }
    all = combined(all, part, [](bool x, bool y) { return x && y; });
  }
  return all;
}

bool same_region(const Region& a, const Region& b, bool with_decimals) {
  const auto same_end = [&](const End& x, const End& y) {
    if (x.infinite != y.infinite || x.closed != y.closed) return false;
    return x.infinite != 0 || near(x.at, y.at, 110) || (with_decimals && same_in_six(x.at, y.at));
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Interval& x, const Interval& y) {
    return same_end(x.from, y.from) && same_end(x.to, y.to);
  });
}

}  // namespace magister::math
