// Value-guided decoding: the reference model's best tokens are appended to the text, a value model rates each of them,
// and the logits become logit + f(z). Sources: Q# (arXiv 2502.20548) and PITA (arXiv 2507.20067); the multiplier is 1 /
// eta of the first.
// Legend: V vocabulary, C candidates, L outputs of the value model's head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "magister/core/types.h"

namespace magister {

class Transformer;

enum class GuideForm : std::uint8_t {
  kLogit,        // multiplier * z: z is a logit, as in a preference or reward model
  kBernoulli,    // ln(1 - p + p exp(multiplier)), p = sigmoid(z): for a reward that is 0 or 1, with probability p of 1
  kExpectation,  // multiplier * z: z is the expected reward itself
  kHistogram     // ln sum_i softmax(z)_i exp(multiplier * a_i): rewards a_i = i / (L - 1) in [0, 1]
};

struct GuideParams {
  GuideForm form = GuideForm::kLogit;
  double multiplier = 4;         // finite, not negative; 0: texts are the reference's, and no value model runs
  std::int64_t candidates = 20;  // 1 to V
};

// The offset that is added to a token's logit, nats: f(z). values_L: one number; for kHistogram at least two. NaN if a
// value is not finite. Local, pure.
double guide_offset(const GuideParams& params, std::span<const float> values_L);

// A token of a row and the offset for its logit.
struct GuidedToken {
  TokenId id = -1;
  double offset = 0;
};

// The largest offset of at least one token. Tokens are drawn in proportion to p exp(offset), so only the difference of
// an offset from this one matters: a float near 1e36 would lose the reference's logit. Local, pure.
double largest_offset(std::span<const GuidedToken> tokens);

// KL(guided || reference) of one row, nats, 0 or more. The reference is the softmax of logits_V over the whole
// vocabulary. The guided distribution is proportional to the reference times exp(offset) on these tokens, and 0 on all
// others. Local, pure.
double guide_kl(std::span<const float> logits_V, std::span<const GuidedToken> tokens);

// The same for a row of which only the logits of these tokens, in their order, and the log-sum-exp of the whole are
// known.
double guide_kl(std::span<const float> logits_C, double logsumexp, std::span<const GuidedToken> tokens);

// The value model of a generator, and the number of pages of its cache.
struct GuideSetup {
  Transformer* value_model = nullptr;  // a classifier of the generator's own group; must outlive the generator
  GuideParams params;
  std::int64_t num_pages = 0;  // the same on every shard; the text and the candidates of one sequence must fit
};

}  // namespace magister
