// Reads a model from a folder as transformers writes it, or from one GGUF file; see checkpoint.h.
#include "magister/runtime/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/io/results/reader.h"
#include "magister/io/whole_file.h"
#include "magister/model/parameter_table.h"
#include "magister/model/random_weights.h"
#include "magister/model/rope.h"
#include "magister/runtime/end_tokens.h"
#include "magister/runtime/length_key.h"
#include "magister/runtime/model_hash.h"
#include "magister/runtime/rope_length.h"
#include "magister/runtime/tokenizer_files.h"
#include "runtime/chat_source.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t kMaxTemplateBytes = 16 << 20;

// Reads the file; no value if there is no regular file.
std::optional<std::string> read_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return read_whole_file(path, kMaxTemplateBytes, "it decides what the model is given");
}

// A folder with an adapter and no model means the adapter's base model with the adapter merged, as in transformers.
ModelSection with_its_base(ModelSection section) {
  if (section.none || section.random) return section;
  std::error_code error;
  const fs::path folder = section.path;
  if (fs::exists(folder / "config.json", error) || !fs::exists(folder / "adapter_config.json", error)) return section;
  MAGISTER_CHECK(section.adapter.empty(), ExitCode::kConfig,
                 "model.path: {} holds an adapter, and model.adapter names {} (two adapters are not merged at once); "
                 "name the model's folder as model.path",
                 printable(section.path), printable(section.adapter));
  const LoraConfig config = read_lora_config(section.path);
  MAGISTER_CHECK(!config.base_model.empty(), ExitCode::kData,
                 "{}: base_model_name_or_path names no model (the adapter alone is none); name the model's folder as "
                 "model.path and this one as model.adapter",
                 printable(config.path));
  section.adapter = std::exchange(section.path, find_model(config.base_model));
  section.hub_name = section.path == config.base_model ? "" : config.base_model;
  section.path_is_base = true;
  return section;
}

// PEFT merges an adapter into any model, so a mismatch of the names is only a warning.
void warn_of_another_base(const ModelSection& section) {
  const LoraConfig config = read_lora_config(section.adapter);
  // the hashes are compared instead
  if (config.base_model.empty() || !lora_base_sha256(section.adapter).empty()) return;
  if (may_be_base(config.base_model, section.path)) return;
  log_warning(
      "{}: was made for \"{}\", by its base_model_name_or_path, and is merged into {} (it is right for the "
      "model that it was trained on alone)",
      printable(section.adapter), printable(config.base_model), printable(section.path));
}

// The versions of the files with fixed names; other files in the folders may change. The weights' files are added when
// they are known.
FileVersions versions_of(const ModelSection& section) {
  FileVersions versions;
  if (section.none) return versions;
  const auto add = [&](const std::string& folder, std::initializer_list<const char*> names) {
    for (const char* name : names) versions.add((fs::path(folder) / name).string());
  };
  if (!fs::is_directory(section.path)) versions.add(section.path);
  add(section.path, {"config.json", "model.safetensors", "model.safetensors.index.json"});
  if (!section.adapter.empty())
    add(section.adapter, {"adapter_config.json", "adapter_model.safetensors", "generation_config.json"});
  const bool is_another = section.random && !section.random->tokenizer.empty();
  const std::string& tokenizer = is_another ? section.random->tokenizer : section.path;
  if (!fs::is_directory(tokenizer)) versions.add(tokenizer);
  for (const std::string& path : files_next_to_weights(tokenizer, section.path)) versions.add(path);
  return versions;
}

std::unique_ptr<TensorFile> open_tensors(const ModelSection& section) {
  if (section.none) return nullptr;
  if (section.random) {
    const std::string& tokenizer = section.random->tokenizer;
    MAGISTER_CHECK(
        tokenizer.empty() || fs::is_directory(tokenizer) || tokenizer.ends_with(".gguf"), ExitCode::kConfig,
        "model.tokenizer: {} is neither a folder nor a .gguf file (a model's tokenizer is taken over with all "
        "that belongs to it); name the model that it is of",
        printable(tokenizer));
    return random_weights(describe_config((fs::path(section.path) / "config.json").string()), section.random->seed);
  }
  std::unique_ptr<TensorFile> file = TensorFile::open(section.path);
  if (section.adapter.empty()) return file;
  MAGISTER_CHECK(file->metadata().empty(), ExitCode::kConfig,
                 "model.adapter: {} is a GGUF file (its tensors have other names, and some other orders of rows, than "
                 "the adapter's); name the folder in Hugging Face's layout that the adapter was trained on",
                 printable(section.path));
  MAGISTER_CHECK(section.quantization == "none" || !file->dequantizes(), ExitCode::kConfig,
                 "model.adapter: {} holds codes, and model.quantization is {} (merged weights need codes of their own, "
                 "rounded a second time); set quantization to none, or name the model in 16 bits",
                 printable(section.path), section.quantization);
  std::set<std::string> inputs_first = tensors_with_inputs_first(describe_model(section.path, *file));
  std::unique_ptr<TensorFile> merged = open_merged(std::move(file), section.adapter, std::move(inputs_first));
  warn_of_another_base(section);
  return merged;
}

// model.rope_length, if it is given.
void fix_rope_by_key(const ModelSection& section, ModelConfig& config) {
  if (section.none || section.rope_length == 0) return;
  MAGISTER_CHECK(rope_has_length(config), ExitCode::kConfig,
                 "{}: rope_length is {}, and the rotary frequencies of {} do not depend on a text's length (the key "
                 "would change nothing); remove it",
                 section.place, section.rope_length, printable(section.path));
  const std::uint64_t positions = positions_of(config).whole;
  MAGISTER_CHECK(positions == 0 || section.rope_length <= positions, ExitCode::kConfig,
                 "{}: rope_length is {}, and {} was made for {} positions (it has no frequencies for longer texts); "
                 "lower it",
                 section.place, section.rope_length, printable(section.path), positions);
  fix_rope_length(config, section.rope_length);
}

}  // namespace

Checkpoint::Checkpoint(const ModelSection& section)
    : section_(with_its_base(section)),
      versions_(versions_of(section_)),
      file_(open_tensors(section_)),
      description_(section_.none ? ModelDescription{}
                   : section_.head_labels > 0
                       ? with_reward_head(describe_model(section_.path, *file_), section_.head_labels)
                       : describe_model(section_.path, *file_)) {
  fix_rope_by_key(section_, description_.config);
  if (file_ == nullptr || section_.random) return;
  for (const std::string& path : file_->paths()) versions_.add(path);
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::fix_rope(std::uint64_t longest_cached) {
  if (section_.none || section_.rope_length > 0) return;
  const std::uint64_t positions = positions_of(config()).cached;
  if (positions > 0 && longest_cached > positions) return;  // too long: check_positions() refuses such lengths
  if (longest_cached > static_cast<std::uint64_t>(positions_of_first_rope(config())))
    fix_rope_length(description_.config, longest_cached);
}

void Checkpoint::begin_hashing(const Communicator& world) {
  if (file_ == nullptr || section_.random) return;
  hashing_ = std::make_unique<FilesHashing>(world, model_files(path(), *file_));
}

bool Checkpoint::cuts_begins() const {
  const auto text = read_text(fs::path(tokenizer_path()) / "tokenizer_config.json");
  const nlohmann::ordered_json config =
      text ? nlohmann::ordered_json::parse(*text, nullptr, false) : nlohmann::ordered_json();
  return config.is_object() && config.value("truncation_side", nlohmann::ordered_json()) == "left";
}

const std::string& Checkpoint::tokenizer_path() const {
  return section_.random && !section_.random->tokenizer.empty() ? section_.random->tokenizer : section_.path;
}

const Tokenizer& Checkpoint::tokenizer() {
  if (tokenizer_) return *tokenizer_;
  const bool is_another = tokenizer_path() != path();
  auto tokenizer =
      std::make_unique<const Tokenizer>(is_another ? load_tokenizer(tokenizer_path()) : load_tokenizer(path(), *file_));
  MAGISTER_CHECK(!is_another || tokenizer->vocab_size() <= config().table_rows(), ExitCode::kConfig,
                 "model.tokenizer: {} has {} tokens, and {}/config.json a vocabulary of {} (some would have no row); "
                 "raise vocab_size",
                 printable(tokenizer_path()), tokenizer->vocab_size(), printable(path()), config().table_rows());
  // As in transformers: many models are published with a padding token that no text contains. Records with such ids are
  // refused.
  if (tokenizer->vocab_size() > std::max(tokenizer->own_size(), config().table_rows()))
    log_warning(
        "{}: the files next to the vocabulary name \"{}\", which is token {} of a model with {} rows; records with it "
        "are refused",
        printable(tokenizer_path()),
        printable(tokenizer->token_bytes(static_cast<TokenId>(tokenizer->vocab_size() - 1))),
        tokenizer->vocab_size() - 1, config().table_rows());
  tokenizer_ = std::move(tokenizer);
  return *tokenizer_;
}

const ChatSource* Checkpoint::chat_source() {
  if (!chat_) {
    const std::string& from = tokenizer_path();
    const TensorFile* const file = from == path() ? file_.get() : nullptr;
    ChatSource source = find_chat_source(from, file, tokenizer(), section_.chat_template);
    chat_.emplace();
    if (!source.name.empty()) *chat_ = std::move(source);
  }
  return chat_->has_value() ? &**chat_ : nullptr;
}

const std::vector<TokenId>& Checkpoint::end_tokens() {
  if (!end_tokens_) end_tokens_ = read_end_tokens(path(), section_.adapter, config(), file_.get());
  return *end_tokens_;
}

std::shared_ptr<const ModelRules> Checkpoint::rules(bool ends_count) {
  std::optional<std::shared_ptr<const ModelRules>>& known = rules_.at(ends_count ? 1 : 0);
  if (known) return *known;
  const bool is_first = !generation_;
  if (is_first) generation_ = read_generation_config(path(), config().vocab_size, config().table_rows());
  if (is_first && !generation_->not_computed.empty())
    log_warning(
        "{}: {} (transformers would write other texts with it, and here nothing reads it; of stop_strings the task's "
        "key `stop` does the "
        "same)",
        printable((fs::path(path()) / "generation_config.json").string(), 4096),
        fmt::join(generation_->not_computed, ", "));
  ModelRules rules = generation_->rules;
  const std::vector<TokenId> ends = ends_count && !rules.empty() ? end_tokens() : std::vector<TokenId>();
  std::erase_if(rules.bad_words,
                [&](const std::vector<TokenId>& word) {  // as in transformers: a text must be able to end
                  return word.size() == 1 && std::find(ends.begin(), ends.end(), word.front()) != ends.end();
                });
  if (rules.min_length > 0 || rules.min_new_tokens > 0) rules.end_tokens = ends;
  known = rules.empty() ? nullptr : std::make_shared<const ModelRules>(std::move(rules));
  return *known;
}

std::string Checkpoint::rules_sha256() const {
  std::string text;
  for (const auto& known : rules_) {
    const std::string one = known && *known ? (*known)->canonical_text() : "";
    if (one != text) text += one;
  }
  return text.empty() ? "" : sha256_hex(text);
}

namespace {

// The attribute `key` of the training's complete results file next to the folder; empty: there is no such file, or it
// is of an earlier version.
std::string sha256_when_trained(const std::string& folder, const char* key) {
  const fs::path path(folder);
  const std::string results = (path.has_filename() ? path : path.parent_path()).string() + ".h5";
  if (!fs::is_regular_file(results)) return "";
  const ResultsReader file(results);
  return file.attribute(key) == nullptr ? "" : file.text(key);
}

// Collective over world.
void check_trained(const Communicator& world, const std::string& folder, const char* key, const std::string& sha256) {
  std::string trained = world.rank() == 0 ? sha256_when_trained(folder, key) : "";
  world.broadcast(trained, 0);
  MAGISTER_CHECK(
      trained.empty() || trained == sha256, ExitCode::kData,
      "{}: has sha256 {}, and had {} when its training ended ({} of {}.h5: its files are damaged or were changed); put "
      "the folder back, or train again with --fresh; a model that was changed on purpose is named by `path`, as a "
      "copy elsewhere",
      printable(folder, 4096), sha256, trained, key, printable(fs::path(folder).filename().string()));
}

// sha256: hash of weights and config. Collective over world.
void check_trained_folder(const Communicator& world, const std::string& folder, const std::string& sha256,
                          const StopPoll& poll) {
  const std::string small_sha256 =
      small_files_sha256(world, [&] { return files_next_to_weights(folder, folder); }, poll);
  if (world.max(std::uint64_t{poll && poll()}) > 0) return;  // hashing ended early
  check_trained(world, folder, kModelFolderKey, sha256);
  check_trained(world, folder, kModelFolderFilesKey, small_sha256);
}

}  // namespace

// An adapter that this program trained stores the hash of its base model.
std::string Checkpoint::sha256_of_tensors(const Communicator& world, const StopPoll& poll) const {
  const std::vector<std::string> adapter =
      section_.adapter.empty() ? std::vector<std::string>() : lora_paths(section_.adapter);
  const ModelHash found = model_sha256(world, path(), *file_, adapter, poll, hashing_.get());
  const std::string trained_on = adapter.empty() ? "" : lora_base_sha256(section_.adapter);
  MAGISTER_CHECK(
      found.base.empty() || trained_on.empty() || found.base == trained_on, ExitCode::kData,
      "{}: was trained on a model with sha256 {}, and {} has {} (its changes fit only the weights that it was "
      "trained on); name the model that it was trained on",
      printable(section_.adapter), trained_on, printable(path()), found.base);
  if (!section_.task.empty() && !section_.path_is_base)
    check_trained_folder(world, path(), adapter.empty() ? found.whole : found.base, poll);
  return found.whole;
}

Attributes Checkpoint::tokenizer_rules() const {
  if (tokenizer_ == nullptr) return {};
  return {{kTokenizerRulesAttribute, tokenizer_->rules_sha256()}};
}

Attributes Checkpoint::identity(const Communicator& world, const StopPoll& poll) const {
  const std::string ends = end_tokens_ ? fmt::format("{}", fmt::join(*end_tokens_, " ")) : "none";
  const std::string model =
      section_.none     ? std::string("none")
      : section_.random ? sha256_hex(fmt::format(
                              "{} random {}", files_sha256(world, {(fs::path(path()) / "config.json").string()}, poll),
                              section_.random->seed))
                        : sha256_of_tensors(world, poll);
  Attributes all = {{"model_sha256", model},
                    {"tokenizer_sha256", tokenizer_ ? tokenizer_->sha256() : std::string("none")},
                    {"chat_template_sha256", chat_ && *chat_ ? (*chat_)->sha256() : std::string("none")},
                    {"end_tokens", ends.empty() ? std::string("none") : ends}};
  if (std::string rules = rules_sha256(); !rules.empty()) all.emplace_back("generation_rules_sha256", std::move(rules));
  if (config().rope.fixed_length > 0)
    all.emplace_back("rope_length", static_cast<std::uint64_t>(config().rope.fixed_length));
  // The model's hash covers the adapter, too, so no comparison of models can confuse two adapters.
  if (!section_.adapter.empty()) {
    all.emplace_back("adapter_sha256", files_sha256(world, lora_paths(section_.adapter), poll));
    if (!section_.adapter_task.empty() || !section_.task.empty())
      check_trained_folder(world, section_.adapter, std::get<std::string>(all.back().second), poll);
  }
  check_unchanged();  // only after the files were hashed
  return all;
}

}  // namespace magister
