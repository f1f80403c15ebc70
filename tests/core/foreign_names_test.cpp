// The table of other programs' keys: those that users of common trainers and engines type first; no key is listed
// twice.
#include "magister/core/foreign_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace magister {
namespace foreign_names_test {

TEST(ForeignNames, KeysLeadToKeys) {
  EXPECT_NE(foreign_key("gpu_ids").find("here that is layout.devices, a list such as [0, 1]"), std::string::npos);
  EXPECT_NE(foreign_key("gpus").find("one copy is layout.gpus_per_group"), std::string::npos);
  EXPECT_EQ(foreign_key("CUDA_VISIBLE_DEVICES"), foreign_key("gpu_ids"));
  EXPECT_NE(foreign_key("load_in_8bit").find("model.quantization: int8"), std::string::npos);
  EXPECT_EQ(foreign_key("top_k"), "");
  EXPECT_EQ(foreign_key(""), "");
  EXPECT_EQ(foreign_key("gpu_ids gpu_list"), "");
}

// Names in the scripts of a study: each leads to the key here, or says that there is no such feature.
TEST(ForeignNames, WordsOfStudies) {
  const std::pair<const char*, const char*> words[] = {
      {"max_memory", "no GPU has a limit of its own"},
      {"model_name", "here that is model.path"},
      {"judge_model", "tasks.0.model.path"},
      {"distillation", "task: teacher_logits"},
      {"generation", "task: generate"},
      {"sampling", "keys of the task that writes the texts: temperature, top_p"},
      {"run_id", "`answers`: the path of that run's"},
      {"semantic_entropy", "no task clusters texts"},
      {"g_nll", "the sum of a text's column logprob"},
      {"auroc", "auroc_of_likelihood"},
      {"presence_penalty", "no penalty is subtracted from the logits; repetition_penalty divides them"},
  };
  for (const auto& [word, advice] : words) {
    EXPECT_NE(foreign_key(word).find(advice), std::string::npos) << word << ": " << foreign_key(word);
  }
}

TEST(ForeignNames, ValuesLeadToValues) {
  EXPECT_EQ(foreign_value("dtype", "bfloat16"), "write bf16");
  EXPECT_EQ(foreign_value("precision", "BFloat16"), "write bf16");
  EXPECT_NE(foreign_value("objective", "sft").find("lm"), std::string::npos);
  EXPECT_EQ(foreign_value("task", "quiz"), "write exam");
  EXPECT_EQ(foreign_value("mode", "bfloat16"), "");
  EXPECT_EQ(foreign_value("dtype", ""), "");
}

TEST(ForeignNames, OptionsThatAreKeys) {
  EXPECT_EQ(foreign_option("--gpu-ids"), foreign_key("gpu_ids"));
  EXPECT_EQ(foreign_option("--"), "");
  EXPECT_NE(foreign_option("--resume").find("magister run"), std::string::npos);
}

TEST(ForeignNames, CommandsLeadToTasksAndCommands) {
  EXPECT_NE(foreign_command("server").find("magister serve"), std::string::npos);
  EXPECT_NE(foreign_command("train").find("task: train"), std::string::npos);
  EXPECT_NE(foreign_command("validate").find("magister plan"), std::string::npos);
  EXPECT_EQ(foreign_command("rn"), "");
}

TEST(ForeignNames, ModelsLeadToTheirRepository) {
  EXPECT_NE(foreign_model("gpt2").find("hf download openai-community/gpt2`"), std::string::npos);
  EXPECT_NE(foreign_model("llm_llama-3.1-70b").find("meta-llama/Llama-3.1-70B-Instruct"), std::string::npos);
  const std::string both = foreign_model("llama-3.1-70b-8bit");
  EXPECT_NE(both.find("meta-llama/Llama-3.1-70B-Instruct"), std::string::npos) << both;
  EXPECT_NE(both.find("model.quantization: int8"), std::string::npos) << both;
  EXPECT_NE(foreign_model("/models/mine-4bit").find("; the end of the name asks for what model.quantization: int4"),
            std::string::npos);
  EXPECT_EQ(foreign_model("/models/mine"), "");
}

}  // namespace foreign_names_test
}  // namespace magister
