// Checkpoint: all that a task reads of a model's folder or GGUF file (config, tensors, tokenizer, chat template, the
// tokens that end a text) and the identity of what was read. Tasks open a model's files only through this class, so
// that nothing that decides a result is left out of its identity.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/types.h"
#include "magister/experiment/config.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/io/file_version.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/tokenizer_identity.h"
#include "magister/model/model_config.h"
#include "magister/parallel/communicator.h"
#include "magister/runtime/generation_config.h"
#include "magister/runtime/stop.h"
#include "magister/text/tokenizer.h"

namespace magister {

// A chat template with its source, and the tokens that it may write.
struct ChatSource {
  std::string text;
  std::string name;  // the file or the key, for messages
  // Variables of the template (bos_token, pad_token, ...) and their texts.
  std::vector<std::pair<std::string, std::string>> tokens;
  std::string token(const char* name) const;  // its text; empty: there is none
  std::string tool_text;  // the template for chats with tools, if the model has a separate one; empty: text
  // Hash of all that decides a rendered chat: the templates, BOS and EOS, and the other tokens that the templates name.
  std::string sha256() const;
};

class FilesHashing;

class Checkpoint {
 public:
  // Opens the tensors, with the adapter merged if the section names one, and reads the config; everything else is read
  // on first use. A path that holds only an adapter is replaced by the path of its base model. A random start has
  // random weights. Copies section. If section.none is set, only identity() may be called. Local.
  explicit Checkpoint(const ModelSection& section);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  ~Checkpoint();

  const ModelSection& section() const { return section_; }
  const std::string& path() const { return section_.path; }
  // The path from which tokenizer and chat template are read.
  const std::string& tokenizer_path() const;
  const TensorFile& file() const { return *file_; }
  const ModelDescription& description() const { return description_; }
  const ModelConfig& config() const { return description_.config; }

  // Fixes the rotary frequencies of all texts (rope_length.h) for a task whose model keeps texts of up to this number
  // of tokens in a cache, if they depend on the length of such texts and model.rope_length is not given. Must be called
  // before open_model().
  void fix_rope(std::uint64_t longest_cached);

  // Each of these functions reads once and makes what it read a part of identity(). For one thread; the returned
  // references stay valid. Throws Error(kData) if the checkpoint has no tokenizer.
  const Tokenizer& tokenizer();
  // model.chat_template, else the model's own; null: neither exists.
  const ChatSource* chat_source();
  // True if truncation_side of tokenizer_config.json is "left": a text that is too long loses its beginning. Local.
  bool cuts_begins() const;
  // Tokens that end a text (read_end_tokens() of end_tokens.h); empty: the model names none.
  const std::vector<TokenId>& end_tokens();
  // The other rules of generation_config.json for texts that the model writes (generation_config.h); null: none. Logs a
  // warning about rules that are not computed. ends_count: end tokens end the text, so bad words never bar them, and
  // the minimum lengths of the rules bar them until they are reached.
  std::shared_ptr<const ModelRules> rules(bool ends_count = true);
  // A line for users about the file that rules() read, and the hash of the rules that it returned, of both where both
  // were asked for and differ; empty: there is nothing to say, or no rule.
  std::string describe_generation() const { return generation_ ? generation_->describe() : ""; }
  std::string rules_sha256() const;

  // Starts to hash the model's files in the background until identity(), which waits for the rest. Does nothing for a
  // model without files. Collective over world.
  void begin_hashing(const Communicator& world);
  // Reads the tokenizer if that has not happened yet.
  TokenizerIdentity tokenizer_identity() { return {tokenizer().sha256(), tokenizer().rules_sha256()}; }
  // The attribute that results hold in addition to their identity: the rules of the tokenizer; empty if no tokenizer
  // was read.
  Attributes tokenizer_rules() const;
  // model_sha256 of config and tensors; tokenizer_sha256, chat_template_sha256 and end_tokens of what was read, "none"
  // for what was not; generation_rules_sha256 if rules() returned some; rope_length if the rotary frequencies of all
  // texts are those of one length; adapter_sha256 if there is an adapter
  // (model_sha256 covers its files, too). For a random start model_sha256 covers config and seed. Ends early if poll
  // returns true: the caller then leaves (leave_if_stopped). Equal on every rank. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // Throws Error(kInputOutput) if a file of the model, its tokenizer or its adapter is no longer the one that was
  // opened: data read from it now would not match identity(). identity() calls it, too. Local.
  void check_unchanged() const { versions_.check_unchanged(); }

 private:
  // Throws Error(kData) if the adapter states that it was trained on another model. Collective over world.
  std::string sha256_of_tensors(const Communicator& world, const StopPoll& poll) const;

  ModelSection section_;
  FileVersions versions_;  // recorded before any file was opened
  std::unique_ptr<TensorFile> file_;
  std::unique_ptr<FilesHashing> hashing_;  // until identity() has used it
  ModelDescription description_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<std::optional<ChatSource>> chat_;  // outer: chat_source() was called
  std::optional<std::vector<TokenId>> end_tokens_;
  std::optional<GenerationConfig> generation_;
  // By ends_count; no value: rules() was not called with it.
  std::array<std::optional<std::shared_ptr<const ModelRules>>, 2> rules_;
};

}  // namespace magister
