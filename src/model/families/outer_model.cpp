// The models of images and texts whose texts are computed here, and the names of their tensors.
// Source: transformers' Apertus1p5Config, Gemma3Config, Gemma3nConfig, Gemma4Config, Gemma4UnifiedConfig,
// Mistral3Config, Qwen2_5_VLConfig, Qwen3VLConfig and Glm4vConfig. For the names its conversion_mapping.py:
// transformers 5 reads all three prefixes.
#include "model/families/outer_model.h"

#include <algorithm>
#include <array>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/model/parameter_table.h"
#include "model/families/family.h"

namespace magister {
namespace {

constexpr std::array kOuterModels = {
    OuterModel{"llama4", "Llama4ForConditionalGeneration", "llama4_text", false, false, false, false},
    OuterModel{"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", false, false, true, false},
    OuterModel{"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", false, false, true, false},
    OuterModel{"gemma3n", "Gemma3nForConditionalGeneration", "gemma3n_text", false, false, true, false, 262144},
    OuterModel{"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text", false, false, true,
               false},
    OuterModel{"mistral3", "Mistral3ForConditionalGeneration", "mistral", true, false, true, false},
    OuterModel{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", false, true, false, true},
    OuterModel{"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", false, false, false, false},
    OuterModel{"glm4v", "Glm4vForConditionalGeneration", "glm4v_text", false, false, false, true},
    OuterModel{"apertus1p5", "Apertus1p5ForConditionalGeneration", "apertus1p5_text", false, false, false, false}};

constexpr const char* kTextPrefixes[] = {"model.language_model.", "language_model.model.", "model."};
constexpr const char* kOtherParts[] = {
    "model.vision_tower.",   "model.multi_modal_projector.", "model.visual.",
    "vision_tower.",         "multi_modal_projector.",       "visual.",
    "vision_model.",         "model.audio_tower.",           "model.embed_vision.",
    "model.embed_audio.",    "model.vision_embedder.",       "model.vision_tokenizer.",
    "model.audio_tokenizer."};

constexpr const char* kHeads[] = {"lm_head.weight", "language_model.lm_head.weight"};

}  // namespace

const OuterModel* outer_model(const std::string& model_type) {
  const auto* const found =
      std::ranges::find_if(kOuterModels, [&](const OuterModel& outer) { return model_type == outer.model_type; });
  return found == kOuterModels.end() ? nullptr : found;
}

const TensorInfo* outer_head(const TensorFile& file) {
  for (const char* name : kHeads) {
    if (const TensorInfo* info = file.find(name)) return info;
  }
  return nullptr;
}

void use_outer_names(ModelDescription& description, const OuterModel& outer, const TensorFile* file,
                     const std::string& path) {
  description.outer_type = outer.model_type;
  TensorNames& names = description.names;
  std::string prefix = kTextPrefixes[0];
  for (const char* one : kTextPrefixes) {
    if (file == nullptr || file->find(std::string(one) + "embed_tokens.weight") == nullptr) continue;
    prefix = one;
    break;
  }
  names = with_prefix(description.config, std::move(names), "model.", prefix);
  if (file == nullptr) return;
  if (const TensorInfo* head = outer_head(*file); head != nullptr && !names.lm_head.empty()) names.lm_head = head->name;
  std::uint64_t numbers = 0;
  for (const TensorInfo& info : file->tensors()) {
    if (std::ranges::none_of(kOtherParts, [&](const char* part) { return info.name.starts_with(part); })) continue;
    numbers += num_elements(info.shape);
    names.other_parts.push_back(info.name);
  }
  names.ignored.insert(names.ignored.end(), names.other_parts.begin(), names.other_parts.end());
  if (names.other_parts.empty()) return;
  log_info(
      "{}: {} tensors of encoders beside the text decoder ({:.1f} million weights) are not read, only texts are "
      "computed",
      printable(path), names.other_parts.size(), static_cast<double>(numbers) / 1e6);
}

}  // namespace magister
