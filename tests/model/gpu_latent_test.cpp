// Latent attention on GPUs, with the kernels on the host: attention over latents in pages against a softmax in double,
// products of each head against ATen, and the whole block against the CPU's latent attention - prompts, parts of them,
// shared prefixes, and rows that decode. The bits of a row are its own.
#include "model/gpu/gpu_latent.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "magister/model/transformer.h"
#include "model/cpu/attention.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/latent_attention_kernels.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace gpu_latent_test {

struct Case {
  int H, C, W;
  HostOrder order = HostOrder::kAscending;
};

class OverLatents : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    set_host_order(GetParam().order);
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

// Latents of sequences with their pages strewn over a cache; slots that no row sees hold NaN.
struct Pages {
  const Case c;
  at::Tensor pages, table;
  std::vector<at::Tensor> latents_S;

  Pages(const Case& shape, const std::vector<std::int64_t>& tokens_S, std::int64_t width) : c(shape) {
    std::int64_t count = 1;
    for (const std::int64_t tokens : tokens_S) count += (tokens + 47) / 48;
    pages = at::full({count, 1, 48, c.W}, NAN, at::kBFloat16);
    table = at::full({static_cast<std::int64_t>(tokens_S.size()), width}, 1 << 30, at::kInt);
    const at::Tensor order = at::randperm(count - 1, at::kLong) + 1;
    std::int64_t next = 0;
    for (std::size_t s = 0; s < tokens_S.size(); ++s) {
      latents_S.push_back(at::randn({tokens_S[s], c.W}).to(at::kBFloat16));
      for (std::int64_t j = 0; j < tokens_S[s]; j += 48) {
        const std::int64_t page = order[next++].item<std::int64_t>(),
                           rows = std::min<std::int64_t>(48, tokens_S[s] - j);
        table[static_cast<std::int64_t>(s)][j / 48] = page;
        pages[page][0].narrow(0, 0, rows).copy_(latents_S[s].narrow(0, j, rows));
      }
    }
  }

  at::Tensor attend(const at::Tensor& q_RHW, const std::vector<std::int32_t>& sequence_R,
                    const std::vector<std::int32_t>& visible_R, std::int64_t K) const {
    const std::int64_t R = q_RHW.size(0);
    const at::Tensor sequence = at::tensor(sequence_R, at::kInt), visible = at::tensor(visible_R, at::kInt),
                     scratch = at::full({R * c.H * K * (c.C + 2)}, NAN);
    at::Tensor out = at::full({R, c.H, c.C}, NAN, at::kBFloat16);
    const LatentArguments arguments{data<Bf16>(q_RHW),
                                    data<Bf16>(pages),
                                    data<std::int32_t>(table),
                                    data<std::int32_t>(sequence),
                                    data<std::int32_t>(visible),
                                    data<Bf16>(out),
                                    table.size(1),
                                    data<float>(scratch),
                                    data<float>(scratch) + R * c.H * K * c.C,
                                    static_cast<int>(R),
                                    c.H,
                                    c.C,
                                    c.W,
                                    static_cast<int>(K),
                                    0.2f};
    start(LatentAttention{arguments}, Queue{});
    start(CombineLatents{arguments}, Queue{});
    return out;
  }

  at::Tensor wanted(const at::Tensor& q_HW, std::size_t sequence, std::int64_t visible) const {
    const at::Tensor seen = latents_S[sequence].narrow(0, 0, visible).to(at::kDouble);
    return at::mm(at::softmax(at::mm(q_HW.to(at::kDouble), seen.t()) * 0.2, -1), seen.narrow(1, 0, c.C));
  }
};

TEST_P(OverLatents, IsThatOfDoublesAndARowsBitsAreItsOwn) {
  const Case& c = GetParam();
  const Pages cache(c, {1, 48, 257, 600}, 13);
  // Several rows of one sequence; ends of pages, steps and chunks; a row without keys.
  const std::vector<std::int32_t> sequence_R = {0, 1, 2, 2, 3, 2, 3, 3}, visible_R = {1, 48, 257, 256, 600, 64, 65, 0};
  const auto R = static_cast<std::int64_t>(sequence_R.size());
  const at::Tensor q_RHW = at::randn({R, c.H, c.W}).to(at::kBFloat16);
  const at::Tensor out = cache.attend(q_RHW, sequence_R, visible_R, latent_chunks(600));
  for (std::int64_t r = 0; r + 1 < R; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const at::Tensor wanted = cache.wanted(q_RHW[r], static_cast<std::size_t>(sequence_R[i]), visible_R[i]);
    const double error = (out[r].to(at::kDouble) - wanted).abs().max().item<double>();
    EXPECT_LE(error, 4e-3 * wanted.abs().max().item<double>()) << r;
    if (r % 2 == 0) continue;
    const at::Tensor alone =
        cache.attend(q_RHW.narrow(0, r, 1).clone(), {sequence_R[i]}, {visible_R[i]}, latent_chunks(visible_R[i]) + 1);
    EXPECT_TRUE(at::equal(alone[0], out[r])) << r;
  }
  EXPECT_TRUE(at::equal(out[R - 1], at::zeros_like(out[R - 1])));
}

// Beyond 64 chunks of 256 keys, chunks are larger, and rows of both kinds stand side by side.
TEST(LongRows, HaveLargerChunks) {
  at::manual_seed(12);
  const Case c{2, 8, 16};
  const Pages cache(c, {16385}, 342);
  const std::vector<std::int32_t> visible_R = {16385, 16384, 300};
  const at::Tensor q_RHW = at::randn({3, c.H, c.W}).to(at::kBFloat16);
  EXPECT_EQ(latent_chunks(16385), 64);
  const at::Tensor out = cache.attend(q_RHW, {0, 0, 0}, visible_R, 64);
  for (std::int64_t r = 0; r < 3; ++r) {
    const at::Tensor wanted = cache.wanted(q_RHW[r], 0, visible_R[static_cast<std::size_t>(r)]);
    EXPECT_LE((out[r].to(at::kDouble) - wanted).abs().max().item<double>(), 4e-3 * wanted.abs().max().item<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, OverLatents,
                         testing::Values(Case{3, 24, 32}, Case{16, 64, 96}, Case{33, 72, 80}, Case{2, 512, 576},
                                         Case{5, 136, 144, HostOrder::kDescending}),
                         [](const auto& info) {
                           return "h" + std::to_string(info.param.H) + "_c" + std::to_string(info.param.C) + "_w" +
                                  std::to_string(info.param.W) +
                                  (info.param.order == HostOrder::kDescending ? "_down" : "");
                         });

TEST(HeadProducts, EachHeadHasItsWeight) {
  at::manual_seed(13);
  constexpr std::int64_t H = 3, N = 40;
  for (const std::int64_t K : {12, 64}) {
    const at::Tensor weight_HNK = at::randn({H, N, K}).to(at::kBFloat16);
    at::Tensor before;
    for (const std::int64_t M : {256, 70, 33, 16, 9, 1}) {
      // Columns of x and of the result beside the products stay as they are.
      if (!before.defined()) before = at::randn({M, H, K + 8}).to(at::kBFloat16);
      const at::Tensor x = before.narrow(0, 0, M);
      at::Tensor out = at::full({M, H, N + 5}, 7, at::kBFloat16);
      StoredWeight stored;
      stored.rows = static_cast<const unsigned char*>(weight_HNK.const_data_ptr());
      stored.row_bytes = 2 * K;
      stored.N = N;
      stored.K = static_cast<int>(K);
      head_products(
          {stored, data<Bf16>(x), x.stride(0), nullptr, out.data_ptr(), out.stride(0), static_cast<int>(M), false},
          {2 * N * K, K + 8, 2 * (N + 5), H}, Queue{});
      const at::Tensor wanted =
          at::einsum("mhk,hnk->mhn", {x.narrow(2, 0, K).to(at::kFloat), weight_HNK.to(at::kFloat)});
      const at::Tensor found = out.narrow(2, 0, N).to(at::kFloat);
      EXPECT_LE(((found - wanted).abs().max() / wanted.abs().max()).item<double>(), 4e-3) << M << ", " << K;
      EXPECT_TRUE((out.narrow(2, N, 5) == 7).all().item<bool>());
    }
  }
}

// Attention of three heads, the same weights for both kinds of devices.
struct Block {
  static constexpr std::int64_t kHidden = 40, kPositions = 200;
  LayerShape shape;
  GpuLayer layer;
  std::unique_ptr<Attention> on_cpu;
  at::Tensor cos_P2 = at::randn({kPositions, 4}), sin_P2 = at::randn({kPositions, 4});

  Block(at::ScalarType dtype, std::int64_t query_rank) {
    shape.hidden_size = kHidden;
    shape.heads = 3;
    shape.kv_heads = 1;
    shape.head_dim = 20;
    shape.rotary_dim = 8;
    shape.kv_of_head = {0, 0, 0};
    shape.latent = LatentConfig{.query_rank = query_rank, .rank = 24, .nope_dim = 12, .rope_dim = 8, .value_dim = 26};
    shape.attention_scale = 0.3f;
    const auto numbers = [dtype](at::IntArrayRef sizes, double scale) { return (at::randn(sizes) * scale).to(dtype); };
    const at::Tensor qkv = numbers({short_numbers(shape), kHidden}, 0.3), o = numbers({kHidden, 3 * 26}, 0.3),
                     up_NC = numbers({3 * 38, 24}, 0.4);
    const auto linear = [](const at::Tensor& weight) { return Linear{weight, {}}; };
    AttentionWeights weights{{}, pack(linear(qkv.to(at::kFloat))), pack(linear(o.to(at::kFloat))), {}, {}};
    weights.k_norm = layer.k_norm = at::rand({24}) + 0.5;
    weights.latent.emplace();
    layer.latent.emplace();
    if (query_rank > 0) {
      weights.q_norm = layer.q_norm = at::rand({query_rank}) + 0.5;
      const at::Tensor q_up = numbers({60, query_rank}, 0.5);
      weights.latent->q_up_proj = pack(linear(q_up.to(at::kFloat)));
      layer.latent->q_up_proj = to_device(linear(q_up), at::kCPU);
    }
    const at::Tensor up_HNC = up_NC.to(at::kFloat).view({3, 38, 24});
    for (int head = 0; head < 3; ++head) {
      weights.latent->key_up.push_back(pack(linear(up_HNC[head].narrow(0, 0, 12).t().contiguous())));
      weights.latent->value_up.push_back(pack(linear(up_HNC[head].narrow(0, 12, 26).contiguous())));
    }
    layer.qkv_proj = to_device(linear(qkv), at::kCPU);
    layer.o_proj = to_device(linear(o), at::kCPU);
    layer.latent->up_proj = to_device(linear(up_NC), at::kCPU);
    layer.latent->key_up_HCN = up_NC.view({3, 38, 24}).narrow(1, 0, 12).transpose(1, 2).contiguous();
    layer.shape = shape;
    on_cpu = std::make_unique<Attention>(shape, std::move(weights));
  }

  // Runs the CPU's fast pass over whole sequences.
  at::Tensor of_cpu(const PackedBatch& batch, const at::Tensor& hidden_TD) const {
    const std::int64_t T = batch.num_tokens();
    RopeRows rope;
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t position = batch.positions_T[t].item<std::int64_t>();
      rope.cos.push_back(cos_P2.const_data_ptr<float>() + 4 * position);
      rope.sin.push_back(sin_P2.const_data_ptr<float>() + 4 * position);
    }
    const BatchPages slots(batch);
    KvPages pages = pages_for(shape, slots.num_pages());
    LayerBuffers buffers(batch, slots.sequences, shape, 1);
    on_cpu->project_qkv(hidden_TD.const_data_ptr<float>(), batch, 0, T, rope, pages, buffers, 0);
    for (const AttentionTile& tile : attention_tiles(batch, shape)) on_cpu->attend(tile, pages, buffers, 0);
    at::Tensor out_TD = at::empty({T, kHidden});
    on_cpu->project_output(0, T, buffers, out_TD.data_ptr<float>(), false);
    return out_TD;
  }

  // The GPU's, with a cache where there are slots. decodes: all rows are to go through the decoding kernels.
  at::Tensor of_gpu(const PackedBatch& batch, const at::Tensor& hidden_TD, const std::vector<BlockTable>& slots = {},
                    const at::Tensor& pages = {}, bool decodes = false) const {
    const Queue queue{};
    const auto multiply = [&](const GpuLinear& linear, const at::Tensor& x) {
      return product_in_tiles(linear, x, linear.prompt_tiles, queue);
    };
    LatentRows rows{multiply(layer.qkv_proj, hidden_TD), cos_P2, sin_P2, batch.positions_T.to(at::kInt)};
    if (!slots.empty()) {
      rows.pages = pages;
      std::vector<std::int64_t> places;
      for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
        for (std::int64_t j = 0; j < batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; ++j) {
          const std::int64_t slot = batch.past(s) + j;
          places.push_back(slots[static_cast<std::size_t>(s)].pages[slot / 48] * 48 + slot % 48);
        }
      }
      rows.slots_T = at::tensor(places, at::kLong);
    }
    const LatentKeys keys = decodes ? latent_keys(batch, slots, at::kCPU) : LatentKeys{};
    const AttentionPlan plan = decodes ? AttentionPlan{} : plan_attention(batch, slots, at::kCPU);
    return multiply(layer.o_proj, latent_attention(layer, plan, keys, rows, multiply, queue)).to(at::kFloat);
  }

  at::Tensor cache(at::ScalarType dtype) const { return at::zeros({8, 1, 48, 32}, dtype); }
};

PackedBatch batch_of(const std::vector<std::int64_t>& lengths, std::vector<std::int64_t> past = {}) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::int64_t length : lengths) sequences.emplace_back(static_cast<std::size_t>(length), 0);
  return pack_sequences(sequences, std::move(past));
}

double relative(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

class LatentBlock : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { at::manual_seed(14); }
  const std::vector<std::int64_t> lengths_ = {1, 7, 60, 130};
  const std::vector<std::vector<std::int32_t>> tables_ = {{0}, {1}, {7, 2}, {3, 6, 4}};

  std::vector<BlockTable> slots() const {
    std::vector<BlockTable> slots;
    for (const auto& table : tables_) slots.push_back({table.data(), 0});
    return slots;
  }
};
INSTANTIATE_TEST_SUITE_P(QueryRanks, LatentBlock, testing::Values(0, 10), testing::PrintToStringParamName());

TEST_P(LatentBlock, InF32EqualsTheCpus) {
  const Block block(at::kFloat, GetParam());
  const PackedBatch batch = batch_of(lengths_);
  const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden});
  EXPECT_LE(relative(block.of_gpu(batch, hidden_TD), block.of_cpu(batch, hidden_TD)), 1e-5);
}

// Prompts in two parts through a cache, and a text that shares another one's beginning: the bits of whole texts.
TEST_P(LatentBlock, PartsOfPromptsHaveTheirBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Block block(dtype, GetParam());
    const PackedBatch batch = batch_of(lengths_);
    const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden}).to(dtype),
                     whole = block.of_gpu(batch, hidden_TD), pages = block.cache(dtype);
    std::vector<std::int64_t> rows[2], parts[2], past;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      past.push_back((lengths_[s] + 1) / 2);
      for (std::int64_t j = 0; j < lengths_[s]; ++j) rows[j < past[s] ? 0 : 1].push_back(batch.cu_seqlens[s] + j);
      parts[0].push_back(past[s]);
      parts[1].push_back(lengths_[s] - past[s]);
    }
    for (int part = 0; part < 2; ++part) {
      const at::Tensor of_part = at::tensor(rows[part], at::kLong);
      const at::Tensor found = block.of_gpu(batch_of(parts[part], part == 0 ? std::vector<std::int64_t>(4, 0) : past),
                                            hidden_TD.index_select(0, of_part), slots(), pages);
      EXPECT_TRUE(at::equal(found, whole.index_select(0, of_part))) << part << ", " << dtype;
    }
    // The last text once more, of which the first 100 tokens are those of the text before it.
    PackedBatch shared = batch_of({130, 30}, {0, 100});
    shared.prefix_of_S = {0, 0};
    const std::int64_t first = batch.cu_seqlens[3];
    const at::Tensor found =
        block.of_gpu(shared, at::cat({hidden_TD.narrow(0, first, 130), hidden_TD.narrow(0, first + 100, 30)}, 0));
    EXPECT_TRUE(at::equal(found.narrow(0, 130, 30), whole.narrow(0, first + 100, 30))) << dtype;
  }
}

TEST_P(LatentBlock, DecodingIsNearTheCpusAndARowsBitsAreItsOwn) {
  const Block block(at::kBFloat16, GetParam());
  const PackedBatch batch = batch_of(lengths_);
  const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden}).to(at::kBFloat16),
                   wanted_TD = block.of_cpu(batch, hidden_TD.to(at::kFloat)), pages = block.cache(at::kBFloat16);
  std::vector<std::int64_t> past, last;
  for (std::size_t s = 1; s < lengths_.size(); ++s) {
    past.push_back(lengths_[s] - 1);
    last.push_back(batch.cu_seqlens[s + 1] - 1);
  }
  // All tokens stand in the cache; the last ones of three texts are computed again.
  block.of_gpu(batch_of(lengths_, std::vector<std::int64_t>(4, 0)), hidden_TD, slots(), pages);
  const std::vector<BlockTable> all = slots(), three(all.begin() + 1, all.end());
  const at::Tensor rows = at::tensor(last, at::kLong), hidden_RD = hidden_TD.index_select(0, rows);
  const PackedBatch one_each = batch_of({1, 1, 1}, past);
  const at::Tensor written = pages.clone();
  pages.view({-1, 32}).index_fill_(0, at::tensor({1 * 48 + 6, 2 * 48 + 11, 4 * 48 + 33}, at::kLong), NAN);
  const at::Tensor found = block.of_gpu(one_each, hidden_RD, three, pages, true);
  EXPECT_TRUE(at::equal(pages, written)) << "a row's own latent";
  EXPECT_LE(relative(found, wanted_TD.index_select(0, rows)), 0.02);
  for (std::int64_t r = 0; r < 3; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const at::Tensor alone = block.of_gpu(batch_of({1}, {past[i]}), hidden_RD.narrow(0, r, 1), {three[i]}, pages, true);
    EXPECT_TRUE(at::equal(alone[0], found[r])) << r;
  }
}

}  // namespace gpu_latent_test
}  // namespace magister::gpu
