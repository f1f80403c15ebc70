// Before texts are generated, the model is loaded from the weights of the trainer in host memory, where they are copied
// first if the GPU has the current ones. The model is freed after the texts, before gradients need the memory.
#include "tasks/train/grpo_texts.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/splitmix64.h"
#include "magister/io/whole_file.h"
#include "magister/parallel/gathered.h"
#include "magister/run/generator_shard.h"
#include "magister/run/not_finite.h"
#include "magister/runtime/model_host.h"
#include "magister/text/decode_continuation.h"
#include "magister/train/gradient_tree.h"

namespace magister {
namespace {

// "roll" keeps this random stream apart from those of the epochs and of the first weights.
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t step) {
  return splitmix64(splitmix64(seed ^ 0x726f6c6c) + step);
}

}  // namespace

GrpoModel grpo_model(const OpenModel& trained, const TrainConfig& config, std::uint64_t longest_prompt,
                     std::uint64_t reserved_bytes) {
  GrpoModel rollouts{trained, {}, trained.pass_limits().or_else({32, 512})};  // the defaults of `generate`
  OpenModel& model = rollouts.model;
  model.kept.checkpoint.clear();  // no cached weights: they change with each step
  model.quantization = {};
  model.dtype = model.plain_dtype = trained.gpu && config.trainer.bf16 ? at::kBFloat16 : at::kFloat;
  model.reserved_bytes += reserved_bytes;
  rollouts.pass = {rollouts.limits.tokens, config.batches.max_length, 0, rollouts.limits.sequences};
  rollouts.num_pages =
      pages_of_texts(model, 1, rollouts.pass, longest_prompt + config.grpo.max_new_tokens, rollouts.limits.sequences);
  return rollouts;
}

GrpoWriter::GrpoWriter(const ModelRun& run, const Communicator& world, const TrainConfig& config,
                       const TrainingSamples& data, Trainer& trainer, const TextRules& rules)
    : run_(run),
      world_(world),
      config_(config),
      data_(data),
      trainer_(trainer),
      rules_(rules),
      source_(grpo_model(
          run.model, config, *std::max_element(data.lengths().begin(), data.lengths().end()),
          run.model.gpu && !trainer.trains_on_gpu() ? 4 * run.model.description.config.num_parameters() : 0)) {}

std::optional<std::vector<GrpoText>> GrpoWriter::write(std::uint64_t step, const Samples& prompts) {
  const IndexRange own = micro_batches_of(prompts.size() * config_.grpo.num_generations, world_.rank(), world_.size());
  std::vector<GrpoText> texts = write_own(step, prompts, own);
  const bool stopped = texts.size() < own.size() || !reward(step, texts);
  run_.work.live_together("wait for the other ranks' texts", static_cast<std::int64_t>(step));
  if (world_.max(std::uint64_t{stopped ? 1u : 0u}) != 0) return std::nullopt;
  std::vector<GrpoText> all = gathered_texts(texts, prompts);
  std::vector<double> of_all;
  of_all.reserve(all.size());
  for (const GrpoText& text : all) of_all.push_back(text.reward);
  const std::vector<double> advantages = group_advantages(of_all, config_.grpo.num_generations, config_.grpo.scale);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].advantage = advantages[i];
  if (!rules_.log_folder.empty() && world_.rank() == 0) log(step, all);
  return all;
}

// Texts are numbered prompt by prompt; the range [begin, end) may begin and end inside the texts of a prompt. Returns
// fewer texts than asked for if the job was asked to stop.
std::vector<GrpoText> GrpoWriter::write_own(std::uint64_t step, const Samples& prompts, IndexRange texts) {
  if (texts.size() == 0) return {};
  const auto heartbeat = [&] { run_.work.watchdog.enter("write texts", static_cast<std::int64_t>(step)); };
  const std::unique_ptr<TensorFile> weights = trainer_.weights_file();  // passes with gradients read them, too
  const c10::InferenceMode no_gradients;
  heartbeat();
  OpenModel source = source_.model;
  source.file = weights.get();
  const std::vector<TokenId>& ends = rules_.end_tokens;
  SamplingParams sampling = config_.grpo.sampling;
  sampling.rules = rules_.rules;
  const GeneratorLimits limits{.max_sequences = static_cast<std::int64_t>(source_.limits.sequences),
                               .token_budget = static_cast<std::int64_t>(source_.limits.tokens),
                               .num_pages = source_.num_pages};
  const auto ended = [&](std::uint64_t, std::uint64_t, const std::vector<TokenId>& tokens) {
    return std::find(ends.begin(), ends.end(), tokens.back()) != ends.end();
  };
  ModelHost host(source, run_.group.threads_per_shard(), heartbeat,
                 {limits, sampling, seed_of(config_.batches.seed, step), ended}, !std::exchange(tested_, true));
  Generator& generator = host.generator();
  generator.on_not_finite([&](std::uint64_t record, std::uint64_t, const std::vector<TokenId>& tokens) {
    refuse_not_finite(host.model(), describe_record(run_.file, record), tokens.size() - 1, tokens);
  });
  const std::uint64_t n = config_.grpo.num_generations;
  std::map<std::uint64_t, std::uint64_t> first;  // by prompt: number of its first text
  for (std::uint64_t text = texts.begin; text < texts.end;) {
    const std::uint64_t prompt = prompts[text / n], end = std::min(texts.end, (text / n + 1) * n);
    first[prompt] = text / n * n;
    generator.add({prompt, text % n, data_.tokens(prompt), static_cast<std::int64_t>(config_.grpo.max_new_tokens)},
                  end - text);
    text = end;
  }
  std::vector<GrpoText> written(texts.size());
  while (!generator.idle()) {
    if (run_.stop_wanted()) return {};
    heartbeat();
    run_.work.tickets.beat();
    fail_point("train.rollout.pass");
    generator.step();
    for (Generation& text : generator.take_finished()) {
      written[first.at(text.record) + text.sample - texts.begin] = {text.record, text.sample, std::move(text.tokens),
                                                                    text.finish_reason == FinishReason::kLength};
    }
  }
  return written;
}

std::string GrpoWriter::text_of(const GrpoText& text) const {
  return decode_continuation(*rules_.tokenizer, data_.tokens(text.prompt), text.tokens, true);
}

// Sets the rewards of the texts. False: the job was asked to stop.
bool GrpoWriter::reward(std::uint64_t step, std::vector<GrpoText>& texts) {
  const auto heartbeat = [&] {
    run_.work.watchdog.enter("reward texts", static_cast<std::int64_t>(step));
    run_.work.tickets.beat();
  };
  for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
    while (end < texts.size() && texts[end].prompt == texts[begin].prompt) ++end;
    if (run_.stop_wanted()) return false;
    heartbeat();
    texts[begin].where = describe_record(run_.file, texts[begin].prompt);
    for (std::size_t i = begin; i < end; ++i) texts[i].text = text_of(texts[i]);
    const TextRewards rewards =
        rules_.rewards(std::span(texts).subspan(begin, end - begin), run_.group.threads_per_shard(), heartbeat);
    for (std::size_t i = begin; i < end; ++i) texts[i].reward = rewards.values[i - begin];
    for (std::size_t i = 0; i < rewards.unread.size(); ++i) texts[begin + i].unread = rewards.unread[i];
  }
  return true;
}

std::vector<GrpoText> GrpoWriter::gathered_texts(const std::vector<GrpoText>& own, const Samples& prompts) const {
  struct Head {
    double reward;
    std::uint64_t length, truncated;
    std::int64_t unread;  // -1: not reported
  };
  std::vector<Head> heads;
  std::vector<TokenId> tokens;
  for (const GrpoText& text : own) {
    heads.push_back({text.reward, text.tokens.size(), text.truncated ? 1u : 0u,
                     text.unread ? static_cast<std::int64_t>(*text.unread) : -1});
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
  }
  const std::vector<Head> all_heads = gathered(world_, heads);
  const std::vector<TokenId> all_tokens = gathered(world_, tokens);
  std::vector<GrpoText> all;
  auto at = all_tokens.begin();
  for (std::size_t i = 0; i < all_heads.size(); ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(all_heads[i].length);
    const std::uint64_t n = config_.grpo.num_generations;
    all.push_back({prompts[i / n], i % n, {at, end}, all_heads[i].truncated != 0, all_heads[i].reward});
    if (all_heads[i].unread >= 0) all.back().unread = static_cast<Unread>(all_heads[i].unread);
    at = end;
  }
  return all;
}

void GrpoWriter::log(std::uint64_t step, const std::vector<GrpoText>& texts) const {
  std::string lines;
  for (const GrpoText& text : texts) {
    nlohmann::ordered_json line = {{"step", step + 1},      {"key", data_.key(text.prompt)},
                                   {"sample", text.sample}, {"text", text_of(text)},
                                   {"tokens", text.tokens}, {"finish_reason", text.truncated ? "length" : "stop"},
                                   {"reward", text.reward}, {"advantage", text.advantage}};
    if (text.unread.value_or(Unread::kNone) != Unread::kNone)
      line["unread"] = kUnreadNames.at(static_cast<std::size_t>(*text.unread));
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  make_folders(rules_.log_folder);
  write_whole_file(fmt::format("{}/step-{:08}.jsonl", rules_.log_folder, step + 1), lines);
}

}  // namespace magister
