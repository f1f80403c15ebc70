// The models of images and texts whose texts are computed here, and the names of their tensors.
// Source: the configs of these classes in transformers, for the names its conversion_mapping.py: transformers 5 reads
// those with language_model and "model."; Idefics 3 and SmolVLM have model.text_model.
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
    OuterModel{.model_type = "llama4", .architecture = "Llama4ForConditionalGeneration", .text_type = "llama4_text"},
    OuterModel{.model_type = "gemma3",
               .architecture = "Gemma3ForConditionalGeneration",
               .text_type = "gemma3_text",
               .tied_by_default = true},
    OuterModel{.model_type = "gemma4",
               .architecture = "Gemma4ForConditionalGeneration",
               .text_type = "gemma4_text",
               .tied_by_default = true},
    OuterModel{.model_type = "gemma3n",
               .architecture = "Gemma3nForConditionalGeneration",
               .text_type = "gemma3n_text",
               .tied_by_default = true,
               .first_other_id = 262144},
    OuterModel{.model_type = "gemma4_unified",
               .architecture = "Gemma4UnifiedForConditionalGeneration",
               .text_type = "gemma4_unified_text",
               .tied_by_default = true},
    OuterModel{.model_type = "mistral3",
               .architecture = "Mistral3ForConditionalGeneration",
               .text_type = "mistral",
               .any_text = true,
               .tied_by_default = true},
    OuterModel{.model_type = "qwen2_vl",
               .architecture = "Qwen2VLForConditionalGeneration",
               .text_type = "qwen2_vl_text",
               .is_flat = true,
               .tied_by_text = true},
    OuterModel{.model_type = "qwen2_5_vl",
               .architecture = "Qwen2_5_VLForConditionalGeneration",
               .text_type = "qwen2_5_vl_text",
               .is_flat = true,
               .tied_by_text = true},
    OuterModel{
        .model_type = "qwen3_vl", .architecture = "Qwen3VLForConditionalGeneration", .text_type = "qwen3_vl_text"},
    OuterModel{.model_type = "qwen3_5", .architecture = "Qwen3_5ForConditionalGeneration", .text_type = "qwen3_5_text"},
    OuterModel{.model_type = "qwen3_5_moe",
               .architecture = "Qwen3_5MoeForConditionalGeneration",
               .text_type = "qwen3_5_moe_text"},
    OuterModel{.model_type = "glm4v",
               .architecture = "Glm4vForConditionalGeneration",
               .text_type = "glm4v_text",
               .tied_by_text = true},
    OuterModel{.model_type = "glm4v_moe",
               .architecture = "Glm4vMoeForConditionalGeneration",
               .text_type = "glm4v_moe_text",
               .tied_by_text = true},
    OuterModel{.model_type = "glm46v",
               .architecture = "Glm46VForConditionalGeneration",
               .text_type = "glm4v_text",
               .any_text = true},
    OuterModel{.model_type = "apertus1p5",
               .architecture = "Apertus1p5ForConditionalGeneration",
               .text_type = "apertus1p5_text"},
    OuterModel{.model_type = "kimi_k25",
               .architecture = "Kimi_K25ForConditionalGeneration",
               .text_type = "deepseek_v3",
               .any_text = true,
               .tied_by_default = true,
               .published_architecture = "KimiK25ForConditionalGeneration"},
    OuterModel{.model_type = "exaone4_5",
               .architecture = "Exaone4_5_ForConditionalGeneration",
               .text_type = "exaone4",
               .any_text = true},
    OuterModel{.model_type = "internvl",
               .architecture = "InternVLForConditionalGeneration",
               .text_type = "qwen2",
               .any_text = true,
               .tied_by_default = true},
    OuterModel{.model_type = "llava",
               .architecture = "LlavaForConditionalGeneration",
               .text_type = "llama",
               .any_text = true,
               .tied_by_text = true},
    OuterModel{.model_type = "llava_next",
               .architecture = "LlavaNextForConditionalGeneration",
               .text_type = "llama",
               .any_text = true},
    OuterModel{.model_type = "llava_onevision",
               .architecture = "LlavaOnevisionForConditionalGeneration",
               .text_type = "qwen2",
               .any_text = true,
               .tied_by_text = true},
    OuterModel{.model_type = "idefics3",
               .architecture = "Idefics3ForConditionalGeneration",
               .text_type = "llama",
               .any_text = true},
    OuterModel{.model_type = "smolvlm",
               .architecture = "SmolVLMForConditionalGeneration",
               .text_type = "llama",
               .any_text = true}};

constexpr const char* kTextPrefixes[] = {"model.language_model.", "language_model.model.", "model.text_model.",
                                         "model."};
constexpr const char* kOtherParts[] = {"model.vision_tower.",    "model.multi_modal_projector.",
                                       "model.visual.",          "vision_tower.",
                                       "multi_modal_projector.", "visual.",
                                       "vision_model.",          "model.audio_tower.",
                                       "model.embed_vision.",    "model.embed_audio.",
                                       "model.vision_embedder.", "model.vision_tokenizer.",
                                       "model.audio_tokenizer.", "mm_projector.",
                                       "model.mm_projector.",    "model.vision_model.",
                                       "model.connector.",       "image_newline",
                                       "model.image_newline"};

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
  // transformers 5.24 saves a Kimi K2.5 so, and reads it; the authors' files say layers.
  if (file->find(prefix + "blocks.0.input_layernorm.weight") != nullptr)
    names = with_prefix(description.config, std::move(names), prefix + "layers.", prefix + "blocks.");
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
