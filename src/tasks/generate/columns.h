// Files of `generate`. During a run every text has max_new_tokens slots in <name>.running.h5, which resumes like any
// results file. When all texts are written, they are packed into <name>.h5, with one sample per text and one row per
// token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/engine/generator.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/run/packed_results.h"
#include "magister/run/unit_writer.h"
#include "magister/runtime/stop.h"
#include "magister/runtime/stop_rules.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The running file: R records with n texts of S slots each, k kept entries a slot. kLength and kFinishReason are
// [R, n], the others [R, n S] or [R, n S k].
namespace generate_column {
inline constexpr Column<TokenId> kSlotId{"/generate/slot_id", "tokens of the record's texts, each in its slots"};
inline constexpr Column<float> kSlotLogprob{"/generate/slot_logprob", "their log-probabilities", "nat"};
inline constexpr Column<std::uint32_t> kLength{"/generate/length",
                                               "used slots of each text; 0: the record has fewer texts"};
inline constexpr Column<std::uint8_t> kFinishReason{"/generate/finish_reason",
                                                    "0: an end token or a stop text; 1: max_new_tokens"};
inline constexpr Column<TokenId> kSlotTopId{"/generate/slot_top_id", "the most probable tokens of every slot"};
inline constexpr Column<float> kSlotTopLogprob{"/generate/slot_top_logprob", "their log-probabilities", "nat"};
inline constexpr Column<float> kSlotGuideKl{"/generate/slot_guide_kl", "KL(guided || reference) of every slot's row",
                                            "nat"};

// The packed file: N texts with T tokens. By text, [N], with kFinishReason:
inline constexpr Column<std::uint32_t> kTextIndex{
    "/generate/text_index", "which of the record's n texts this is; of best_of texts, the best first"};
inline constexpr Column<std::uint32_t> kPromptTokens{"/generate/prompt_tokens", "length of the prompt"};
// Strings of a fixed length in format version 1.
inline constexpr Column<std::string> kText{
    "/generate/text",
    "the text, without special tokens, up to where a stop text begins; U+FFFD stands for U+0000, at which HDF5's "
    "strings end"};
// By text, if the records are requests (request_answers.h):
inline constexpr Column<std::string> kRequestModel{"/generate/request_model", "name of the model in the request"};
inline constexpr Column<std::string> kRequestLogprobs{
    "/generate/request_logprobs",
    "log-probabilities of the text's tokens as the request asked for them, in the form of OpenAI's answer; empty if it "
    "did not",
    "JSON"};
inline constexpr Column<std::string> kRequestUrl{"/generate/request_url", "path of the request"};
// By token, [T] or [T, k]:
inline constexpr ColumnSpec::Extent kRows = ColumnSpec::Extent::kRows;
inline constexpr Column<float> kLogprob{
    "/generate/logprob",
    "log-probability of each token under the model itself: before bias, penalty, temperature and truncation", "nat",
    kRows};
inline constexpr Column<TokenId> kTopId{
    "/generate/top_id",
    "the most probable tokens where this one was drawn, best first; of equal ones the lower id first", "", kRows};
inline constexpr Column<float> kTopLogprob{
    "/generate/top_logprob", "their log-probabilities over the whole vocabulary, under the model itself", "nat", kRows};
inline constexpr Column<float> kGuideKl{
    "/generate/guide_kl",
    "KL(guided || reference) where this token was drawn, the reference being the model after bias, penalty and "
    "constraint, before temperature and truncation",
    "nat", kRows};
}  // namespace generate_column

// n records, T prompt tokens, `texts` texts per record of at most `slots` tokens each, `top` kept entries per token;
// key_bytes: width of /samples/key.
struct GenerateShape {
  // texts: at most; only requests ask for fewer.
  std::uint64_t num_records = 0, num_tokens = 0, texts = 1, slots = 1, key_bytes = 1, top = 0;
  bool guided = false;  // texts have a KL to the reference
  // FLOPs of the matrix products of the model and its guide, for attributes of the packed file: per token of a text
  // (with its share of the best_of texts that are not kept and all candidates of the guide), and per token of its
  // prompt, which the record's texts share.
  std::uint64_t flops_a_token = 0, flops_a_prompt_token = 0;
};

std::vector<ColumnSpec> running_columns(const GenerateShape& shape);

// The slots of one record's texts, at most shape.texts; texts[i] is sample i.
std::vector<ColumnBytes> running_rows(const std::vector<Generation>& texts, const GenerateShape& shape);

// Most bytes of text that a token of this vocabulary can give: a byte that is not UTF-8 becomes three. kTextBytesAToken
// (packed_results.h) is the usual estimate.
std::uint64_t longest_token_bytes(const Tokenizer& tokenizer);
// Bytes of the packed file if every text fills its slots and every token gives bytes_a_token bytes of text.
std::uint64_t packed_bytes(const GenerateShape& shape, std::uint64_t bytes_a_token);

// The rules that end the texts of a record of the running file, counted from 0.
using RulesOfRecord = std::function<const StopRules&(std::uint64_t record)>;

// Writes results_path from a running file whose units are all committed. `attributes`: those of the root in order,
// without num_samples and num_tokens. Overwrites the file of an earlier attempt; the caller knows that the file is its
// own. poll is called once per block; returns false if it said that the job should stop. fields: further columns, one
// text for every text. Local, one process.
bool pack_texts(const ResultsFile& running, const GenerateShape& shape, const std::string& results_path,
                const Attributes& attributes, const Tokenizer& tokenizer, const RulesOfRecord& rules,
                const StopPoll& poll, const TextColumns& fields = {});

// The rules that `check` applies to packed texts.
extern const ResultsSchema kGenerateSchema;

}  // namespace magister
