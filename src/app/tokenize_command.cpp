// tokenize: lines of text <-> lines of JSON arrays of ids, one line at a time, so that it works in a pipe.
// This file also has the command bench, which is for one rank, too.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/bench/bench.h"
#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/runtime/tokenizer_files.h"

namespace magister {

namespace {

constexpr std::size_t kMaxLineBytes = 256u << 20;  // as for records of a data set

// Reads the next line without its end; false at the end of the input.
bool read_line(std::string& line, std::uint64_t number) {
  line.clear();
  for (int c; (c = std::getc(stdin)) != EOF;) {
    if (c == '\n') return true;
    if (line.size() >= kMaxLineBytes) {
      fail(ExitCode::kData,
           "standard input:{}: a line of more than {} bytes (it would exhaust the memory); break it up", number,
           kMaxLineBytes);
    }
    line += static_cast<char>(c);
  }
  if (std::ferror(stdin) != 0)
    fail(ExitCode::kInputOutput, "standard input:{}: cannot be read (the text is cut off); try again", number);
  return !line.empty();
}

// Ids without a token are accepted, because a model has more rows than its vocabulary has tokens, and generates their
// ids now and then.
std::vector<TokenId> parse_ids(const std::string& line, std::uint64_t number) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_array()) {
    fail(ExitCode::kData,
         "standard input:{}: not a JSON array of token ids (nothing can be decoded); write for example "
         "[1, 2, 3]",
         number);
  }
  std::vector<TokenId> ids;
  for (const nlohmann::json& entry : json) {
    constexpr std::int64_t kHighest = std::numeric_limits<TokenId>::max();
    const bool fits = entry.is_number_unsigned() && entry.get<std::uint64_t>() <= std::uint64_t{kHighest};
    if (!fits) {
      fail(ExitCode::kData, "standard input:{}: {} is not a token id (ids go from 0 to {}); fix this line", number,
           printable(entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 40), kHighest);
    }
    ids.push_back(static_cast<TokenId>(entry.get<std::int64_t>()));
  }
  return ids;
}

std::string json_array(const std::vector<TokenId>& ids) {
  std::string out = "[";
  char digits[16];
  for (const TokenId id : ids) {
    if (out.size() > 1) out += ", ";
    out.append(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
  }
  return out + "]\n";
}

}  // namespace

ExitCode tokenize_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const Tokenizer tokenizer = load_tokenizer(call.line.positional("MODEL"));
    const bool special = call.line.has("--special");
    const EncodeOptions options{special, true};
    std::string line;
    for (std::uint64_t number = 1; read_line(line, number); ++number) {
      if (call.line.has("--decode")) {
        say(tokenizer.decode(parse_ids(line, number), !special) + "\n");
        continue;
      }
      std::vector<TokenId> ids;
      try {
        tokenizer.encode(line, options, ids);
      } catch (const Error& error) {
        fail(error.code(), "standard input:{}: {}", number, error.what());
      }
      say(json_array(ids));
    }
    return ExitCode::kDone;
  });
}

ExitCode bench_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const CommandLine& line = call.line;
    BenchOptions options;
    options.what = line.positional("WHAT");
    constexpr std::string_view kOfModels[] = {"prefill", "teacher", "decode", "prefix", "judge", "layer"};
    MAGISTER_CHECK(!line.positional("MODEL").empty() ||
                       std::find(std::begin(kOfModels), std::end(kOfModels), options.what) == std::end(kOfModels),
                   ExitCode::kUsage, "MODEL is missing (bench {0} computes one); write magister bench {0} MODEL",
                   options.what);
    options.model = find_model(line.positional("MODEL"));
    options.tokens = line.number("--tokens", options.tokens, 1, 1 << 24);
    options.sequences = line.number("--sequences", options.sequences, 1, 1 << 24);
    options.top_k = line.number("--top-k", options.top_k, 1, 1 << 24);
    options.dtype = line.option("--dtype", options.dtype);
    options.threads = static_cast<int>(line.number("--threads", options.threads, 1, 4096));
    options.format = line.option("--format", options.format);
    options.group = line.number("--group", options.group, 0, 128);
    options.rows = line.number("--rows", options.rows, 1, 4096);
    options.past = line.number("--past", options.past, 0, 1 << 20);
    options.layers = line.number("--layers", options.layers, 0, 1 << 12);
    const std::string lengths = line.option("--lengths", "even");
    MAGISTER_CHECK(lengths == "even" || lengths == "uneven", ExitCode::kUsage,
                   "--lengths {} (texts of a unit are alike or not); write even or uneven", printable(lengths));
    options.uneven = lengths == "uneven";
    options.repeats = static_cast<int>(line.number("--repeats", options.repeats, 1, 1'000'000));
    options.device = line.option("--device", options.device);
    options.random = line.has("--random");
    const std::string graphs = line.option("--graph", "on");
    MAGISTER_CHECK(graphs == "on" || graphs == "off", ExitCode::kUsage,
                   "--graph {} (decoding passes are CUDA graphs or not); write on or off", printable(graphs));
    options.graphs = graphs == "on";
    const std::string attention = line.option("--attention", "flash");
    MAGISTER_CHECK(attention == "flash" || attention == "cudnn", ExitCode::kUsage,
                   "--attention {} (long texts' attention has two libraries); write flash or cudnn",
                   printable(attention));
    options.cudnn = attention == "cudnn";
    const std::string decoding = line.option("--decoding", "latency");
    MAGISTER_CHECK(decoding == "latency" || decoding == "throughput", ExitCode::kUsage,
                   "--decoding {} (products of decoding passes are made for few texts or for many); write latency or "
                   "throughput",
                   printable(decoding));
    options.throughput = decoding == "throughput";
    options.json = line.has("--json");
    std::string text = run_bench(options);
    if (!text.ends_with('\n')) text += '\n';
    say(text);
    return ExitCode::kDone;
  });
}

}  // namespace magister
