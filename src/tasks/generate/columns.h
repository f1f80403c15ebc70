// Files of `generate`. While a run writes, every text has max_new_tokens slots in <name>.running.h5, which resumes like any
// results file; when all are there they are packed into <name>.h5: a sample a text, a row a token.
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

// n records, T prompt tokens, `texts` texts per record of at most `slots` tokens each, `top` entries kept of every token's row;
// key_bytes: width of /samples/key.
struct GenerateShape {
  std::uint64_t num_records = 0, num_tokens = 0, texts = 1, slots = 1, key_bytes = 1, top = 0;
  bool guided = false;  // texts have a KL to the reference
  // Of the products of the model and its guide, for attributes of the packed file: a token of a text (its share of best_of texts that are not
  // kept and all candidates of the guide included), and a token of its prompt, which the record's texts share.
  std::uint64_t flops_a_token = 0, flops_a_prompt_token = 0;
};

std::vector<ColumnSpec> running_columns(const GenerateShape& shape);

// The slots of one record's texts, texts[i] being sample i.
std::vector<ColumnBytes> running_rows(const std::vector<Generation>& texts, const GenerateShape& shape);

// The bound of kTextBytesAToken (packed_results.h): a byte that is no UTF-8 becomes three.
std::uint64_t longest_token_bytes(const Tokenizer& tokenizer);
// Bytes of the packed file, when every text fills its slots and every token stands for so many bytes of text.
std::uint64_t packed_bytes(const GenerateShape& shape, std::uint64_t bytes_a_token);

// Writes results_path from a running file whose units are all committed. `attributes`: the root's in order, without
// num_samples and num_tokens. A file of an earlier attempt, which the caller knows to be its own, is made again. False: poll, asked a
// block at a time, said that the job should stop. Local, one process.
bool pack_texts(const ResultsFile& running, const GenerateShape& shape, const std::string& results_path,
                const Attributes& attributes, const Tokenizer& tokenizer, const StopRules& rules, const StopPoll& poll);

// What `check` demands of packed texts.
extern const ResultsSchema kGenerateSchema;

}  // namespace magister
