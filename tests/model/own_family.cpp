// A model family defined by a test, in one file. Its layers are those of EXAONE 4 without windows: norms on a block's
// output before it is added to the residual stream, none on its input, and the activation that the config names. Its
// model_type is invented, so that only a program linked with this file knows it. Oracle: own_family_test.py,
// transformers' Exaone4ForCausalLM.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace {

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.norm_placement = NormPlacement::kOutput;
  config.qk_norm = true;
  MAGISTER_CHECK(!source.has("sliding_window"), ExitCode::kData,
                 "{}: sliding_window is set (windows of this family are not computed); make it null",
                 printable(source.path()));
}

constexpr Family kOwn{"output_norms", "output_norms", "OutputNormsForCausalLM", "", false, read_hf, nullptr};
[[maybe_unused]] const bool kAdded = (add_family(kOwn), true);

}  // namespace
}  // namespace magister
