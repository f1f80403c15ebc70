// Runs a model on sequences of token ids by every forward pass, sharded over threads, and writes the logits: the fast
// pass of CPUs, at once and with the last tokens one by one through a cache, and their plain pass; that of GPUs with
// its kernels run on the host, at once and in two halves through a cache; in bf16 at once and with the last tokens one
// by one, by the decode kernels.
// usage: families_probe MODEL TOKENS.json OUT_DIR SHARDS ...      SHARDS followed by c: only the passes of CPUs; by k:
// only bf16 through caches in two halves, with plain pages and with pages of 8-bit floats, also token by token
// -> OUT_DIR/{fast,cached,plain,gpu,gpu_cached}.SHARDS.f32 and, for one shard, OUT_DIR/{bf16,bf16_decoded}.1.f32, or
// OUT_DIR/{pages,codes,codes_decoded}.SHARDS.f32: all [T, V]
// Oracle: families_test.py compares them with transformers. The model is loaded once per number of shards; sequences
// are packed.
#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "../support/serve_cases.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

struct Logits {
  std::map<std::string, at::Tensor> by_kind;  // [T, V] each
};
const char* const kKinds[] = {"fast", "cached",       "plain", "gpu",   "gpu_cached",
                              "bf16", "bf16_decoded", "pages", "codes", "codes_decoded"};
// Which passes of a model are run.
enum class Passes : std::uint8_t { kAll, kCpu, kCodes };

// Tokens that the last of a sequence are written one by one.
constexpr std::int64_t kWritten = 5;

// Runs the sequences in parts through one cache; returns hidden states in the order of the whole batch. end(length,
// part): the end of a part. reads_last: only each sequence's last row is read, and the others are zero.
at::Tensor forward_in_parts(Transformer& model, const PackedBatch& batch, int num_parts, bool decodes,
                            const std::function<std::int64_t(std::int64_t, int)>& end, bool reads_last = false) {
  const std::int64_t S = batch.num_sequences(), T = batch.num_tokens();
  std::vector<std::vector<std::int32_t>> pages(static_cast<std::size_t>(S));
  std::int32_t num_pages = 0;
  for (std::int64_t s = 0; s < S; ++s) {
    for (std::int64_t j = batch.cu_seqlens[s]; j < batch.cu_seqlens[s + 1]; j += KvPages::kSlots)
      pages[static_cast<std::size_t>(s)].insert(pages[static_cast<std::size_t>(s)].begin(), num_pages++);  // descending
  }
  KvCache cache = model.make_cache(num_pages, S);
  at::Tensor hidden_TD = at::zeros({T, model.config().hidden_size});
  for (int part = 0; part < num_parts; ++part) {
    std::vector<std::vector<TokenId>> tokens;
    std::vector<BlockTable> slots;
    std::vector<std::int64_t> past, rows, last_rows, last_of_part;
    for (std::int64_t s = 0; s < S; ++s) {
      const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
      const std::int64_t from = part == 0 ? 0 : end(length, part - 1), to = end(length, part);
      if (from == to) continue;
      const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>() + begin;
      tokens.emplace_back(ids + from, ids + to);
      past.push_back(from);
      slots.push_back({pages[static_cast<std::size_t>(s)].data(), 0, S - 1 - s});
      for (std::int64_t row = begin + from; row < begin + to; ++row) rows.push_back(row);
      if (to < length) continue;
      last_rows.push_back(rows.back());
      last_of_part.push_back(static_cast<std::int64_t>(rows.size()) - 1);
    }
    if (tokens.empty()) continue;
    PackedBatch packed = pack_sequences(tokens, past);
    if (decodes && part > 0) packed.is_decode_S.assign(tokens.size(), 1);
    if (reads_last) {
      packed.read_rows = last_of_part;
      rows = last_rows;
    }
    hidden_TD.index_copy_(0, at::tensor(rows, at::kLong), model.forward(packed, slots, cache).to(at::kFloat));
  }
  return hidden_TD;
}

std::int64_t first_half(std::int64_t length, int part) { return part == 0 ? length / 2 : length; }

// Throws if rows that a pass computes alone in its last layer have other bits than in a whole pass: the last of each
// sequence and some others, and the last ones in two halves through a cache.
void check_read_rows(Transformer& model, const PackedBatch& batch, const at::Tensor& hidden_TD, bool cacheable) {
  std::vector<std::int64_t> last, some;
  for (std::int64_t row = 0; row < batch.num_tokens(); ++row) {
    const bool ends = std::find(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), row + 1) != batch.cu_seqlens.end();
    if (ends) last.push_back(row);
    if (ends || row % 11 == 2) some.push_back(row);
  }
  const auto expect_equal = [](const at::Tensor& got, const at::Tensor& whole, const std::vector<std::int64_t>& rows) {
    if (!at::equal(got, whole.index_select(0, at::tensor(rows, at::kLong))))
      throw std::runtime_error("rows that are computed alone in the last layer have other bits");
  };
  PackedBatch reading = batch;
  reading.read_rows = some;
  expect_equal(model.forward(reading), hidden_TD, some);
  if (!cacheable) return;
  const at::Tensor whole_TD = forward_in_parts(model, batch, 2, false, first_half),
                   last_TD = forward_in_parts(model, batch, 2, false, first_half, true);
  expect_equal(last_TD.index_select(0, at::tensor(last, at::kLong)), whole_TD, last);
}

void run_codes_shard(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch,
                     ProcessGroup& group, ThreadPool& pool, Logits& out) {
  for (const bool codes : {false, true}) {
    Transformer model(description, file, group, pool, at::kBFloat16, {}, gpu::Queue{});
    if (codes) model.use_fp8_cache();
    const auto put = [&](const char* kind, const at::Tensor& hidden_TD) {
      const IndexRange vocab = model.lm_head().vocab;
      out.by_kind.at(kind)
          .narrow(1, static_cast<std::int64_t>(vocab.begin), static_cast<std::int64_t>(vocab.size()))
          .copy_(model.logits(hidden_TD.to(at::kBFloat16)));
    };
    put(codes ? "codes" : "pages", forward_in_parts(model, batch, 2, false, first_half));
    if (!codes) continue;
    const auto one_by_one = [](std::int64_t length, int part) {
      return std::min(length, std::max<std::int64_t>(1, length - kWritten) + part);
    };
    put("codes_decoded", forward_in_parts(model, batch, static_cast<int>(kWritten) + 1, true, one_by_one));
  }
}

void run_gpu_shard(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch,
                   ProcessGroup& group, ThreadPool& pool, Logits& out) {
  const std::int64_t written = description.config.head_dim % 2 == 0 ? kWritten : 0;
  Transformer model(description, file, group, pool, at::kFloat, {}, gpu::Queue{});
  model.self_test();
  const auto begin = static_cast<std::int64_t>(model.lm_head().vocab.begin),
             size = static_cast<std::int64_t>(model.lm_head().vocab.size());
  const auto put = [&](const char* kind, Transformer& of, const at::Tensor& hidden_TD) {
    out.by_kind.at(kind).narrow(1, begin, size).copy_(of.logits(hidden_TD));
  };
  const at::Tensor whole_TD = model.forward(batch);
  put("gpu", model, whole_TD);
  // Rotary scaling that turns all keys with the length: such sequences have no cache.
  const bool cacheable = !rope_needs_own_table(description.config, batch.num_tokens());
  check_read_rows(model, batch, whole_TD, cacheable);
  put("gpu_cached", model, cacheable ? forward_in_parts(model, batch, 2, false, first_half) : model.forward(batch));

  if (group.tp_size() > 1) return;  // sums over shards in bf16: gpu_code_test.py
  Transformer narrow(description, file, group, pool, at::kBFloat16, {}, gpu::Queue{});
  narrow.self_test();
  const auto one_by_one = [written](std::int64_t length, int part) {
    return std::min(length, std::max<std::int64_t>(1, length - written) + part);
  };
  const at::Tensor narrow_TD = narrow.forward(batch);
  put("bf16", narrow, narrow_TD);
  check_read_rows(narrow, batch, narrow_TD, false);
  const at::Tensor decoded_TD = cacheable
                                    ? forward_in_parts(narrow, batch, static_cast<int>(written) + 1, true, one_by_one)
                                    : narrow.forward(batch);
  put("bf16_decoded", narrow, decoded_TD.to(at::kBFloat16));
}

// One shard's columns of the logits.
void run_shard(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch,
               std::unique_ptr<ProcessGroup> group, Passes passes, Logits& out) {
  ThreadPool pool(1);
  if (passes == Passes::kCodes) return run_codes_shard(description, file, batch, *group, pool, out);
  Transformer model(description, file, *group, pool, at::kFloat);
  model.self_test();
  const LmHead& head = model.lm_head();
  const auto begin = static_cast<std::int64_t>(head.vocab.begin), size = static_cast<std::int64_t>(head.vocab.size());
  const at::Tensor fast_TD = model.forward(batch), plain_TD = model.forward_reference(batch);
  // The last tokens of a sequence one by one, by the keys and values of the cache.
  const bool cacheable = !rope_needs_own_table(description.config, batch.num_tokens());
  const auto one_by_one = [](std::int64_t length, int part) {
    return std::min(length, std::max<std::int64_t>(1, length - kWritten) + part);
  };
  const at::Tensor cached_TD =
      cacheable ? forward_in_parts(model, batch, static_cast<int>(kWritten) + 1, false, one_by_one) : fast_TD;
  check_read_rows(model, batch, fast_TD, cacheable);
  // The head's own way, and the plain one.
  out.by_kind.at("fast").narrow(1, begin, size).copy_(model.logits(fast_TD));
  out.by_kind.at("cached").narrow(1, begin, size).copy_(model.logits(cached_TD));
  at::Tensor plain_Tv = at::mm(plain_TD, head.projection.plain_weight().t());
  if (head.projection.bias_N.defined()) plain_Tv = plain_Tv + head.projection.bias_N;
  if (head.softcap > 0) plain_Tv = at::tanh(plain_Tv / head.softcap) * head.softcap;
  out.by_kind.at("plain").narrow(1, begin, size).copy_(plain_Tv);
  if (passes == Passes::kAll) run_gpu_shard(description, file, batch, *group, pool, out);
}

Logits run_sharded(const ModelDescription& description, const TensorFile& file, const PackedBatch& batch, int shards,
                   Passes passes) {
  const std::vector<std::int64_t> shape = {batch.num_tokens(), description.config.vocab_size};
  const float nothing = std::numeric_limits<float>::quiet_NaN();  // columns that no shard writes must show
  Logits logits;
  for (const char* kind : kKinds) logits.by_kind[kind] = at::full(shape, nothing);
  auto groups = make_thread_process_groups(shards);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(shards));
  for (int shard = 0; shard < shards; ++shard) {
    const auto index = static_cast<std::size_t>(shard);
    threads.emplace_back([&, index] {
      try {
        run_shard(description, file, batch, std::move(groups[index]), passes, logits);
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
    const int shards = std::stoi(arguments[i]);
    const Passes passes = arguments[i].ends_with('c')   ? Passes::kCpu
                          : arguments[i].ends_with('k') ? Passes::kCodes
                                                        : Passes::kAll;
    const Logits logits = run_sharded(description, *file, batch, shards, passes);
    for (const auto& [kind, logits_TV] : logits.by_kind) {
      const bool of_codes = kind == "pages" || kind.starts_with("codes");
      const bool there = passes == Passes::kCodes
                             ? of_codes
                             : !of_codes && (kind == "fast" || kind == "cached" || kind == "plain" ||
                                             (passes == Passes::kAll && (shards == 1 || !kind.starts_with("bf16"))));
      if (there) write_f32(out / fmt::format("{}.{}.f32", kind, shards), logits_TV);
    }
  }
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  return magister::test::serve_cases(argc, argv, [](int count, char** texts) {
    try {
      magister::run({texts + 1, texts + count});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  });
}
