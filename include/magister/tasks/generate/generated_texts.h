// GeneratedTexts: the texts of a complete `generate` file, for a task that reads them. Every read of a text throws
// Error(kData) if the bytes of its unit differ from the committed ones.
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
  // Throws Error(kData) if the file is not a complete file of texts, Error(kInputOutput) if it cannot be read. Local.
  explicit GeneratedTexts(const std::string& path);
  ~GeneratedTexts();
  GeneratedTexts(GeneratedTexts&&) noexcept;

  std::uint64_t num_texts() const;
  std::uint64_t texts_a_record() const;
  // False: the records are requests, and some asked for fewer texts than others. texts_a_record() is then that of the
  // first, and text() is the only way to all.
  bool has_same_number_of_texts() const;
  // Text i in the file's order: text i % texts_a_record() of record i / texts_a_record() of the slice.
  std::string text(std::uint64_t i) const;
  std::uint64_t source_index(std::uint64_t i) const;
  std::string key(std::uint64_t i) const;
  // Visits the keys of all texts in the file's order. They are read in blocks and not verified: read a key that was
  // found again with key().
  void for_each_key(const std::function<void(std::uint64_t i, std::string_view key)>& visit) const;
  // Root attributes of the run that wrote the texts: "dataset_sha256", "experiment". Throws Error(kData) if one is
  // absent.
  const std::string& attribute(const std::string& name) const;
  TokenizerIdentity tokenizer() const;  // of the model that wrote the texts
  std::uint64_t num_tokens(std::uint64_t i) const;
  std::vector<TokenId> tokens(std::uint64_t i) const;  // as the model wrote them
  // True if a value model guided the texts. guide_kl() is then the sum of KL(guided || reference) over a text's tokens,
  // nats.
  bool guided() const;
  double guide_kl(std::uint64_t i) const;
  // True if the file holds the cost of its texts; older files do not. flops() is then the FLOPs of one text, including
  // its share of the prompt.
  bool has_flops() const;
  double flops(std::uint64_t i) const;
  // Mean log-probability of the text's tokens by the model that wrote it, nats; 0 for an empty text.
  double mean_logprob(std::uint64_t i) const;

 private:
  struct Columns;
  std::vector<std::uint64_t> rows_of(std::uint64_t i) const;
  double sum_of(const char* column, std::uint64_t i) const;  // over the text's tokens
  std::unique_ptr<Columns> columns_;
};

}  // namespace magister
