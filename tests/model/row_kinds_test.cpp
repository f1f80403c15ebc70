// Rows of prompts and of texts that are being written in one pass, on a CPU with quantised weights: a pass of both has
// the bits of one pass for each kind; rows of prompts have the bits of the same weights in f32; rows of texts are near.
#include "model/cpu/row_kinds.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"
#include "model/random_weights_of.h"

namespace magister {
namespace row_kinds_test {

struct Piece {
  int text;
  std::int64_t from, to;
  bool writes;
};

const std::vector<std::vector<std::int32_t>> kPages = {{3, 1}, {2, 0}, {5, 4}};

PackedBatch batch_of(const std::vector<Piece>& pieces, std::vector<BlockTable>& slots) {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::int64_t> past;
  std::vector<std::uint8_t> writes;
  for (const Piece& piece : pieces) {
    const std::vector<TokenId> text = some_text(60, piece.text + 1);
    tokens.emplace_back(text.begin() + piece.from, text.begin() + piece.to);
    past.push_back(piece.from);
    writes.push_back(piece.writes);
    slots.push_back({kPages[static_cast<std::size_t>(piece.text)].data(), 0});
  }
  PackedBatch batch = pack_sequences(tokens, past);
  batch.is_decode_S = writes;
  return batch;
}

TEST(RowKinds, APartHasTheSequencesOfItsKind) {
  std::vector<BlockTable> slots;
  PackedBatch batch = batch_of({{0, 9, 10, true}, {1, 0, 4, false}, {2, 7, 9, true}}, slots);
  const std::vector<PartOfBatch> parts = parts_by_kind(batch, slots);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(kind_of_rows(parts[0].batch), RowKind::kPrompt);
  EXPECT_EQ(kind_of_rows(parts[1].batch), RowKind::kText);
  EXPECT_EQ(kind_of_rows(batch), RowKind::kPrompt);
  EXPECT_TRUE(at::equal(parts[0].rows_R, at::tensor({1, 2, 3, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(parts[1].rows_R, at::tensor({0, 5, 6}, at::kLong)));
  EXPECT_EQ(parts[1].batch.cu_seqlens, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(parts[1].batch.past_S, (std::vector<std::int64_t>{9, 7}));
  EXPECT_EQ(parts[1].slots[1].pages, slots[2].pages);
  EXPECT_TRUE(at::equal(parts[1].batch.positions_T, at::tensor({9, 7, 8}, at::kInt)));
  batch.read_rows = {2, 5};
  const std::vector<PartOfBatch> reading = parts_by_kind(batch, slots);
  EXPECT_EQ(*reading[0].batch.read_rows, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(*reading[1].batch.read_rows, (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(at::equal(reading[1].rows_R, at::tensor({1}, at::kLong)));
}

// Returns the hidden states of passes over pieces of prompts, then of both kinds. together: one pass of both kinds.
std::vector<at::Tensor> passes(Transformer& model, bool together) {
  KvCache cache = model.make_cache(6);
  const auto run = [&](const std::vector<Piece>& pieces) {
    std::vector<BlockTable> slots;
    const PackedBatch batch = batch_of(pieces, slots);
    return model.forward(batch, slots, cache).clone();
  };
  const at::Tensor prompts = run({{0, 0, 9, false}, {2, 0, 7, false}});
  const std::vector<Piece> texts = {{0, 9, 10, true}, {2, 7, 9, true}}, prompt = {{1, 0, 4, false}};
  if (!together) {
    const at::Tensor of_prompt = run(prompt), of_texts = run(texts);
    return {prompts, of_prompt, of_texts};
  }
  const at::Tensor both = run({texts[0], prompt[0], texts[1]});
  return {prompts, both.narrow(0, 1, 4), at::cat({both.narrow(0, 0, 1), both.narrow(0, 5, 2)})};
}

TEST(RowKinds, APassOfBothHasTheBitsOfTwoPasses) {
  at::manual_seed(31);
  ModelDescription description;
  description.config = small_llama();
  description.names = hf_tensor_names(description.config);
  MemoryTensorFile file;
  add_random_weights(file, description, 0.12);
  for (const QuantScheme& codes :
       {QuantScheme{}, QuantScheme{QuantType::kInt8, 32}, QuantScheme{QuantType::kInt4, 128}}) {
    for (const int shards : {1, 2}) {
      auto groups = make_thread_process_groups(shards);
      std::vector<std::thread> threads;
      for (auto& group : groups) {
        threads.emplace_back([&, group = group.get()] {
          ThreadPool pool(2);
          Transformer model(description, file, *group, pool, at::kFloat, codes);
          const std::vector<at::Tensor> alone = passes(model, false), both = passes(model, true);
          for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], both[i])) << i;
          // The same rows as rows of prompts.
          KvCache cache = model.make_cache(6);
          std::vector<BlockTable> slots;
          const PackedBatch batch = batch_of({{0, 0, 10, false}, {2, 0, 9, false}}, slots);
          const at::Tensor rows = model.forward(batch, slots, cache);
          const at::Tensor as_prompts = at::cat({rows.narrow(0, 9, 1), rows.narrow(0, 17, 2)});
          EXPECT_EQ(at::equal(as_prompts, alone[2]), !codes.on());
          EXPECT_LE((as_prompts - alone[2]).abs().max().item<double>(), 4e-4 * as_prompts.abs().max().item<double>());
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

}  // namespace row_kinds_test
}  // namespace magister
