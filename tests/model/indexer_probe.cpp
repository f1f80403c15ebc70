// Runs the attention blocks of a model alone, each on hidden states of its own, and writes their outputs and the keys
// that they have chosen, for sparse_attention_test.py to compare with transformers' modules.
// usage: indexer_probe MODEL HIDDEN.f32 OUT.f32 CHOSEN.i32 LENGTH ...
// HIDDEN and OUT: [layers, T, D]; CHOSEN: [layers, T, index_topk], -1 for a token that sees all earlier ones.
#include <ATen/ATen.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "model/cpu/cpu_weights.h"

namespace magister {
namespace {

void write(const std::string& path, const at::Tensor& tensor) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) return 64;
  const auto file = TensorFile::open(arguments[0]);
  const ModelDescription description = describe_model(arguments[0], *file);
  ThreadPool pool(1);
  const CpuWeights weights = load_cpu_weights(description, *file, 0, 1, at::kFloat, {}, pool, {});
  std::vector<std::vector<TokenId>> sequences;
  for (std::size_t i = 4; i < arguments.size(); ++i) sequences.emplace_back(std::stoul(arguments[i]), 0);
  const PackedBatch batch = pack_sequences(sequences);
  const LayerShape& shape = weights.decoder.front().shape();
  const std::int64_t N = description.config.num_hidden_layers, T = batch.num_tokens(), D = shape.hidden_size,
                     k = shape.latent->indexer->top_k;
  at::Tensor hidden_NTD = at::empty({N, T, D}), out_NTD = at::empty({N, T, D}),
             chosen_NTk = at::full({N, T, k}, -1, at::kInt);
  std::ifstream(arguments[1], std::ios::binary)
      .read(static_cast<char*>(hidden_NTD.data_ptr()), static_cast<std::streamsize>(hidden_NTD.nbytes()));
  const RopeTables tables = weights.rope_tables(batch);
  const BatchPages pages(batch);
  LayerBuffers buffers(batch, pages.sequences, shape, 1);
  for (std::int64_t i = 0; i < N; ++i) {
    const Attention& attention = weights.decoder[static_cast<std::size_t>(i)].attention;
    KvPages kv = pages_for(attention.shape(), pages.num_pages());
    attention.project_qkv(hidden_NTD[i].const_data_ptr<float>(), batch, 0, T, tables.rows[0], kv, buffers, 0);
    attention.choose_keys(batch, kv, buffers, pool);
    for (const AttentionTile& tile : attention_tiles(batch, shape)) {
      attention.attend(tile, kv, buffers, 0);
      if (shape.is_sparse_at(tile.position)) chosen_NTk[i][tile.row_begin].copy_(buffers.chosen_Tk[tile.row_begin]);
    }
    attention.project_output(0, T, buffers, out_NTD[i].data_ptr<float>(), false);
  }
  write(arguments[2], out_NTD);
  write(arguments[3], chosen_NTk);
  return 0;
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  try {
    return magister::run({argv + 1, argv + argc});
  } catch (const magister::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
