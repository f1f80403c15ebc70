// The real schema: defaults, the message for each wrong value, overrides, and the text that goes into results files.
#include "magister/app/experiment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "app/task_graph.h"
#include "magister/core/error.h"
#include "magister/io/results/identity.h"
#include "magister/tasks/registry.h"

namespace magister {
namespace experiment_test {

const std::string kGood =
    "name: quick\n"
    "model:\n"
    "  path: m.gguf\n"
    "tasks:\n"
    "  - task: teacher_logits\n"
    "    dataset:\n"
    "      path: d.jsonl\n";

std::string resolved(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return Experiment(text, "e.yaml", overrides, built_in_tasks()).resolved_yaml();
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    Experiment(text, "e.yaml", overrides, built_in_tasks());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(Experiment, FillsInEveryDefault) {
  EXPECT_EQ(resolved(kGood),
            "name: quick\n"
            "seed: 0\n"
            "output:\n"
            "  directory: runs\n"
            "  driver: pwrite\n"
            "model:\n"
            "  path: m.gguf\n"
            "  dtype: auto\n"
            "  quantization: none\n"
            "layout:\n"
            "  gpus_per_group: auto\n"
            "  devices: auto\n"
            "  collectives: reproducible\n"
            "  devices_per_rank: auto\n"
            "  shards_per_rank: 1\n"
            "run:\n"
            "  schedule: dynamic\n"
            "  at_once: 0\n"
            "  watchdog_seconds: 1800.0\n"
            "tasks:\n"
            "  - task: teacher_logits\n"
            "    name: teacher\n"
            "    dataset:\n"
            "      path: d.jsonl\n"
            "      text: text\n"
            "    max_length: auto\n"
            "    overflow: truncate\n"
            "    encoding: plain\n"
            "    top_k: 64\n"
            "    logprob_dtype: f32\n"
            "    score: all\n"
            "    unit_tokens: 2048\n");
}

TEST(Experiment, ResolvedReadsBackTheSame) {
  const std::string full =
      "name: all-of_it\nseed: 12345\noutput: {directory: \"/tmp/with space\"}\n"
      "model: {path: ../m, adapter: ../a, dtype: bf16, quantization: int8, quantization_group: 64}\n"
      "layout: {gpus_per_group: 2, devices: [0, 3], shards_per_rank: 1}\n"
      "run: {max_wall: 01:30:00, schedule: static, watchdog_seconds: 0.5}\n"
      "tasks:\n"
      "- task: teacher_logits\n  name: a\n  dataset: {path: [\"*.jsonl\", b.txt], tokens: ids, key: id, limit: 10}\n  "
      "slice: 3/8\n"
      "  max_length: 16\n  overflow: window\n  stride: 4\n  top_k: 1\n  logprob_dtype: f16\n  unit_tokens: 1\n"
      "- {task: teacher_logits, name: b, model: {path: other}, dataset: {path: x.txt, text: body}}\n";
  const std::string once = resolved(full);
  EXPECT_EQ(resolved(once), once);
  EXPECT_NE(once.find("max_wall: \"01:30:00\""), std::string::npos) << once;
  EXPECT_NE(once.find("slice: \"3/8\""), std::string::npos) << once;
  EXPECT_EQ(resolved(resolved(kGood)), resolved(kGood));
}

TEST(Experiment, ResultsNameTheirTaskAlone) {
  const std::string two = kGood + "  - {task: teacher_logits, name: other, dataset: {path: y.txt}}\n";
  const Experiment experiment(two, "e.yaml", {"output.directory=/scratch/x", "run.schedule=static"}, built_in_tasks());
  const std::string first = experiment.identity_yaml_of_task(0);
  EXPECT_EQ(first.find("output"), std::string::npos);
  EXPECT_EQ(first.find("run:"), std::string::npos);
  EXPECT_EQ(first.find("/scratch"), std::string::npos);
  EXPECT_EQ(first.find("other"), std::string::npos);
  EXPECT_EQ(first, Experiment(kGood, "f.yaml", {}, built_in_tasks())
                       .identity_yaml_of_task(0));  // neither place, schedule nor neighbours
  EXPECT_NE(experiment.identity_yaml_of_task(1).find("y.txt"), std::string::npos);
  EXPECT_EQ(experiment.results_path(1), "/scratch/x/quick/other.h5");
  EXPECT_EQ(resolved(first),
            Experiment(kGood, "f.yaml", {}, built_in_tasks()).resolved_yaml());  // an experiment by itself
}

// Keys that the reader marks (ConfigNode::outside_identity) do not change the identity of results; other keys do.
TEST(Experiment, KeysOutsideTheIdentityAreLeftOut) {
  const std::string more = kGood +
                           "    model: {path: m.gguf, quantization: int8}\n"
                           "  - {task: judge, name: verdicts, mode: pairwise, dataset: {path: x.jsonl}}\n"
                           "  - {task: train, name: student, dataset: {path: x.jsonl}, train: {epochs: 2}}\n";
  const auto identity = [&](std::size_t task, const std::vector<std::string>& overrides) {
    return Experiment(more, "e.yaml", overrides, built_in_tasks()).identity_yaml_of_task(task);
  };
  const auto same = [&](std::size_t task, const std::string& override) {
    return identity(task, {override}) == identity(task, {});
  };
  EXPECT_TRUE(same(0, "run.watchdog_seconds=60"));
  EXPECT_TRUE(same(0, "plan.device_memory=80GB"));
  EXPECT_TRUE(same(0, "output.directory=/scratch"));
  EXPECT_TRUE(same(0, "tasks.0.model.quantization_loss=1000"));
  EXPECT_FALSE(same(0, "tasks.0.model.quantization=int4"));
  EXPECT_FALSE(same(0, "tasks.0.model.kv_cache=fp8"));
  EXPECT_TRUE(same(0, "tasks.0.model.kv_cache=auto"));
  EXPECT_TRUE(same(1, "tasks.1.needs=[teacher]"));
  EXPECT_TRUE(same(1, "tasks.1.label=right"));
  EXPECT_FALSE(same(1, "tasks.1.max_prompt_length=64"));
  EXPECT_TRUE(same(2, "tasks.2.train.zero=0"));
  EXPECT_TRUE(same(2, "tasks.2.train.gradient_checkpointing=true"));
  EXPECT_TRUE(same(2, "tasks.2.train.memory_fraction=0.5"));
  EXPECT_FALSE(same(2, "tasks.2.train.epochs=3"));
}

// jobs/submit-array.sh gives each slice a name of its own; merge must still see one experiment.
TEST(Experiment, PartsOfAJobArrayShareTheirConfig) {
  const Experiment whole(kGood, "e.yaml", {}, built_in_tasks());
  const Experiment part(kGood, "e.yaml", {"name=array-3", "tasks.0.name=t", "tasks.0.slice=3/8"}, built_in_tasks());
  EXPECT_EQ(config_sha256(part.identity_yaml_of_task(0)), config_sha256(whole.identity_yaml_of_task(0)));
  EXPECT_NE(part.identity_yaml_of_task(0), whole.identity_yaml_of_task(0));
  const Experiment other(kGood, "e.yaml", {"tasks.0.top_k=8"}, built_in_tasks());
  EXPECT_NE(config_sha256(other.identity_yaml_of_task(0)), config_sha256(whole.identity_yaml_of_task(0)));
}

// A task waits for the task that writes its files, under every key and every spelling of the path; files of other runs
// have no such task.
TEST(Experiment, PathsBelowItsFolderAreNeeds) {
  const std::string here = std::filesystem::current_path().string();
  const std::string score = "  - {task: score, name: last, model: {path: r}, dataset: {path: \"";
  const std::string train = "  - {task: train, name: last, objective: distill, teacher: {results: ";
  struct Case {
    std::string task;
    bool waits;
  };
  const std::vector<Case> cases = {
      {score + "runs/quick/first.h5\"}}\n", true},
      {score + "./runs//quick/first.h5\"}}\n", true},
      {score + here + "/runs/quick/first.h5\"}}\n", true},
      {score + "runs/quick/fir*.h5\"}}\n", true},
      {score + "runs/*/first.h5\"}}\n", true},
      {score + "runs/quick/first/part-0.jsonl\"}}\n", true},
      {score + "runs/other/first.h5\"}}\n", false},
      {score + "runs/quick/second.h5\"}}\n", false},
      {score + "runs/quick/sec*.h5\"}}\n", false},
      {train + "runs/quick/first.h5}}\n", true},
      {train + "./runs/other/../quick/first.h5}}\n", true},
      {train + "elsewhere/first.h5}}\n", false},
      {"  - {task: generate, name: last, dataset: {path: d.jsonl}, guide: {model: {path: runs/quick/first}}}\n", true},
  };
  for (const Case& one : cases) {
    const std::string text = kGood + "    name: first\n" + one.task;
    const TaskNeeds needs = needs_of(Experiment(text, "e.yaml", {}, built_in_tasks()));
    EXPECT_EQ(needs, (TaskNeeds{{}, one.waits ? std::vector<std::size_t>{0} : std::vector<std::size_t>{}})) << one.task;
  }
}

// A path to the model of an earlier task means that task, like its name; a path that a later task writes is refused
// with its place.
TEST(Experiment, PathsOfEarlierTasksNameThem) {
  const std::string train = kGood + "  - {task: train, dataset: {path: d}}\n";
  const auto model_of = [&](const std::string& model, const std::string& head = "") {
    const std::string last =
        "  - {task: generate, " + (model.empty() ? "" : "model: {" + model + "}, ") + "dataset: {path: d}}\n";
    std::string text = train + last;
    if (!head.empty()) text.replace(text.find("m.gguf"), 6, head);
    return Experiment(text, "e.yaml", {}, built_in_tasks()).tasks()[2]->model_section();
  };
  for (const char* path : {"path: runs/quick/student", "path: ./runs/../runs/quick//student/"}) {
    const ModelSection model = model_of(path);
    EXPECT_EQ(model.task, "student") << path;
    EXPECT_EQ(model.placeholder().path, "m.gguf") << path;
  }
  EXPECT_EQ(model_of("path: runs/quick/other").task, "");
  EXPECT_EQ(model_of("path: runs/quick/student.checkpoints").task, "");
  EXPECT_EQ(model_of("path: runs/quick/teacher").task, "");  // which trains nothing
  const ModelSection adapted = model_of("path: base, adapter: runs/quick/student");
  EXPECT_EQ(adapted.task + "/" + adapted.adapter_task, "/student");
  EXPECT_EQ(adapted.placeholder().path + "/" + adapted.placeholder().adapter, "base/");
  EXPECT_EQ(model_of("path: base, adapter: runs/other/student").placeholder().adapter, "runs/other/student");
  const std::string score = "  - {task: score, name: last, dataset: {path: d}, score: {verifier: exact}, answers: ";
  for (const char* answers : {"texts", "runs/quick/texts.h5"}) {
    const Experiment experiment(
        kGood + "  - {task: generate, name: texts, dataset: {path: d}}\n" + score + answers + "}\n", "e.yaml", {},
        built_in_tasks());
    EXPECT_EQ(needs_of(experiment).back(), std::vector<std::size_t>{1});
    EXPECT_EQ(experiment.tasks()[2]->needs(), std::vector<std::string>{"texts"});
  }
  struct Case {
    std::string keys, place;
  };
  for (const Case& one :
       {Case{"dataset: {path: [d, runs/quick/student.h5]}", "e.yaml:8:51: tasks.1.dataset.path.1: student comes after"},
        Case{"dataset: {path: \"runs/*/stud*.h5\"}", "e.yaml:8:47: tasks.1.dataset.path: student comes after"},
        Case{"dataset: {path: runs/quick/a.h5}", "e.yaml:8:47: tasks.1.dataset.path: a is this task itself"},
        Case{"model: {path: runs/quick/student}, dataset: {path: d}",
             "e.yaml:8:45: tasks.1.model.path: student comes after"}}) {
    const std::string message =
        refusal(kGood + "  - {task: generate, name: a, " + one.keys + "}\n  - {task: train, dataset: {path: d}}\n");
    EXPECT_EQ(message.substr(0, one.place.size()), one.place) << message;
  }
  // Files kept from an earlier run belong to no task of this run.
  EXPECT_EQ(refusal(kGood + "  - {task: generate, name: a, dataset: {path: runs/quick/a.h5.previous-1}}\n"), "");
  std::string shared = train;
  shared.replace(shared.find("m.gguf"), 6, "runs/quick/student");
  EXPECT_NE(refusal(shared).find("tasks.0: the experiment's model.path: student comes after"), std::string::npos)
      << refusal(shared);
  EXPECT_NE(refusal(shared).find("tasks.1: the experiment's model.path: student is this task itself"),
            std::string::npos);
}

TEST(Experiment, OverridesReachEveryPlace) {
  const Experiment experiment(kGood, "e.yaml",
                              {"name=other", "layout.devices=cpu", "layout.shards_per_rank=3", "run.max_wall=00:00:30",
                               "model.dtype=f32", "tasks.0.name=t", "tasks.0.slice=1/2"},
                              built_in_tasks());
  EXPECT_EQ(experiment.config().name, "other");
  EXPECT_TRUE(experiment.config().layout.cpu_only);
  EXPECT_EQ(experiment.config().layout.shards_per_rank, 3);
  EXPECT_EQ(experiment.config().run.max_wall_seconds, 30.0);
  EXPECT_EQ(experiment.config().model.dtype, "f32");
  EXPECT_EQ(experiment.results_path(0), "runs/other/t.h5");
}

TEST(Experiment, NamesWhatIsWrong) {
  struct Case {
    std::vector<std::string> overrides;
    std::string where, what;
  };
  const std::vector<Case> cases = {
      {{"name='a b'"}, "name: ", "cannot name a folder"},
      {{"name=../up"}, "name: ", "cannot name a folder"},
      {{"name=."}, "name: ", "cannot name a folder"},
      {{"seed=-1"}, "seed: ", "-1 is out of range"},
      {{"model.dtype=fp32"}, "model.dtype: ", "did you mean f32?"},
      {{"layout.devices=cuda:3"}, "layout.devices: ", "numbers are written in brackets: [3]"},
      {{"model.quantization=int5"}, "model.quantization: ", "did you mean"},
      {{"model.quantization=int4", "model.quantization_group=48"},
       "model.quantization_group: ",
       "48 is not possible (known: auto, 0, 32, 64, 128)"},
      {{"model.quantization_group=32"}, "model.quantization_group: ", "without a quantization"},
      {{"layout.gpus_per_group=0"}, "layout.gpus_per_group: ", "0 is out of range"},
      {{"layout.devices=gpu"}, "layout.devices: ", "auto takes GPUs where there are some"},
      {{"layout.devices=cuda"}, "layout.devices: ", "(known: auto, cpu, or a list of GPUs such as [0, 1]); auto takes"},
      {{"layout.devices=0,1"}, "layout.devices: ", "numbers are written in brackets: [0, 1]"},
      {{"layout.devices=free"}, "layout.devices: ", "no GPU is chosen by its free memory"},
      {{"model.dtype=bfloat16"}, "model.dtype: ", "write bf16"},
      {{"model.dtype=int8"}, "model.dtype: ", "that is model.quantization: int8"},
      {{"model.quantization=8bit"}, "model.quantization: ", "write int8"},
      {{"model.quantization=awq"}, "model.quantization: ", "is read as it is"},
      {{"model.attention=flash_attention_2"}, "model.attention: ", "the hardware decides"},
      {{"run.schedule=round_robin"}, "run.schedule: ", "write static"},
      {{"tasks.0.task=inference"}, "tasks.0.task: ", "write generate"},
      {{"tasks.0.task=quiz"}, "tasks.0.task: ", "write exam"},
      {{"tasks.0.dataset=d.jsonl"}, "tasks.0.dataset: ", "write dataset: {path: d.jsonl}"},
      {{"layout=cpu"}, "layout: ", "(a map of further keys is expected: gpus_per_group, shares, devices"},
      {{"layout.devices=[]"}, "layout.devices: ", "the list is empty"},
      {{"layout.devices=[1, 1]"}, "layout.devices: ", "named twice"},
      {{"layout.devices=[-1]"}, "layout.devices.0: ", "-1 is out of range"},
      {{"layout.devices=[0]", "layout.shards_per_rank=2"}, "layout.shards_per_rank: ", "remove one of the two"},
      {{"layout.shards_per_rank=0"}, "layout.shards_per_rank: ", "0 is out of range"},
      {{"run.max_wall=90"}, "run.max_wall: ", "HH:MM:SS"},
      {{"run.max_wall=00:00:00"}, "run.max_wall: ", "HH:MM:SS"},
      {{"run.max_wall=01:60:00"}, "run.max_wall: ", "HH:MM:SS"},
      {{"run.schedule=dynamc"}, "run.schedule: ", "did you mean dynamic?"},
      {{"run.watchdog_seconds=-1"}, "run.watchdog_seconds: ", "out of range"},
      {{"tasks.0.task=teacher_logit"}, "tasks.0.task: ", "did you mean teacher_logits?"},
      {{"tasks.0.task=essay"},
       "tasks.0.task: ",
       "is not possible (known: teacher_logits, generate, judge, rollout, score, train, evaluate, exam)"},
      {{"tasks.0.name=a/b"}, "tasks.0.name: ", "cannot name a file"},
      {{"tasks.0.slice=4/4"}, "tasks.0.slice: ", "is not i/n"},
      {{"tasks.0.slice=1"}, "tasks.0.slice: ", "is not i/n"},
      {{"tasks.0.slice=-1/4"}, "tasks.0.slice: ", "is not i/n"},
      {{"tasks.0.slice=1/2/3"}, "tasks.0.slice: ", "is not i/n"},
      {{"tasks.0.max_length=0"}, "tasks.0.max_length: ", "0 is out of range"},
      {{"tasks.0.overflow=cut"}, "tasks.0.overflow: ", "known: truncate, window, error"},
      {{"tasks.0.stride=5"}, "tasks.0.stride: ", "stride without"},
      {{"tasks.0.overflow=window", "tasks.0.max_length=8", "tasks.0.stride=9"},
       "tasks.0.stride: ",
       "9 is more than max_length 8"},
      {{"tasks.0.top_k=0"}, "tasks.0.top_k: ", "0 is out of range"},
      {{"tasks.0.top_k=all"}, "tasks.0.top_k: ", "\"all\" is not a whole number"},
      {{"tasks.0.encoding=zip"}, "tasks.0.encoding: ", "known: plain, compact, sampled"},
      {{"tasks.0.encoding=compact", "tasks.0.logprob_dtype=f32"}, "tasks.0.logprob_dtype: ", "stores f16"},
      {{"tasks.0.tail_draws=3"}, "tasks.0.tail_draws: ", "without `encoding: sampled`"},
      {{"tasks.0.logprob_dtype=f64"}, "tasks.0.logprob_dtype: ", "known: f32, f16"},
      {{"tasks.0.unit_tokens=0"}, "tasks.0.unit_tokens: ", "0 is out of range"},
      {{"tasks.0.dataset.limit=-1"}, "tasks.0.dataset.limit: ", "-1 is out of range"},
      {{"tasks.0.dataset.messages=chat", "tasks.0.dataset.text=b"}, "tasks.0.dataset.messages: ", "another field"},
      {{"tasks.0.dataset.tokens=a", "tasks.0.dataset.text=b"}, "tasks.0.dataset.tokens: ", "both `text` and `tokens`"},
      {{"tasks.0.dataset.lengths=a"}, "tasks.0.dataset.lengths: ", "without `tokens`"},
      {{"tasks.0.dataset.tokens=a", "tasks.0.dataset.lengths=b", "tasks.0.dataset.offsets=c"},
       "tasks.0.dataset.offsets: ",
       "both `lengths` and `offsets`"},
      {{"tasks.0.dataset.path=[]"}, "tasks.0.dataset.path: ", "the list is empty"},
      {{"tasks.0.dataset.sources=[{path: a, weight: 1}]"},
       "tasks.0.dataset.path: ",
       "is given together with `sources`"},
      {{"tasks.0.dataset.seed=1"}, "tasks.0.dataset.seed: ", "is given without `sources`"},
      {{"tasks.0.dataset.paths=x"}, "tasks.0.dataset.paths: ", "did you mean path?"},
      {{"tasks.0.datset.path=x"}, "tasks.0.datset: ", "did you mean dataset?"},
      {{"output.dir=x"}, "output.dir: ", "unknown key"},
      {{"token=x"}, "token: ", "unknown key"},
  };
  for (const auto& [overrides, where, what] : cases) {
    SCOPED_TRACE(overrides.back());
    const std::string message = refusal(kGood, overrides);
    EXPECT_NE(message.find(": " + where), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;  // one fault, one message
  }
}

// For any other keys in the section, the message lists all keys that are allowed there.
TEST(Experiment, UnknownKeysAreAnsweredWithEveryKeyOfTheSection) {
  const std::string tasks =
      "name: a\nmodel: {path: m}\ntasks:\n"
      "  - {task: teacher_logits, dataset: {path: d}}\n"
      "  - {task: generate, name: b, dataset: {path: d}}\n"
      "  - {task: judge, name: c, dataset: {path: d}}\n";
  struct Case {
    std::string override, answer, known;
  };
  const std::vector<Case> cases = {
      {"tasks.0.dataset.mesages=x", "did you mean messages?",
       "known here: path, sources, stopping_strategy, seed, config, split, text, tokens, lengths, offsets, messages, "
       "tools, "
       "special_tokens, key, limit"},
      {"tasks.1.dataset.token=x", "did you mean tokens?", "special_tokens"},
      {"tasks.1.dataset.special_token=x", "did you mean special_tokens?", "messages"},
      {"model.lora_path=a", "did you mean adapter?", "quantization_loss"},
      {"model.quantization_grup=32", "did you mean quantization_group?", "quantization_loss"},
      {"model.quantisation_loss=32", "did you mean quantization_loss?", "quantization_group"},
      {"tasks.2.max_new_token=4", "did you mean max_new_tokens?", "read, combine"},
      {"tasks.2.promts=4", "did you mean prompts?", "fields, label, classes"},
      {"tasks.1.logit_bais=4", "did you mean logit_bias?", "stop, stop_tokens, ignore_eos"},
      {"tasks.1.stop_token=4", "did you mean stop_tokens?", "constraint"},
      {"plan.device_mem=4", "did you mean device_memory?", "known here: device_memory"},
      {"tasks.1.max_tokens=4", "did you mean max_new_tokens?", "max_prompt_length"},
      {"tasks.1.num_return_sequences=4", "did you mean n?", "best_of"},
      {"tasks.1.stop_token_ids=4", "did you mean stop_tokens?", ""},
      {"tasks.1.guided_json=a.json", "did you mean constraint?", ""},
      {"tasks.1.value_model=v", "did you mean guide?", ""},
      {"tasks.0.per_device_batch_size=4", "did you mean unit_tokens?", ""},
      {"tasks.0.batch_size=4", "did you mean unit_tokens?", ""},
      {"tasks.0.max_model_len=4", "did you mean max_length?", ""},
      {"tasks.0.max_new_tokens=4", "remove it", ""},  // the neighbour's key is of no help here
      {"model.torch_dtype=4", "did you mean dtype?", ""},
      {"model.model_name_or_path=4", "did you mean path?", ""},
      {"tensor_parallel_size=4", "did you mean layout.gpus_per_group?", ""},
      {"model.tensor_parallel_size=4", "did you mean layout.gpus_per_group?", ""},
      {"tasks.0.limit=4", "did you mean tasks.0.dataset.limit?", ""},
      {"output_dir=x", "did you mean output.directory?", ""},
      // Keys of other programs, in any section (core/foreign_names.cpp).
      {"layout.gpu_ids=[0,1]", "here that is layout.devices, a list", "known here: gpus_per_group"},
      {"layout.gpus=[0,1]", "here that is layout.devices, a list", ""},
      {"gpus_per_model=2", "here that is layout.gpus_per_group", ""},
      {"layout.num_gpus=2", "the number of ranks is the launcher's", ""},
      {"worker_id=0", "slices of a task (slice: 0/6)", ""},
      {"tasks.0.total_workers=6", "slices of a task (slice: 0/6)", ""},
      {"model.device_map=auto", "layout.gpus_per_group, where auto takes as many as it needs", ""},
      {"model.max_memory=x", "no GPU has a limit of its own", ""},
      {"distillation.dataset.max_samples=10", "tasks.0.dataset.limit", ""},
      {"run_id=run-42", "`answers`", ""},
      // Keys of a task at the top, or in another section.
      {"limit=10", "did you mean tasks.0.dataset.limit?", ""},
      {"max_samples=10", "did you mean tasks.0.dataset.limit?", ""},
      {"dataset.path=x", "did you mean tasks.0.dataset?", ""},
      {"temperature=1", "did you mean tasks.1.temperature?", ""},
      {"model.temperature=1", "did you mean tasks.1.temperature?", ""},
      {"model.load_in_8bit=true", "here that is model.quantization: int8", ""},
      {"model.load_in_4bit=true", "here that is model.quantization: int4", ""},
      {"attn_impl=eager", "here that is model.attention", ""},
      {"tasks.0.batch_size_per_gpu=8", "here that is train.global_batch", ""},
      {"use_parallel_execution=true", "here that is run.at_once", ""},
      {"resume_from_checkpoint=x", "the same command continues", ""},
      {"port=8000", "magister serve --listen", ""},
      {"model.trust_remote_code=true", "no code of a model is ever run", ""},
      {"tasks.1.num_beams=4", "best_of keeps", ""},
  };
  for (const auto& [override, answer, known] : cases) {
    SCOPED_TRACE(override);
    const std::string message = refusal(tasks, {override});
    EXPECT_NE(message.find("unknown key"), std::string::npos) << message;
    EXPECT_NE(message.find(answer), std::string::npos) << message;
    EXPECT_NE(message.find(known), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// For a task's key at the top level, or in a section of another program, the message gives its right place in this
// file.
TEST(Experiment, KeysOfTasksElsewhere) {
  const std::string text =
      "name: a\nmodel: {path: m}\ntasks:\n"
      "  - {task: train, name: s, dataset: {path: d}}\n"
      "  - {task: generate, name: b, dataset: {path: d}, guide: {model: {path: v}}}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"epochs=3", ": epochs: |did you mean tasks.0.train.epochs?"},
      {"learning_rate=1e-4", "did you mean tasks.0.train.optimizer.lr?"},
      {"train.epochs=3", ": train: |did you mean tasks.0.train?"},
      {"dataset.limit=3", "did you mean tasks.0.dataset?"},
      {"temperature=0.5", "did you mean tasks.1.temperature?"},
      {"memory_fraction=0.8", "did you mean tasks.0.train.memory_fraction?"},
      {"sync_batch_norm=true", "did you mean tasks.0.train.sync_batch_norm?"},
      {"training.micro_batch_size=4",
       ": training.micro_batch_size: |training is no section here|did you mean tasks.0.train.micro_batch?"},
      {"training_config.learning_rate=1", "did you mean tasks.0.train.optimizer.lr?"},
      {"system.attn_impl=eager", ": system.attn_impl: |here that is model.attention"},
      {"system.use_parallel_execution=true", "here that is run.at_once"},
      {"gpu_config.gpu_ids=[0]", "here that is layout.devices"},
      {"data_collection.samples_per_example=4", "remove it"},  // no rollout task in this file
      {"generation.batch_size=8", ": generation: |max_sequences"},
      {"experiment.name=x", ": experiment.name: |did you mean name?"},
      {"experiment.seed=3", ": experiment.seed: |did you mean seed?"},
      {"algos.PITA.batch_size=3", "here that is a task of its own"},
      {"num_workers=4", "read and tokenise the records"},
      {"tasks.0.train.num_workers=4", "read and tokenise the records"},
      {"tasks.0.train.optimizer.name=adamw", "remove it"},
      {"tasks.0.train.evaluate.steps=5", "did you mean every?"},
      {"tasks.1.guide=v", "tasks.1.guide: |write guide: {model: {path: v}}"},
      {"backend=nccl", "MPI joins the ranks"},
      {"model_name=gpt2", "here that is model.path"},
      {"run.timeout=30", "here that is run.max_wall"},
      {"run.webhook=http://x", "nothing is sent anywhere"},
      {"run.metrics_port=9090", "magister top RUN"},
      {"tasks.1.answers=s", "generate by dataset.task"},
      {"tasks.0.train.dtype=bf16", "did you mean precision?"},
      {"tasks.0.train.dropout=0.1", "no training has dropout"},
      {"tasks.0.dataset.validation=v.jsonl", "here that is train.evaluate.dataset"},
      {"tasks.0.dataset.train_file=t.jsonl", "did you mean path?"},
      {"tasks.0.output_dir=x", "did you mean output.directory?"},
      {"tasks.0.run_name=x", "did you mean name at the top of the file?"},
      {"tasks.0.loss=x", "did you mean objective?"},
      {"frobnicate.deeper=1", ": frobnicate: |remove it"},
  };
  for (const auto& [override, answers] : cases) {
    SCOPED_TRACE(override);
    const std::string message = refusal(text, {override});
    for (std::size_t begin = 0, end = 0; end < answers.size(); begin = end + 1) {
      end = std::min(answers.find('|', begin), answers.size());
      EXPECT_NE(message.find(answers.substr(begin, end - begin)), std::string::npos) << message;
    }
    EXPECT_EQ(message.find("further faults"), std::string::npos) << message;
  }
}

// One argument, one message: not one for each task that a matrix makes.
TEST(Experiment, ArgumentsOfRepeatedTasks) {
  const std::string text =
      "name: a\nmodel: {path: m}\ntasks:\n  - matrix: {t: [1, 2, 3]}\n    tasks:\n"
      "      - {task: generate, name: \"g-{t}\", temperature: \"{t}\", dataset: {path: d}}\n";
  const std::string message = refusal(text, {"tasks.0.tasks.0.n=0", "tasks.0.tasks.0.priority=3"});
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
  EXPECT_NE(message.find("tasks.0.priority: unknown key"), std::string::npos) << message;
}

// An argument that sets a model which no task takes would change nothing.
TEST(Experiment, ModelThatNoTaskTakes) {
  const std::string own =
      "name: a\ntasks:\n  - {task: train, model: {config: c, tokenizer: t}, dataset: {path: d}}\n"
      "  - {task: score, name: s, dataset: {path: d}, score: {verifier: exact}}\n";
  const std::string message = refusal(own, {"model.path=/models/mine"});
  EXPECT_NE(message.find("argument model.path=/models/mine: model.path: no task uses it"), std::string::npos)
      << message;
  EXPECT_NE(message.find("change tasks.0.model in the file instead"), std::string::npos) << message;
  EXPECT_EQ(refusal(own + "model: {path: /models/mine}\n"), "");  // in a file it waits for a task
  EXPECT_EQ(refusal(own + "  - {task: teacher_logits, dataset: {path: d}}\n", {"model.path=/models/mine"}), "");
}

// A key that is allowed only under a condition is refused once, naming the condition, and is not in the resolved
// experiment.
TEST(Experiment, KeysUnderAConditionSayWhich) {
  const std::string judged = "name: a\nmodel: {path: m}\ntasks:\n  - {task: judge, dataset: {path: d}}\n";
  for (const auto& [override, words] : std::vector<std::pair<std::string, std::string>>{
           {"tasks.0.max_new_tokens=4", "is given without `method: decode`"},
           {"tasks.0.read=word", "is given without `method: decode`"},
           {"model.quantization_group=32", "a group is given without a quantization"},
           {"model.quantization_loss=9", "a loss is asked for without"}}) {
    const std::string message = refusal(judged, {override});
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  const std::string plain = resolved(judged);
  EXPECT_EQ(plain.find("max_new_tokens"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("quantization_group"), std::string::npos) << plain;
  EXPECT_NE(refusal(kGood, {"tasks.0.dataset.special_tokens=text"}).find("is given without `messages`"),
            std::string::npos);
}

TEST(Experiment, NamesPlacesInTheFile) {
  EXPECT_EQ(refusal("name: a\ntasks:\n  - task: teacher_logits\n    dataset: {path: d}\n"),
            "e.yaml:3:5: tasks.0.model.path: the key is missing (there is no default for it); add it with a text");
  EXPECT_EQ(refusal("name: a\nmodel: {path: m}\ntasks:\n  - task: teacher_logits\n"),
            "e.yaml:4:5: tasks.0.dataset.path: the key is missing (there is no default for it); add it with a text");
  EXPECT_EQ(refusal("name: a\nmodel: {path: m}\ntasks:\n  - {dataset: {path: d}}\n"),
            "e.yaml:4:5: tasks.0.task: the key is missing (there is no default for it); add it with one of "
            "teacher_logits, generate, judge, rollout, score, train, evaluate, exam");
  const std::string twice = refusal(kGood + "  - {task: teacher_logits, dataset: {path: d}}\n");
  EXPECT_TRUE(twice.starts_with("e.yaml:8:5: tasks.1.name: the name teacher is taken by tasks.0")) << twice;
  const std::string many = refusal(
      "name: a b\nmodel: {pth: m}\nlayout: {devices: gpus}\ntasks:\n  - task: teacher_logits\n    topk: 5\n    "
      "dataset: {path: 3, limit: yes}\n");
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 5) << many;
}

// `model: {task: ...}` and a distillation's keys, with their places.
TEST(Experiment, ModelsOfEarlierTasks) {
  const std::string train = "  - {task: train, dataset: {path: d}}\n";
  const auto uses = [](const std::string& model) {
    return "  - {task: generate, model: {" + model + "}, dataset: {path: d}}\n";
  };
  const auto model_of = [](const std::string& text, std::size_t task) {
    return Experiment(text, "e.yaml", {}, built_in_tasks()).tasks()[task]->model_section();
  };
  const std::string second = "  - {task: train, name: second, model: {task: student}, dataset: {path: d}}\n";
  const ModelSection section = model_of(kGood + train + second + uses("task: second, dtype: f32"), 3);
  EXPECT_EQ(section.path, "runs/quick/second");
  EXPECT_EQ(section.begins_as, "m.gguf");
  EXPECT_EQ(section.placeholder().path, "m.gguf");
  EXPECT_EQ(section.dtype, "f32");
  struct Case {
    std::string tasks, what;
  };
  const std::string nobody = "(its weights are needed); put that task before this one, or name a folder with path";
  for (const Case& one : std::vector<Case>{
           {train + uses("task: studnt"), "named studnt (its weights are needed); did you mean student?"},
           {uses("task: student"), "no train task before this one is named student " + nobody},
           {uses("task: student") + train,
            "student comes after this task (its weights are needed when this task begins)"},
           {train + uses("task: teacher"), "teacher is a teacher_logits task (the weights of a train task are needed)"},
           {"  - {task: train, model: {task: student}, dataset: {path: d}}\n", "student is this task itself"}}) {
    const std::string message = refusal(kGood + one.tasks);
    EXPECT_NE(message.find("model.task: "), std::string::npos) << message;
    EXPECT_NE(message.find(one.what), std::string::npos) << message;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
  }
  const std::string both = refusal(kGood + train + uses("task: student, path: m"));
  EXPECT_NE(both.find("tasks.2.model.path: is given together with `task`"), std::string::npos) << both;
  EXPECT_NE(refusal("name: a\nmodel: {task: student}\ntasks:\n" + train).find("model.task"), std::string::npos);
}

TEST(Experiment, WallTimes) {
  EXPECT_EQ(parse_wall_time("00:00:01"), 1.0);
  EXPECT_EQ(parse_wall_time("1:02:03"), 3723.0);
  EXPECT_EQ(parse_wall_time("123:00:00"), 442800.0);
  for (const char* bad : {"", "1", "1:2", "01:02", "00:00:00", "1:2:3", "1:60:00", "1:00:60", "a:00:00", "-1:00:00",
                          "1:00:00:00", " 1:00:00"}) {
    EXPECT_FALSE(parse_wall_time(bad)) << bad;
  }
}

}  // namespace experiment_test
}  // namespace magister
