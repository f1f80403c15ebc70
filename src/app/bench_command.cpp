// bench: reads the options of a measurement and prints its report. For one rank.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "app/bench/bench.h"
#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/model_path.h"

namespace magister {

namespace {

// Returns true if the option has the first of its two values, which is its default.
bool is_first(const CommandLine& line, const char* option, const char* first, const char* second, const char* why) {
  const std::string value = line.option(option, first);
  MAGISTER_CHECK(value == first || value == second, ExitCode::kUsage, "{} {} ({}); write {} or {}", option,
                 printable(value), why, first, second);
  return value == first;
}

}  // namespace

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
    options.at_once = line.number("--at-once", options.at_once, 1, 1 << 24);
    options.layers = line.number("--layers", options.layers, 0, 1 << 12);
    options.uneven = !is_first(line, "--lengths", "even", "uneven", "texts of a unit are alike or not");
    options.repeats = static_cast<int>(line.number("--repeats", options.repeats, 1, 1'000'000));
    options.device = line.option("--device", options.device);
    options.random = line.has("--random");
    options.graphs = is_first(line, "--graph", "on", "off", "decoding passes are CUDA graphs or not");
    options.cudnn = !is_first(line, "--attention", "flash", "cudnn", "long texts' attention has two libraries");
    options.throughput = !is_first(line, "--decoding", "latency", "throughput",
                                   "products of decoding passes are made for few texts or for many");
    options.fp8_cache = !is_first(line, "--kv-cache", "auto", "fp8", "pages hold bf16 or 8-bit floats");
    options.json = line.has("--json");
    std::string text = run_bench(options);
    if (!text.ends_with('\n')) text += '\n';
    say(text);
    return ExitCode::kDone;
  });
}

}  // namespace magister
