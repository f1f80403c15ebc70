// See matrices.h.
#include "text/math/matrices.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace magister::math {
namespace {

// Products of larger matrices, or more products, would make trees of unbounded size.
constexpr std::size_t kMaxFactorRows = 6;
constexpr int kMaxMatrixProducts = 3;

TreePtr worked_out(const TreePtr& tree, int& products);

std::size_t rows_of(const TreePtr& matrix) { return matrix->parts.size(); }
std::size_t columns_of(const TreePtr& matrix) { return matrix->parts[0]->parts.size(); }

// Applies change(entry, row, column) to every entry.
template <typename Change>
TreePtr entrywise(const TreePtr& matrix, const Change& change) {
  std::vector<TreePtr> rows;
  for (std::size_t r = 0; r < rows_of(matrix); ++r) {
    std::vector<TreePtr> row;
    for (std::size_t c = 0; c < columns_of(matrix); ++c) row.push_back(change(matrix->parts[r]->parts[c], r, c));
    rows.push_back(tree_of(Kind::kList, std::move(row)));
  }
  return tree_of(Kind::kMatrix, std::move(rows));
}

TreePtr added(const TreePtr& a, const TreePtr& b) {
  if (rows_of(a) != rows_of(b) || columns_of(a) != columns_of(b)) return nullptr;
  return entrywise(a, [&](const TreePtr& one, std::size_t r, std::size_t c) {
    return tree_of(Kind::kSum, {one, b->parts[r]->parts[c]});
  });
}

TreePtr multiplied(const TreePtr& a, const TreePtr& b, int& products) {
  if (columns_of(a) != rows_of(b) || rows_of(b) > kMaxFactorRows || ++products > kMaxMatrixProducts) return nullptr;
  std::vector<TreePtr> rows;
  for (const TreePtr& row : a->parts) {
    std::vector<TreePtr> made;
    for (std::size_t c = 0; c < columns_of(b); ++c) {
      std::vector<TreePtr> terms;
      for (std::size_t k = 0; k < row->parts.size(); ++k)
        terms.push_back(tree_of(Kind::kProduct, {row->parts[k], b->parts[k]->parts[c]}));
      made.push_back(tree_of(Kind::kSum, std::move(terms)));
    }
    rows.push_back(tree_of(Kind::kList, std::move(made)));
  }
  return tree_of(Kind::kMatrix, std::move(rows));
}

TreePtr sum_of(const Tree& tree, int& products) {
  TreePtr all = worked_out(tree.parts[0], products);
  for (std::size_t i = 1; i < tree.parts.size() && all; ++i) {
    const TreePtr next = worked_out(tree.parts[i], products);
    all = next ? added(all, next) : nullptr;
  }
  return all;
}

// A product of matrices and numbers: the numbers multiply the product of the matrices.
TreePtr product_of(const Tree& tree, int& products) {
  TreePtr all, factor;
  for (const TreePtr& part : tree.parts) {
    const TreePtr next = worked_out(part, products);
    if (!next) {
      factor = factor ? tree_of(Kind::kProduct, {factor, part}) : part;
    } else {
      all = all ? multiplied(all, next, products) : next;
      if (!all) return nullptr;
    }
  }
  if (!all || !factor) return all;
  return entrywise(
      all, [&](const TreePtr& one, std::size_t, std::size_t) { return tree_of(Kind::kProduct, {factor, one}); });
}

TreePtr worked_out(const TreePtr& tree, int& products) {
  if (tree->kind == Kind::kMatrix) return tree;
  if (tree->kind == Kind::kSum) return sum_of(*tree, products);
  if (tree->kind == Kind::kProduct) return product_of(*tree, products);
  if (tree->kind != Kind::kNegative) return nullptr;
  const TreePtr inside = worked_out(tree->parts[0], products);
  if (!inside) return nullptr;
  return entrywise(inside,
                   [](const TreePtr& one, std::size_t, std::size_t) { return tree_of(Kind::kNegative, {one}); });
}

}  // namespace

TreePtr as_matrix(const TreePtr& tree) {
  int products = 0;
  return holds(*tree, Kind::kMatrix) ? worked_out(tree, products) : nullptr;
}

}  // namespace magister::math
