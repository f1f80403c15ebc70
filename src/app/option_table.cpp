// The order of the entries is their order in --help, in the man page and in the completions.
#include "app/option_table.h"

#include <cstring>

#include "app/commands.h"

namespace magister {

namespace {

using Count = PositionalEntry::Count;

constexpr PositionalEntry kExperiment[] = {
    {"FILE.yaml", Count::kOne, "the experiment (configs/README.md leads to its keys)"},
    {"key.path=value", Count::kMany,
     "overrides, the last wins: seed=1 tasks.0.top_k=8 'tasks.0.dataset.path=[a.jsonl, b.jsonl]'"},
};
constexpr OptionEntry kRunOptions[] = {
    {"--max-wall", "HH:MM:SS",
     "stop cleanly (exit 75) when this time is over, counted from the start: after the pass or step that is running "
     "then"},
    {"--fresh", nullptr, "put an earlier result aside and start over"},
    {"--metrics", "WHERE",
     "serve host and GPU metrics to Prometheus at an address (127.0.0.1:9400), or write them to a file NAME.prom"},
    {"--print-config", nullptr, "print the experiment as resolved, every default filled in, and do nothing else"},
    {"--quiet", nullptr, "print warnings and errors only", "-q"},
    {"--verbose", nullptr, "print more: what every rank does, and progress every 5 s", "-v"},
};
constexpr OptionEntry kPlanOptions[] = {
    {"--ranks", "N", "plan for N ranks instead of those of this start, or of a rank for each GPU of plan.devices"},
    {"--config-only", nullptr,
     "from the model's config.json alone: bytes per device for groups of several sizes, and the smallest that fits"},
    {"--print-config", nullptr, "print the experiment as resolved, every default filled in, and do nothing else"},
};
constexpr OptionEntry kSummarizeOptions[] = {
    {"--task", "NAME", "of this judge alone (default: of every judge of the experiment)"}};
constexpr PositionalEntry kHelp[] = {
    {"KEY", Count::kOptional, "a key, by its path or its last word alone, or a command (default: all commands)"},
};
constexpr PositionalEntry kModel[] = {
    {"MODEL", Count::kOne, "a GGUF file, a folder with tokenizer.json, or a tokenizer.json"},
};
constexpr OptionEntry kTokenizeOptions[] = {
    {"--decode", nullptr, "the reverse: a JSON array of ids per line in, text out"},
    {"--special", nullptr,
     "add the special tokens (BOS, EOS) that the model's tokenizer adds; with --decode: show them"},
};
constexpr PositionalEntry kPair[] = {
    {"GOLD", Count::kOne, "the right answer: a number, a formula, a solution with a box"},
    {"ANSWER", Count::kOne, "the text whose answer is compared with it"},
};
constexpr PositionalEntry kResults[] = {{"RESULTS.h5", Count::kOne, "a results file, finished or partial"}};
constexpr OptionEntry kInfoOptions[] = {{"--json", nullptr, "one JSON object instead of text"}};
constexpr OptionEntry kExportOptions[] = {
    {"--to", "FORMAT",
     "jsonl: one object a sample; csv: one row a sample, lists as JSON; parquet: lists, under the names that "
     "distillation "
     "trainers read; padded-hdf5: logits_values, logits_indices, seq_lengths; of texts openai_batch: OpenAI's batch "
     "output; of an exam also txt: three files to "
     "read; "
     "aiken: and gift: text for Moodle; moodle: its XML; qti21: and qti30: packages of IMS; html: a page to print"},
    {"--out", "FILE", "write there instead of to standard output"},
};
constexpr PositionalEntry kRuns[] = {{"DIR", Count::kOne, "a folder of runs (output.directory), or one run's folder"}};
constexpr OptionEntry kHistoryOptions[] = {{"--json", nullptr, "one JSON object instead of text"}};
constexpr PositionalEntry kRun[] = {{"RUN", Count::kOne, "a run's folder: output.directory/name"}};
constexpr OptionEntry kStatusOptions[] = {{"--json", nullptr, "one JSON object instead of text"}};
constexpr OptionEntry kServeOptions[] = {
    {"--listen", "HOST:PORT", "the address (default 127.0.0.1:8000; port 0: one that is free)"},
    {"--root", "DIR", "folder of jobs and of all files that experiments may name (default: service)"},
    {"--folder", "DIR", "one more folder that experiments may name"},
    {"--tokens", "FILE", "hashes of bearer tokens; without it nobody is asked for one, on 127.0.0.1 alone"},
    {"--add-token", "NAME:ROLE", "append a token to that file, print it, and end; the role is read or submit"},
    {"--certificate", "FILE", "TLS: the certificate (PEM)"},
    {"--key", "FILE", "TLS: its key (PEM)"},
    {"--launcher", "COMMAND", "what starts a job (default: mpirun -np 1)"},
    {"--sbatch", "COMMAND", "submit each job to Slurm, whose script starts the launcher: \"sbatch --ntasks 4\""},
    {"--jobs", "N", "jobs that run at a time (default 1)"},
    {"--rate", "N", "requests of a token in a minute (default 6000)"},
};
constexpr OptionEntry kTopOptions[] = {{"--once", nullptr, "print the table once instead of every 2 s"}};
constexpr PositionalEntry kMerge[] = {
    {"OUT.h5", Count::kOne, "the file to make; it must not exist"},
    {"PART.h5", Count::kMany, "finished files of the slices of one data set, in any order"},
};
constexpr OptionEntry kDoctorOptions[] = {
    {"--directory", "DIR", "where to test locks and writing (default: the working directory)"},
    {"--json", nullptr, "one JSON object instead of text"},
};
constexpr PositionalEntry kBench[] = {
    {"WHAT", Count::kOne,
     "sgemm, product, prefill, teacher, decode or prefix; on a GPU gemm, copy, read, prefill, teacher, decode, judge "
     "or layer (a pass part by part)"},
    {"MODEL", Count::kOptional, "a GGUF file or a folder, for all but sgemm, product, gemm, copy and read"},
};
constexpr OptionEntry kBenchOptions[] = {
    {"--tokens", "N", "packed tokens of a unit; decode: new tokens per text; prefix: tokens of a prompt (default 512)"},
    {"--sequences", "N", "sequences that they are divided into; decode, prefix: texts at once (default 1)"},
    {"--top-k", "K", "kept entries per token (default 64)"},
    {"--dtype", "TYPE", "auto, f32, bf16 or f16; on a GPU also fp8 (default auto)"},
    {"--format", "TYPE",
     "weights of product: f32, bf16, f16, int8, int4, int8-kept or int4-kept (default f32); int8 and int4 quantise a "
     "model, too"},
    {"--group", "N", "inputs a scale of int8 and int4: 32, 64, 128 or 0 (default 128)"},
    {"--rows", "N", "rows of product (default 1: one decoding sequence); layer: a decoding pass of N texts"},
    {"--past", "N",
     "tokens of each text that are in the cache before (on a CPU for decode alone; default 16, of the prompts)"},
    {"--lengths", "KIND", "on a GPU: even, or uneven texts of a unit, from one part to eight (default even)"},
    {"--at-once", "N", "judge on a GPU: prompts in memory at the same time (default all sequences)"},
    {"--layers", "N", "on a GPU with --random: only N layers are made; layer computes the whole model from them"},
    {"--threads", "N", "compute threads (default 1)"},
    {"--device", "NAME", "cpu, cuda:N, or host (the GPU's code on the CPU, for tests; default cpu)"},
    {"--random", nullptr, "on a GPU: random weights of the shapes in MODEL's config.json"},
    {"--graph", "STATE", "on a GPU: decoding passes as CUDA graphs, on or off (default on)"},
    {"--decoding", "NAME", "on a GPU: latency, or throughput for many texts at once (default latency)"},
    {"--kv-cache", "TYPE", "on a GPU: auto, or fp8 for pages of 8-bit floats (default auto)"},
    {"--attention", "NAME", "on a GPU: flash, or cudnn for texts of 2,048 tokens or more (default flash)"},
    {"--repeats", "N", "measured runs, of which the median counts (default 5)"},
    {"--json", nullptr, "one JSON object instead of text"},
};

constexpr CommandEntry kCommands[] = {
    {"run", run_command, "execute an experiment; the same command continues a stopped run", kExperiment, kRunOptions},
    {"plan", plan_command, "everything but compute: ranks, devices, memory, units, tokens, bytes, free space",
     kExperiment, kPlanOptions},
    {"summarize", summarize_command, "a judge's summary again, from its complete results: labels may have changed",
     kExperiment, kSummarizeOptions},
    {"schema",
     schema_command,
     "a JSON Schema of experiment files, for editors: magister schema > magister.schema.json",
     {},
     {}},
    {"help",
     help_command,
     "what a key of an experiment means, its default and its range: magister help judge.combine",
     kHelp,
     {}},
    {"tokenize", tokenize_command, "a line of text in, a JSON array of token ids out (or back)", kModel,
     kTokenizeOptions},
    {"math",
     math_command,
     "whether an answer is right by the rule math_verify: what is read on either side, and why",
     kPair,
     {}},
    {"info", info_command, "what a results file holds", kResults, kInfoOptions},
    {"check", check_command, "verify a results file: structure, offsets, checksums, completeness", kResults, {}},
    {"export", export_command, "convert a results file", kResults, kExportOptions},
    {"merge", merge_command, "join the finished files of an array job into one", kMerge, {}},
    {"status", status_command, "all tasks of a run's folder, running or not: state, units, tokens/s, time left, loss",
     kRun, kStatusOptions},
    {"top", top_command, "ranks and GPUs of a run at work, live: memory, use, temperature, power", kRun, kTopOptions},
    {"history", history_command, "every start of the runs in a folder: state, tokens, loss, time, GPU hours", kRuns,
     kHistoryOptions},
    {"doctor",
     doctor_command,
     "ranks, hosts, devices, links, library versions, lock and write test: run it first on a cluster",
     {},
     kDoctorOptions},
    {"serve",
     serve_command,
     "a service of jobs over HTTP: submit experiments, watch, cancel, resume",
     {},
     kServeOptions},
    {"bench", bench_command, "this program's speed against the machine's limit", kBench, kBenchOptions},
};

constexpr OptionEntry kGlobalOptions[] = {
    {"--help", nullptr, "this text; COMMAND --help explains a command"},
    {"--version", nullptr, "the version, and those of everything linked; with --json as one JSON object"},
    {"--print-config", nullptr, "FILE.yaml [key.path=value ...]: the experiment as resolved"},
    {"--man", nullptr, "the manual page in roff: magister --man | man -l -"},
    {"--completion", "SHELL", "completion for bash or zsh: source <(magister --completion bash)"},
};

constexpr ExitCodeEntry kExitCodes[] = {
    {0, "done"},
    {64, "usage: the command line is wrong"},
    {65, "bad data: a record, a model file or a results file is wrong"},
    {70, "internal error, or a rank that stalled"},
    {74, "input or output: a disk, a lock, permissions"},
    {75, "stopped cleanly: run the same command again"},
    {78, "bad configuration: the experiment or the layout is wrong"},
};

}  // namespace

std::span<const CommandEntry> all_commands() { return kCommands; }
std::span<const OptionEntry> global_options() { return kGlobalOptions; }
std::span<const ExitCodeEntry> exit_codes() { return kExitCodes; }

const CommandEntry* find_command(const char* name) {
  for (const CommandEntry& command : kCommands) {
    if (std::strcmp(command.name, name) == 0) return &command;
  }
  return nullptr;
}

}  // namespace magister
