// Files of `generate`. During a run every text has max_new_tokens slots in <name>.running.h5, which resumes like any
// results file. When all texts are written, they are packed into <name>.h5, with one sample per text and one row per
// token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/engine/generator.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/run/unit_writer.h"
#include "magister/runtime/stop.h"
#include "magister/runtime/stop_rules.h"
#include "magister/text/tokenizer.h"

namespace magister {

// n records, T prompt tokens, `texts` texts per record of at most `slots` tokens each, `top` kept entries per token;
// key_bytes: width of /samples/key.
struct GenerateShape {
  std::uint64_t num_records = 0, num_tokens = 0, texts = 1, slots = 1, key_bytes = 1, top = 0;
  bool guided = false;  // texts have a KL to the reference
  // FLOPs of the matrix products of the model and its guide, for attributes of the packed file: per token of a text
  // (with its share of the best_of texts that are not kept and all candidates of the guide), and per token of its
  // prompt, which the record's texts share.
  std::uint64_t flops_a_token = 0, flops_a_prompt_token = 0;
};

std::vector<ColumnSpec> running_columns(const GenerateShape& shape);

// The slots of one record's texts; texts[i] is sample i.
std::vector<ColumnBytes> running_rows(const std::vector<Generation>& texts, const GenerateShape& shape);

// Most bytes of text that a token of this vocabulary can give: a byte that is not UTF-8 becomes three. kTextBytesAToken
// (packed_results.h) is the usual estimate.
std::uint64_t longest_token_bytes(const Tokenizer& tokenizer);
// Bytes of the packed file if every text fills its slots and every token gives bytes_a_token bytes of text.
std::uint64_t packed_bytes(const GenerateShape& shape, std::uint64_t bytes_a_token);

// Writes results_path from a running file whose units are all committed. `attributes`: those of the root in order,
// without num_samples and num_tokens. Overwrites the file of an earlier attempt; the caller knows that the file is its
// own. poll is called once per block; returns false if it said that the job should stop. Local, one process.
bool pack_texts(const ResultsFile& running, const GenerateShape& shape, const std::string& results_path,
                const Attributes& attributes, const Tokenizer& tokenizer, const StopRules& rules, const StopPoll& poll);

// The rules that `check` applies to packed texts.
extern const ResultsSchema kGenerateSchema;

}  // namespace magister
