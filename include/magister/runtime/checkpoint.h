// Checkpoint: all that a task reads of a model's folder or GGUF file - config, tensors, tokenizer, chat template, the tokens
// that end a text - and the identity of what was read. Nothing else in the program opens a model's files for a task, so
// nothing that decides a result can be left out of its identity.
#pragma once

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

// A chat template where it was found, and the tokens that it may write.
struct ChatSource {
  std::string text;
  std::string name;  // for messages: the file, or the key
  std::vector<std::pair<std::string, std::string>>
      tokens;                                 // variables of the template: bos_token, pad_token, ... and their texts
  std::string token(const char* name) const;  // its text, empty where there is none
  std::string tool_text;  // the template of chats with tools, where the model has one of its own; empty: text
  // Hash of all that decides a rendered chat: the texts, BOS and EOS, and the other tokens that they name.
  std::string sha256() const;
};

class FilesHashing;

class Checkpoint {
 public:
  // Opens the tensors, with the adapter merged where the section names one, and reads the config; the rest is read when it is asked for. A
  // path that holds an adapter alone becomes that of its base model; a random start has drawn weights. section is copied. Where it says that
  // there is no model, identity() alone may be asked. Local.
  explicit Checkpoint(const ModelSection& section);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  ~Checkpoint();

  const ModelSection& section() const { return section_; }
  const std::string& path() const { return section_.path; }
  // Where tokenizer and chat template stand.
  const std::string& tokenizer_path() const;
  const TensorFile& file() const { return *file_; }
  const ModelDescription& description() const { return description_; }
  const ModelConfig& config() const { return description_.config; }

  // Each of these reads once, and makes what it read a part of identity(). One thread; what they return stays.
  // Throws Error(kData) where the checkpoint has no tokenizer.
  const Tokenizer& tokenizer();
  // model.chat_template, else the model's own; null where there is neither.
  const ChatSource* chat_source();
  // Whether truncation_side of tokenizer_config.json is "left": a text that is too long loses its begin. Local.
  bool cuts_begins() const;
  // Tokens that end a text (read_end_tokens() of end_tokens.h); empty when the model names none.
  const std::vector<TokenId>& end_tokens();
  // What else generation_config.json says of the texts that the model writes (generation_config.h); null: nothing. Says in a warning what of it
  // is not computed. ends_count: end tokens end the text, so those that it bars are barred.
  std::shared_ptr<const ModelRules> rules(bool ends_count = true);
  // What of the file was read by rules(): a line for people, and the hash of the rules; empty where there is nothing.
  std::string describe_generation() const { return generation_ ? generation_->describe() : ""; }
  std::string rules_sha256() const;

  // Begins to hash the model's files beside whatever the rank does until it asks for identity(), which then waits for what is left. Nothing to do for a
  // model without files. Collective over world.
  void begin_hashing(const Communicator& world);
  // Reads the tokenizer where it was not read yet.
  TokenizerIdentity tokenizer_identity() { return {tokenizer().sha256(), tokenizer().rules_sha256()}; }
  // The attribute that results hold beside their identity: what the tokenizer that was read does; nothing where none was.
  Attributes tokenizer_rules() const;
  // model_sha256 of config and tensors; tokenizer_sha256, chat_template_sha256 and end_tokens of what was read, "none" of what was
  // not; generation_rules_sha256 where rules() gave some; adapter_sha256 where there is an adapter, whose files are in model_sha256, too. Of a random start config and seed. Ends early when poll says so: the caller then
  // leaves (leave_if_stopped). Equal on every rank. Collective over world.
  Attributes identity(const Communicator& world, const StopPoll& poll) const;
  // Throws Error(kInputOutput) where a file of the model, its tokenizer or its adapter is no longer the one that was opened: what is read of
  // it now would not be what identity() names. identity() asks, too. Local.
  void check_unchanged() const { versions_.check_unchanged(); }

 private:
  // Throws Error(kData) where the adapter says that it was trained on another model. Collective over world.
  std::string sha256_of_tensors(const Communicator& world, const StopPoll& poll) const;

  ModelSection section_;
  FileVersions versions_;  // from before anything was opened
  std::unique_ptr<TensorFile> file_;
  std::unique_ptr<FilesHashing> hashing_;  // until identity() has asked
  ModelDescription description_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<std::optional<ChatSource>> chat_;  // outer: asked for
  std::optional<std::vector<TokenId>> end_tokens_;
  std::optional<GenerationConfig> generation_;
  std::shared_ptr<const ModelRules> rules_;  // as they were asked for first
};

}  // namespace magister
