// Matrices with what is computed of them: sums, products, multiples.
#pragma once

#include "text/math/tree.h"

namespace magister::math {

// The matrix that a tree is when it is worked out; null: it is none, or larger than what is worked out.
TreePtr as_matrix(const TreePtr& tree);

}  // namespace magister::math
