// GeneratedTexts: the texts of a complete `generate` file, for a task that goes on from them. What is read of a text throws Error(kData) where
// the bytes of its unit are not those that were committed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/tokenizer_identity.h"

namespace magister {

class GeneratedTexts {
 public:
  // Throws Error(kData) for what is no complete file of texts, Error(kInputOutput) for what is no file. Local.
  explicit GeneratedTexts(const std::string& path);
  ~GeneratedTexts();
  GeneratedTexts(GeneratedTexts&&) noexcept;

  std::uint64_t num_texts() const;
  std::uint64_t texts_a_record() const;
  // Text i in the file's order: record i / texts_a_record() of the slice, its i % texts_a_record()-th text.
  std::string text(std::uint64_t i) const;
  std::uint64_t source_index(std::uint64_t i) const;
  std::string key(std::uint64_t i) const;
  // Keys of all texts in the file's order, read in pieces, not verified: what is found by one is read again with key().
  void for_each_key(const std::function<void(std::uint64_t i, std::string_view key)>& visit) const;
  // Root attributes of the run that wrote them: "dataset_sha256", "experiment". Throws Error(kData) when absent.
  const std::string& attribute(const std::string& name) const;
  TokenizerIdentity tokenizer() const;  // of the model that wrote them
  std::uint64_t num_tokens(std::uint64_t i) const;
  std::vector<TokenId> tokens(std::uint64_t i) const;  // as the model wrote them
  // Whether a value model has guided them. If so, KL(guided || reference) summed over the tokens of one, nats.
  bool guided() const;
  double guide_kl(std::uint64_t i) const;
  // Whether the file says what its texts cost, as older ones do not. If so, FLOPs of one, its prompt's share included.
  bool has_flops() const;
  double flops(std::uint64_t i) const;
  // Mean log-probability of its tokens under the model that wrote it, nats; 0 for an empty text.
  double mean_logprob(std::uint64_t i) const;

 private:
  struct Columns;
  std::vector<std::uint64_t> rows_of(std::uint64_t i) const;
  double sum_of(const char* column, std::uint64_t i) const;  // over its tokens
  std::unique_ptr<Columns> columns_;
};

}  // namespace magister
