// The table of other programs' words: what users of the usual trainers and engines type first, and that no word stands there twice.
#include "magister/core/foreign_names.h"

#include <gtest/gtest.h>

#include <string>

namespace magister {
namespace foreign_names_test {

TEST(ForeignNames, KeysLeadToKeys) {
  EXPECT_EQ(foreign_key("gpu_ids"), "here that is layout.devices, a list such as [0, 1]");
  EXPECT_EQ(foreign_key("CUDA_VISIBLE_DEVICES"), foreign_key("gpu_ids"));
  EXPECT_NE(foreign_key("load_in_8bit").find("model.quantization: int8"), std::string::npos);
  EXPECT_EQ(foreign_key("top_k"), "");
  EXPECT_EQ(foreign_key(""), "");
  EXPECT_EQ(foreign_key("gpu_ids gpu_list"), "");
}

TEST(ForeignNames, CommandsLeadToTasksAndCommands) {
  EXPECT_NE(foreign_command("serve").find("there is no server"), std::string::npos);
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
