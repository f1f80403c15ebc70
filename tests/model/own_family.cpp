// A model family defined by a test, in one file: EXAONE 4 without windows. It differs from Llama in the place of the
// norms (on a block's output before it is added to the residual stream, none on its input) and, as its test configures
// it, in the activation. It is linked with families_probe.cpp; nothing else in the program knows it. Oracle:
// own_family_test.py, transformers' Exaone4ForCausalLM.
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

constexpr Family kExaone4{"exaone4", "exaone4", "Exaone4ForCausalLM", "", false, read_hf, nullptr};
[[maybe_unused]] const bool kAdded = (add_family(kExaone4), true);

}  // namespace
}  // namespace magister
