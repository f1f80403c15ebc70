// A shard's fused weights against slices taken from the whole tensors by ATen: order of q, k, v and of gate, up, heads
// copied and divided, interleaved rotary rows, biases once over the shards, tied heads, exact bytes, unused tensors.
#include "magister/model/weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/device/staged_upload.h"
#include "magister/parallel/thread_pool.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {
namespace weights_test {

struct Case {
  const char* name;
  std::int64_t heads, kv_heads, head_dim, mlp, vocab;
  bool gguf, tied, biases, qk_norm;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

at::Tensor rows(const at::Tensor& all, IndexRange range, std::int64_t step = 1) {
  return all.slice(0, static_cast<std::int64_t>(range.begin) * step, static_cast<std::int64_t>(range.end) * step);
}
at::Tensor columns(const at::Tensor& all, IndexRange range, std::int64_t step = 1) {
  return all.slice(1, static_cast<std::int64_t>(range.begin) * step, static_cast<std::int64_t>(range.end) * step);
}

class Weights : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    ModelConfig& config = description_.config;
    config.vocab_size = c.vocab;
    config.hidden_size = 24;
    config.intermediate_size = c.mlp;
    config.num_hidden_layers = 2;
    config.num_attention_heads = c.heads;
    config.num_key_value_heads = c.kv_heads;
    config.head_dim = c.head_dim;
    config.tie_word_embeddings = c.tied;
    config.qkv_bias = config.o_bias = config.mlp_bias = c.biases;
    config.qk_norm = c.qk_norm;
    description_.names =
        c.gguf
            ? gguf_tensor_names(
                  config, Family{.name = "", .model_type = "", .architecture = "", .gguf_interleaved_rope_rows = true})
            : hf_tensor_names(config);
    for (const ExpectedTensor& tensor : expected_tensors(config, description_.names))
      file_.add(tensor.name, tensor.shape);
  }

  // The whole tensor in the order of halves.
  at::Tensor whole(const std::string& name, bool rotary = false) {
    at::Tensor all = file_.values(name);
    if (!rotary || !GetParam().gguf) return all;
    const std::int64_t E = GetParam().head_dim;
    at::Tensor out = all.clone();
    for (std::int64_t row = 0; row < all.size(0); ++row) {
      const std::int64_t head = row / E, place = row % E;
      out[head * E + place / 2 + (place % 2) * (E / 2)] = all[row];
    }
    return out;
  }

  void expect_ends(WeightSource& source, const Partition& part);
  void expect_layer(WeightSource& source, const Partition& part, std::int64_t i);
  void expect_partial(WeightSource& source, const Partition& part, int rank, std::int64_t i);

  MemoryTensorFile file_;
  ModelDescription description_;
};

void Weights::expect_ends(WeightSource& source, const Partition& part) {
  const TensorNames& names = description_.names;
  const bool tied = description_.config.tie_word_embeddings;
  const at::Tensor embeddings = source.load_embeddings(), head = source.load_lm_head(embeddings);
  EXPECT_TRUE(at::equal(embeddings, rows(whole(names.embed_tokens), part.vocab)));
  EXPECT_EQ(head.is_same(embeddings), tied);
  EXPECT_TRUE(at::equal(head, rows(whole(tied ? names.embed_tokens : names.lm_head), part.vocab)));
  EXPECT_TRUE(at::equal(source.load_norm().input_D, whole(names.norm)));
}

void Weights::expect_layer(WeightSource& source, const Partition& part, std::int64_t i) {
  const ModelConfig& config = description_.config;
  const TensorNames::Layer& names = description_.names.layers[static_cast<std::size_t>(i)];
  const std::int64_t E = config.head_dim;
  EXPECT_TRUE(at::equal(source.load_attention_norms(i).input_D, whole(names.attention_input_norm)));
  EXPECT_TRUE(at::equal(source.load_mlp_norms(i).input_D, whole(names.mlp_input_norm)));
  const at::Tensor q_norm = source.load_q_norm(i), k_norm = source.load_k_norm(i);
  ASSERT_EQ(q_norm.defined() && k_norm.defined(), config.qk_norm);
  EXPECT_TRUE(!config.qk_norm || (at::equal(q_norm, whole(names.q_norm)) && at::equal(k_norm, whole(names.k_norm))));

  const Linear qkv = source.load_qkv_proj(i), gate_up = source.load_gate_up_proj(i);
  EXPECT_TRUE(at::equal(qkv.weight_NK, at::cat({rows(whole(names.q_proj, true), part.heads, E),
                                                rows(whole(names.k_proj, true), part.kv_heads, E),
                                                rows(whole(names.v_proj), part.kv_heads, E)})));
  EXPECT_TRUE(at::equal(gate_up.weight_NK,
                        at::cat({rows(whole(names.gate_proj), part.mlp), rows(whole(names.up_proj), part.mlp)})));
  EXPECT_TRUE(qkv.weight_NK.is_contiguous() && gate_up.weight_NK.is_contiguous());
  ASSERT_EQ(qkv.bias_N.defined(), config.qkv_bias);
  ASSERT_EQ(gate_up.bias_N.defined(), config.mlp_bias);
  if (!config.qkv_bias) return;
  EXPECT_TRUE(at::equal(qkv.bias_N, at::cat({rows(whole(names.q_bias, true), part.heads, E),
                                             rows(whole(names.k_bias, true), part.kv_heads, E),
                                             rows(whole(names.v_bias), part.kv_heads, E)})));
  EXPECT_TRUE(at::equal(gate_up.bias_N,
                        at::cat({rows(whole(names.gate_bias), part.mlp), rows(whole(names.up_bias), part.mlp)})));
}

// The products that are summed over the shards: [D, part] weights, one bias in all.
void Weights::expect_partial(WeightSource& source, const Partition& part, int rank, std::int64_t i) {
  const ModelConfig& config = description_.config;
  const TensorNames::Layer& names = description_.names.layers[static_cast<std::size_t>(i)];
  const Linear o = source.load_o_proj(i), down = source.load_down_proj(i);
  EXPECT_TRUE(at::equal(o.weight_NK, columns(whole(names.o_proj), part.heads, config.head_dim)));
  EXPECT_TRUE(at::equal(down.weight_NK, columns(whole(names.down_proj), part.mlp)));
  EXPECT_TRUE(o.weight_NK.is_contiguous() && down.weight_NK.is_contiguous());
  ASSERT_EQ(o.bias_N.defined(), config.o_bias && rank == 0);
  ASSERT_EQ(down.bias_N.defined(), config.mlp_bias && rank == 0);
  EXPECT_TRUE(!o.bias_N.defined() || at::equal(o.bias_N, whole(names.o_bias)));
  EXPECT_TRUE(!down.bias_N.defined() || at::equal(down.bias_N, whole(names.down_bias)));
}

// By threads, and through blocks that hold less than a head: what goes to a device is what stays here.
TEST_P(Weights, ThreadsAndBlocksChangeNoBit) {
  ThreadPool pool(3);
  for (const std::int64_t block_bytes :
       {std::int64_t{0}, std::int64_t{200}, std::int64_t{1024}, std::int64_t{1} << 20}) {
    StagedUpload upload(at::kCPU, 3, block_bytes);
    for (const int size : working_tp_sizes(description_.config, 2)) {
      const Partition part = partition_for(description_.config, size - 1, size);
      WeightSource source(file_, description_, part, size - 1, at::kFloat, {}, &pool);
      if (block_bytes > 0) source.send_to(upload);
      expect_ends(source, part);
      for (std::int64_t i = 0; i < 2; ++i) {
        expect_layer(source, part, i);
        expect_partial(source, part, size - 1, i);
      }
      source.verify_all_used();
      EXPECT_EQ(source.loaded_bytes(), weight_bytes(description_.config, at::kFloat, size - 1, size));
      if (block_bytes == 0) continue;
      const at::Tensor some = at::randn({7, 129}).to(at::kHalf);
      EXPECT_TRUE(at::equal(source.sent(some), some));
    }
  }
}

// Read in parts into panels: the numbers of the plain weights.
TEST_P(Weights, PackedProductsAreThePlainOnes) {
  ThreadPool pool(3);
  const ModelConfig& config = description_.config;
  for (const int size : working_tp_sizes(config, 3)) {
    for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const Partition part = partition_for(config, size - 1, size);
      WeightSource plain(file_, description_, part, size - 1, at::kFloat),
          source(file_, description_, part, size - 1, at::kFloat, {}, threads);
      source.pack_products(nullptr);
      const auto expect_equal = [](const Linear& packed, const Linear& of) {
        ASSERT_TRUE(packed.is_packed());
        EXPECT_TRUE(at::equal(packed.plain_weight(), of.weight_NK));
        EXPECT_EQ(packed.bias_N.defined(), of.bias_N.defined());
      };
      const at::Tensor embeddings = plain.load_embeddings();
      expect_equal(source.load_packed_embeddings(), {embeddings, {}});
      if (!config.tie_word_embeddings) expect_equal(source.load_packed_lm_head(), {plain.load_lm_head(embeddings), {}});
      for (std::int64_t i = 0; i < 2; ++i) {
        expect_equal(source.load_qkv_proj(i), plain.load_qkv_proj(i));
        expect_equal(source.load_gate_up_proj(i), plain.load_gate_up_proj(i));
        expect_equal(source.load_o_proj(i), plain.load_o_proj(i));
        expect_equal(source.load_down_proj(i), plain.load_down_proj(i));
      }
      EXPECT_EQ(source.loaded_bytes(), plain.loaded_bytes());
    }
  }
}

// Whoever fills a block may fail: the block is there again.
TEST(StagedUpload, GoesOnAfterAnError) {
  StagedUpload upload(at::kCPU, 1, 64);
  const at::Tensor there = at::zeros({4, 4});
  for (int i = 0; i < 10; ++i) {
    EXPECT_THROW(upload.send(there, [](const at::Tensor&) { throw Error(ExitCode::kInputOutput, "gone"); }), Error);
    upload.send(there, [&](const at::Tensor& block) { block.fill_(i); });
    EXPECT_TRUE(there.eq(i).all().item<bool>());
  }
}

TEST_P(Weights, EveryShardHoldsItsSlices) {
  for (const int size : working_tp_sizes(description_.config, 6)) {
    for (int rank = 0; rank < size; ++rank) {
      SCOPED_TRACE(testing::Message() << "shard " << rank << " of " << size);
      const Partition part = partition_for(description_.config, rank, size);
      WeightSource source(file_, description_, part, rank, at::kFloat);
      expect_ends(source, part);
      for (std::int64_t i = 0; i < 2; ++i) {
        expect_layer(source, part, i);
        expect_partial(source, part, rank, i);
      }
      source.verify_all_used();
      EXPECT_EQ(source.loaded_bytes(), weight_bytes(description_.config, at::kFloat, rank, size));
    }
  }
}

// The layers' quantised products: every shard holds slices of the weights that one shard alone would hold, in exactly
// the predicted bytes.
TEST_P(Weights, QuantisedShardsAreSlicesOfTheWhole) {
  const ModelConfig& config = description_.config;
  const std::int64_t E = config.head_dim;
  for (const QuantScheme scheme :
       {QuantScheme{QuantType::kInt8, 32}, QuantScheme{QuantType::kInt4, 0}, QuantScheme{QuantType::kInt4, 32}}) {
    WeightSource alone(file_, description_, partition_for(config, 0, 1), 0, at::kFloat, scheme);
    const at::Tensor all_o = alone.load_o_proj(1).plain_weight(), all_down = alone.load_down_proj(1).plain_weight();
    const at::Tensor all_gate_up = alone.load_gate_up_proj(1).plain_weight();
    for (const int size : working_tp_sizes(config, 6)) {
      for (int rank = 0; rank < size; ++rank) {
        SCOPED_TRACE(testing::Message() << "shard " << rank << " of " << size);
        const Partition part = partition_for(config, rank, size);
        WeightSource source(file_, description_, part, rank, at::kBFloat16, scheme);
        const std::int64_t f = config.intermediate_size;
        EXPECT_EQ(source.load_lm_head(source.load_embeddings()).scalar_type(), at::kBFloat16);
        source.load_norm();
        for (std::int64_t i = 0; i < 2; ++i) {
          source.load_attention_norms(i);
          source.load_mlp_norms(i);
          source.load_q_norm(i);
          source.load_k_norm(i);
          EXPECT_TRUE(source.load_qkv_proj(i).is_quantized());
          const at::Tensor o = source.load_o_proj(i).plain_weight(), down = source.load_down_proj(i).plain_weight();
          const at::Tensor gate_up = source.load_gate_up_proj(i).plain_weight();
          if (i == 0) continue;
          EXPECT_TRUE(at::equal(o, columns(all_o, part.heads, E)));
          EXPECT_TRUE(at::equal(down, columns(all_down, part.mlp)));
          EXPECT_TRUE(at::equal(gate_up, at::cat({rows(all_gate_up.narrow(0, 0, f), part.mlp),
                                                  rows(all_gate_up.narrow(0, f, f), part.mlp)})));
        }
        source.verify_all_used();
        EXPECT_EQ(source.loaded_bytes(), weight_bytes(config, at::kBFloat16, rank, size, scheme));
      }
    }
  }
}

// As if its matrices were Q4_1 but for down_proj: codes by place, so that slices show.
class CodedTensorFile final : public MemoryTensorFile {
 public:
  std::optional<CodeFormat> code_format(const std::string& name) const override {
    if (name.find("down") != std::string::npos) return std::nullopt;
    return CodeFormat{4, 32, CodeFormat::Scale::kF16, CodeFormat::Offset::kMinimum};
  }
  void read_codes(const std::string&, IndexRange rows, IndexRange columns, const CodeWindow& out) const override {
    for (std::uint64_t row = rows.begin; row < rows.end; ++row) {
      const auto at = static_cast<std::int64_t>(row - rows.begin);
      for (std::uint64_t k = columns.begin; k < columns.end; ++k) {
        const auto g = at * out.groups_stride + static_cast<std::int64_t>(k / 32 - columns.begin / 32);
        out.codes[at * out.codes_stride + static_cast<std::int64_t>(k - columns.begin)] =
            static_cast<std::uint8_t>((7 * row + k) % 16);
        out.scales[g] = static_cast<std::uint16_t>(0x3C00 + row % 512);
        out.offsets[g] = static_cast<std::uint16_t>(0x3C00 + k / 32);
      }
    }
  }
};

TEST_P(Weights, KeptCodesAreSlicesOfTheWholeInTheBytesForetold) {
  const ModelConfig& config = description_.config;
  CodedTensorFile file;
  for (const ExpectedTensor& tensor : expected_tensors(config, description_.names)) file.add(tensor.name, tensor.shape);
  const QuantScheme scheme{QuantType::kInt4, 64};
  EXPECT_EQ(quantized_products(description_, file, scheme).kept, 6);
  EXPECT_EQ(quantized_products(description_, file, scheme).made, 2);
  EXPECT_EQ(quantized_products(description_, file, {QuantType::kInt8, 64}).kept, 6);
  EXPECT_EQ(quantized_products(description_, file, {QuantType::kInt4, 64, true}).kept, 0);
  EXPECT_EQ(quantized_products(description_, file, {}).made, 0);
  ThreadPool pool(2);
  WeightSource alone(file, description_, partition_for(config, 0, 1), 0, at::kFloat, scheme);
  const at::Tensor all_o = alone.load_o_proj(1).plain_weight(), all_gate_up = alone.load_gate_up_proj(1).plain_weight();
  for (const int size : working_tp_sizes(config, 6)) {
    for (int rank = 0; rank < size; ++rank) {
      const Partition part = partition_for(config, rank, size);
      WeightSource source(file, description_, part, rank, at::kHalf, scheme, &pool);
      source.load_lm_head(source.load_embeddings());
      source.load_norm();
      for (std::int64_t i = 0; i < 2; ++i) {
        source.load_attention_norms(i);
        source.load_mlp_norms(i);
        source.load_q_norm(i);
        source.load_k_norm(i);
        const std::int64_t f = config.intermediate_size;
        EXPECT_TRUE(source.load_qkv_proj(i).offsets_PGW.defined());
        EXPECT_FALSE(source.load_down_proj(i).offsets_PGW.defined());
        EXPECT_TRUE(at::equal(source.load_o_proj(i).plain_weight(), columns(all_o, part.heads, config.head_dim)));
        EXPECT_TRUE(at::equal(
            source.load_gate_up_proj(i).plain_weight(),
            at::cat({rows(all_gate_up.narrow(0, 0, f), part.mlp), rows(all_gate_up.narrow(0, f, f), part.mlp)})));
      }
      source.verify_all_used();
      EXPECT_EQ(source.loaded_bytes(), weight_bytes(description_, file, at::kHalf, rank, size, scheme));
    }
  }
}

TEST_P(Weights, BytesAreExactIn16Bits) {
  const ModelConfig& config = description_.config;
  WeightSource source(file_, description_, partition_for(config, 0, 1), 0, at::kBFloat16);
  source.load_lm_head(source.load_embeddings());
  source.load_norm();
  for (std::int64_t i = 0; i < 2; ++i) {
    source.load_attention_norms(i);
    source.load_mlp_norms(i);
    source.load_q_norm(i);
    source.load_k_norm(i);
    EXPECT_EQ(source.load_qkv_proj(i).weight_NK.scalar_type(), at::kBFloat16);
    source.load_o_proj(i);
    source.load_gate_up_proj(i);
    EXPECT_THROW(source.verify_all_used(), Error);  // down_proj of this layer is still unread
    source.load_down_proj(i);
  }
  source.verify_all_used();
  EXPECT_EQ(source.loaded_bytes(), weight_bytes(config, at::kBFloat16, 0, 1));
  EXPECT_EQ(source.loaded_bytes(), model_bytes(config, at::kBFloat16, 1));
}

TEST_P(Weights, ParametersAreThoseOfTheFile) {
  std::uint64_t parameters = 0;
  for (const TensorInfo& info : file_.tensors()) parameters += info.num_bytes / 4;
  EXPECT_EQ(description_.config.num_parameters(), parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, Weights,
                         testing::Values(Case{"tied_grouped", 9, 3, 8, 96, 300, false, true, false, false},
                                         Case{"untied_biases", 4, 2, 6, 37, 130, false, false, true, false},
                                         Case{"qk_norm", 4, 4, 10, 64, 64, false, false, false, true},
                                         Case{"gguf_interleaved", 6, 2, 12, 64, 200, true, true, false, false},
                                         Case{"gguf_interleaved_biases", 4, 1, 20, 65, 129, true, false, true, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace weights_test
}  // namespace magister
