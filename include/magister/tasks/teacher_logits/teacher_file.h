// TeacherFile: the data that a student learns from, sample by sample and in any order: the tokens of a teacher_logits
// file as the teacher saw them, and for each row the teacher's kept entries, whatever the encoding. Row t is the
// teacher's distribution of token t + 1 given the tokens up to t.
// Refused by name: a file that is incomplete or not of teacher logits, a tokenizer other than the student's, bytes
// other than those that were committed, and rows that do not belong to their tokens (shifted rows, an edited text):
// every row's target_logprob, which the teacher's head gave for the next token, must agree with the row's own entries.
// Legend: L tokens of a sample, W entries of a row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/tokenizer_identity.h"

namespace magister {

// The student's vocabulary; its tokenizer is unknown if the data set gives ids.
struct StudentVocabulary {
  std::int64_t vocab_size = 0;  // rows of its table
  TokenizerIdentity tokenizer;
};

// Error(kData) if the teacher's tokens would be others to the student. teacher: its file or model, for the message.
// Tables of one tokenizer may differ in size: models of a family are padded differently, and no text has the ids beyond
// the smaller one. Local.
void require_same_vocabulary(const std::string& teacher, std::uint64_t vocab_size, const TokenizerIdentity& tokenizer,
                             const StudentVocabulary& student);

struct TeacherSample {
  std::vector<TokenId> ids;           // [L]
  std::vector<std::uint8_t> valid;    // [L]; 1: the row was scored and a token follows it
  std::vector<std::int32_t> top_ids;  // [L, W]; -1: no entry
  std::vector<float> top_logprobs;    // [L, W]; of sampled entries logs of weights; -infinity: no entry
  std::vector<float> tail_mass;       // [L]: mass that was not kept (sampled rows: what the samples represent)
  std::vector<float> entropy;         // [L]: of the whole distribution, nats; NaN in rows that were not scored
};

class TeacherFile {
 public:
  // Error(kInputOutput) if it is not a file, Error(kData) for the faults listed at the head of this file. Local.
  TeacherFile(const std::string& path, const StudentVocabulary& student);
  ~TeacherFile();

  std::uint64_t num_samples() const;
  std::uint64_t num_tokens() const;
  std::int64_t width() const;  // W
  bool sampled() const;        // entries are an unbiased sample, see HeadLossTargets::sampled
  const std::string& path() const;
  const std::string& model_sha256() const;
  // Rows of the teacher's table; the student's if the file does not say.
  std::int64_t vocab_size() const;
  std::string encoding() const;  // plain | compact | sampled
  // Number of tokens of a sample, from the offsets alone.
  std::uint64_t length(std::uint64_t sample) const;
  std::string key(std::uint64_t sample) const;

  // Checks the sample's rows, and its unit if this is the first sample of it. Needs memory for the sample. Any thread.
  TeacherSample sample(std::uint64_t index);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace magister
