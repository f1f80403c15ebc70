// Lengths that are left to the model (auto).
#include "magister/runtime/length_key.h"

#include <gtest/gtest.h>

#include <string>

#include "magister/core/config.h"
#include "magister/runtime/rope_length.h"

namespace magister {
namespace length_key_test {

struct Read {
  explicit Read(const std::string& text) : document(text, "x.yaml") {
    ConfigNode root = document.root();
    prompt = LengthKey(root, "prompt", 2048, 1, 1 << 24);
    text_behind = LengthKey(root, "text", 256, 1, 1 << 20);
    document.finish();
  }
  // "prompt: 768 text: 256", as in the resolved experiment.
  std::string fitted(std::uint64_t positions) {
    notes.clear();
    fit_lengths(prompt, text_behind, positions, notes);
    std::string yaml = document.resolved_yaml();
    for (char& c : yaml) c = c == '\n' ? ' ' : c;
    return yaml;
  }
  ConfigDocument document;
  LengthKey prompt, text_behind;
  Notes notes;
};

TEST(LengthKey, IsAutoUntilTheModelIsKnown) {
  Read none("prompt: auto\n");
  EXPECT_EQ(none.document.resolved_yaml(), "prompt: auto\ntext: auto\n");
  EXPECT_EQ(none.prompt.tokens(), 2048u);
  EXPECT_FALSE(none.prompt.is_written());
}

TEST(LengthKey, LeavesWhatThePositionsHold) {
  Read none("prompt: auto\n");
  EXPECT_EQ(none.fitted(0), "prompt: 2048 text: 256 ");
  EXPECT_EQ(none.fitted(2304), "prompt: 2048 text: 256 ");
  EXPECT_TRUE(none.notes.empty());
  EXPECT_EQ(none.fitted(2303), "prompt: 2047 text: 256 ");
  EXPECT_EQ(none.fitted(2048), "prompt: 1792 text: 256 ");
  ASSERT_EQ(none.notes.size(), 1u);
  EXPECT_EQ(none.notes[0].first, "prompt");
  EXPECT_EQ(none.notes[0].second, "1792, with text 256 in 2048 positions (auto; 2048 where a model has more)");
  EXPECT_EQ(none.fitted(1024), "prompt: 768 text: 256 ");
  EXPECT_EQ(none.fitted(64), "prompt: 32 text: 32 ");
  EXPECT_EQ(none.notes.size(), 2u);
  EXPECT_EQ(none.fitted(4096), "prompt: 2048 text: 256 ");  // opened again, with another model in its place
}

TEST(LengthKey, LeavesWhatIsWrittenAlone) {
  EXPECT_EQ(Read("text: 1000\n").fitted(2048), "prompt: 1048 text: 1000 ");
  EXPECT_EQ(Read("prompt: 2000\n").fitted(2048), "prompt: 2000 text: 48 ");
  EXPECT_EQ(Read("prompt: 500\n").fitted(2048), "prompt: 500 text: 256 ");
  EXPECT_EQ(Read("prompt: 2000\ntext: 256\n").fitted(2048), "prompt: 2000 text: 256 ");
  // A length that does not fit keeps its written value, for the refusal, and the other length has its usual value.
  EXPECT_EQ(Read("prompt: 3000\n").fitted(2048), "prompt: 3000 text: 256 ");
  EXPECT_EQ(Read("text: 3000\n").fitted(2048), "prompt: 2048 text: 3000 ");
}

TEST(LengthKey, OneLengthHasAllPositions) {
  Read none("prompt: auto\n");
  Notes notes;
  fit_length(none.prompt, 512, notes);
  EXPECT_EQ(none.prompt.tokens(), 512u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].second, "512, all positions that there are (auto; 2048 where a model has more)");
  fit_length(none.prompt, 4096, notes);
  EXPECT_EQ(none.prompt.tokens(), 2048u);
  // A judge that writes nothing.
  LengthKey written;
  notes.clear();
  fit_lengths(none.prompt, written, 1000, notes);
  EXPECT_EQ(none.prompt.tokens(), 1000u);
  EXPECT_EQ(written.tokens(), 0u);
}

TEST(LengthKey, PositionsAreThoseOfTheRotaryFrequencies) {
  ModelConfig model;
  EXPECT_EQ(positions_of(model).whole, 0u);
  model.max_position_embeddings = 4096;
  EXPECT_EQ(positions_of(model).whole, 4096u);
  EXPECT_EQ(positions_of(model).cached, 4096u);
  model.rope.kind = RopeConfig::Kind::kLongRope;
  model.rope.original_max_position_embeddings = 1024;
  EXPECT_EQ(positions_of(model).whole, 4096u);
  EXPECT_EQ(positions_of(model).cached, 4096u);
  fix_rope_length(model, 1024);  // the short list
  EXPECT_EQ(positions_of(model).cached, 1024u);
  fix_rope_length(model, 1025);
  EXPECT_EQ(positions_of(model).cached, 4096u);
  EXPECT_EQ(model.rope.fixed_length, 4096);
  model.rope = {.kind = RopeConfig::Kind::kDynamic, .factor = 2.5};
  EXPECT_EQ(positions_of(model).whole, 10240u);
  fix_rope_length(model, 100);
  EXPECT_EQ(positions_of(model).cached, 4096u);
  fix_rope_length(model, 5000);
  EXPECT_EQ(positions_of(model).whole, 5000u);
  EXPECT_EQ(positions_of(model).cached, 5000u);
  EXPECT_EQ(fewer(0, 7), 7u);
  EXPECT_EQ(fewer(7, 0), 7u);
  EXPECT_EQ(fewer(8, 7), 7u);
}

}  // namespace length_key_test
}  // namespace magister
