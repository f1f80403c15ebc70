// Matrices, with their sums, products and multiples computed.
#pragma once

#include "text/math/tree.h"

namespace magister::math {

// Returns the matrix that a tree amounts to; null: not a matrix, or too large to compute.
TreePtr as_matrix(const TreePtr& tree);

}  // namespace magister::math
