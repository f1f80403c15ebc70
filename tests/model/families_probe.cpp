// Runs a model on sequences of token ids by every forward pass, sharded over threads, and writes the logits: the fast and the
// plain one of CPUs, and that of GPUs with its kernels run on the host, whole and in two halves through a cache.
// usage: families_probe MODEL TOKENS.json OUT_DIR SHARDS ...  -> OUT_DIR/{fast,plain,gpu,gpu_cached}.SHARDS.f32: [T, V]
// Oracle: families_test.py compares them with transformers. One load a number of shards; sequences are packed.
#include <ATen/ATen.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "magister/core/error.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

struct Logits {
  at::Tensor fast_TV, plain_TV, gpu_TV, gpu_cached_TV;
};

// The sequences' first halves, then the rest, through one cache: hidden states in the order of the whole batch.
at::Tensor forward_in_halves(Transformer& model, const PackedBatch& batch) {
  const std::int64_t S = batch.num_sequences(), T = batch.num_tokens();
  std::vector<std::vector<TokenId>> parts[2];
  std::vector<std::vector<std::int32_t>> pages(static_cast<std::size_t>(S));
  std::vector<BlockTable> slots[2];
  std::vector<std::int64_t> past[2], rows[2];
  std::int32_t num_pages = 0;
  for (std::int64_t s = 0; s < S; ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin, half = length / 2;
    auto& own = pages[static_cast<std::size_t>(s)];
    for (std::int64_t j = 0; j < length; j += KvPages::kSlots)
      own.insert(own.begin(), num_pages++);  // not in ascending order
    const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>() + begin;
    for (const int part : {0, 1}) {
      const std::int64_t from = part == 0 ? 0 : half, to = part == 0 ? half : length;
      if (from == to) continue;
      parts[part].emplace_back(ids + from, ids + to);
      past[part].push_back(from);
      slots[part].push_back({own.data(), 0});
      for (std::int64_t row = begin + from; row < begin + to; ++row) rows[part].push_back(row);
    }
  }
  KvCache cache = model.make_cache(num_pages);
  at::Tensor hidden_TD = at::empty({T, model.config().hidden_size});
  for (const int part : {0, 1}) {
    const at::Tensor out = model.forward(pack_sequences(parts[part], past[part]), slots[part], cache);
    hidden_TD.index_copy_(0, at::tensor(rows[part], at::kLong), out);
  }
  return hidden_TD;
}

void run_gpu_shard(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch,
                   ProcessGroup& group, ThreadPool& pool, Logits& out) {
  Transformer model(description, file, group, pool, at::kFloat, {}, gpu::Queue{});
  model.self_test();
  const auto begin = static_cast<std::int64_t>(model.lm_head().vocab.begin),
             size = static_cast<std::int64_t>(model.lm_head().vocab.size());
  out.gpu_TV.narrow(1, begin, size).copy_(model.logits(model.forward(batch)));
  // Dynamic rotary scaling turns all keys with the length: such sequences have no cache.
  const bool cacheable = description.config.rope.kind != RopeConfig::Kind::kDynamic;
  out.gpu_cached_TV.narrow(1, begin, size)
      .copy_(model.logits(cacheable ? forward_in_halves(model, batch) : model.forward(batch)));
}

// One shard's columns of the logits.
void run_shard(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch,
               std::unique_ptr<ProcessGroup> group, Logits& out) {
  ThreadPool pool(1);
  Transformer model(description, file, *group, pool, at::kFloat);
  model.self_test();
  const LmHead& head = model.lm_head();
  const auto begin = static_cast<std::int64_t>(head.vocab.begin), size = static_cast<std::int64_t>(head.vocab.size());
  const at::Tensor fast_TD = model.forward(batch), plain_TD = model.forward_reference(batch);
  out.fast_TV.narrow(1, begin, size).copy_(at::mm(fast_TD, head.projection.plain_weight().t()));
  out.plain_TV.narrow(1, begin, size).copy_(at::mm(plain_TD, head.projection.plain_weight().t()));
  run_gpu_shard(description, file, batch, *group, pool, out);
}

Logits run_sharded(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch, int shards) {
  const std::vector<std::int64_t> shape = {batch.num_tokens(), description.config.vocab_size};
  const float nothing = std::numeric_limits<float>::quiet_NaN();  // columns that no shard writes must show
  Logits logits{at::full(shape, nothing), at::full(shape, nothing), at::full(shape, nothing), at::full(shape, nothing)};
  auto groups = make_thread_process_groups(shards);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(shards));
  for (int shard = 0; shard < shards; ++shard) {
    const auto index = static_cast<std::size_t>(shard);
    threads.emplace_back([&, index] {
      try {
        run_shard(description, file, batch, std::move(groups[index]), logits);
      } catch (...) {
        errors[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return logits;
}

void write_f32(const std::filesystem::path& path, const at::Tensor& tensor) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
}

void run(const std::vector<std::string>& arguments) {
  std::ifstream tokens(arguments.at(1));
  const auto sequences = nlohmann::json::parse(tokens).get<std::vector<std::vector<TokenId>>>();
  const PackedBatch batch = pack_sequences(sequences);
  const auto file = TensorFile::open(arguments.at(0));
  const ModelDescription description = describe_model(arguments.at(0), *file);
  const std::filesystem::path out(arguments.at(2));
  for (std::size_t i = 3; i < arguments.size(); ++i) {
    const Logits logits = run_sharded(description, *file, batch, std::stoi(arguments[i]));
    write_f32(out / fmt::format("fast.{}.f32", arguments[i]), logits.fast_TV);
    write_f32(out / fmt::format("plain.{}.f32", arguments[i]), logits.plain_TV);
    write_f32(out / fmt::format("gpu.{}.f32", arguments[i]), logits.gpu_TV);
    write_f32(out / fmt::format("gpu_cached.{}.f32", arguments[i]), logits.gpu_cached_TV);
  }
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  try {
    magister::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
