"""What end-to-end tests share: a tiny Llama with random weights and a byte-level tokenizer (made by the trusted programs,
0.2 s to load), a small data set of uneven records, and runs of the real program under mpirun.
"""
import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PROGRAM = os.environ["MAGISTER"]
SMOLLM2 = ROOT / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = ("plan unit shard logit the of and a über año мир 数据 café 12 345 if(x) return; \"quoted\" end. Some words repeat and "
         "others do not: tokenizer, teacher, student, judge.").split()


ORACLE = pathlib.Path(__file__).resolve().parent.parent / "oracle"


def make_model(folder, seed=0, **changes):
    """A folder as Hugging Face saves it: config.json, model.safetensors, tokenizer.json. The weights are tiny_models.fill()'s: logits vary
    by several nats, so that a product or a rotation that is left out moves them by more than any tolerance. The same model is made once
    a build, for importing transformers takes five seconds and two dozen tests need nothing else of it."""
    if "MAGISTER_BUILD_DIR" not in os.environ:  # beside a GPU there is no build, only what it made
        return save_model(pathlib.Path(folder), seed, changes)
    made_of = [pathlib.Path(__file__).read_bytes(), (ORACLE / "tiny_models.py").read_bytes(), importlib.metadata.version("transformers").encode(),
               json.dumps([seed, changes], sort_keys=True).encode()]
    kept = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/tiny-models" / hashlib.sha256(b"\0".join(made_of)).hexdigest()
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        making = pathlib.Path(tempfile.mkdtemp(dir=kept.parent))
        save_model(making, seed, changes)
        try:
            making.rename(kept)
        except OSError:  # another test was faster
            shutil.rmtree(making)
    return pathlib.Path(shutil.copytree(kept, folder, dirs_exist_ok=True))


def save_model(folder, seed, changes):
    sys.path.insert(0, str(ORACLE))
    import tiny_models
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<|end|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    settings = dict(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                    num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=4096, tie_word_embeddings=False)
    model = LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()
    tiny_models.fill(model, seed)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def make_counter(folder, model, tokenizer):
    """The model with larger logits for digits: it writes numbers among other things."""
    from safetensors.torch import load_file, save_file
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][[tokenizer.token_to_id(digit) for digit in "0123456789"]] *= 2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def make_records(path, count, seed=0, longest=60):
    """Uneven lengths, an empty record now and then, one record several times longer than a unit."""
    source = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for index in range(count):
            length = 0 if index % 17 == 5 else source.randint(1, longest)
            if index == count // 3:
                length = 6 * longest
            text = " ".join(source.choice(WORDS) for _ in range(length))
            file.write(json.dumps({"id": f"record-{index}", "text": text}, ensure_ascii=index % 2 == 0) + "\n")
    return path


EXPERIMENT = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    dataset: {{path: {data}, key: id}}
    max_length: 512
    top_k: 8
    unit_tokens: 64
"""

# Texts are written and judged in one job; five records, for the sixth is empty and nothing can follow it.
CHAIN = """name: {name}
seed: 5
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id, limit: 5}}
    max_new_tokens: 9
    max_prompt_length: 512
    n: 4
  - task: judge
    dataset: {{path: {data}, key: id, limit: 5}}
    answers: answers
    mode: simpleqa
    prompt: {{user: "{{{{ text }}}} {{{{ answer }}}}"}}
"""


class Refusals:
    """For a test case with a `world`."""

    def refused(self, name, code, *words, overrides=()):
        """The run ends with the code and says the words, and no results stand there."""
        done = self.world.run(name, 0, *overrides)
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(self.world.results(name).exists())
        return done.stderr


class World:
    """A folder with model, data set and experiments; the files of results are <folder>/runs/<name>/<results>."""

    def __init__(self, folder, records=120, model=None, text=EXPERIMENT, results=("teacher.h5",)):
        self.text, self.names = text, results
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = model or make_model(self.folder / "model")
        self.data = make_records(self.folder / "data.jsonl", records)
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
                            "OMPI_MCA_btl_base_warn_component_unused": "0"}

    def experiment(self, name):
        path = self.folder / f"{name}.yaml"
        path.write_text(self.text.format(name=name, runs=self.folder / "runs", model=self.model, data=self.data))
        return path

    def results(self, name):
        """The last file that the run completes."""
        return self.folder / "runs" / name / self.names[-1]

    def command(self, name, ranks, *arguments):
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        return [*launcher, PROGRAM, "run", str(self.experiment(name)), *map(str, arguments)]

    def start(self, name, ranks, *arguments, **environment):
        """Its own process group, so that a test can kill all of it."""
        return subprocess.Popen(self.command(name, ranks, *arguments), env={**self.environment, **environment}, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def run(self, name, ranks, *arguments, seconds=1800, **environment):
        """-> CompletedProcess; never raises for the exit code. Nothing of the job is left: mpirun ends before the ranks that it kills have
        ended, and until then they hold locks and may still finish a write."""
        with self.start(name, ranks, *arguments, **environment) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode != 0:
            wait_until(lambda: not left_of(process))
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def interrupted(self, point, number, name, ranks, *arguments, **environment):
        """A run whose ranks all get the signal while one of them stands at the fail point -> CompletedProcess. However late this test looks,
        the run is not yet further."""
        process = self.start(name, ranks, *arguments, **environment, MAGISTER_FAIL_POINT=f"{point}:stop")
        wait_until(lambda: stopped_ranks(process) or process.poll() is not None)
        for pid in ranks_of(process):
            os.kill(pid, number)
        output, errors = let_go(process)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def complete(self, name, ranks, *arguments, **environment):
        """Runs to the end -> sha256 of every file of results."""
        result = self.run(name, ranks, *arguments, **environment)
        assert result.returncode == 0, f"{name}, {ranks} ranks: {result.returncode}\n{result.stderr[-3000:]}"
        return self.sha256(name)

    def sha256(self, name):
        return [hashlib.sha256(self.results(name).with_name(file).read_bytes()).hexdigest() for file in self.names]

    def forget(self, name):
        shutil.rmtree(self.folder / "runs" / name, ignore_errors=True)


def ranks_of(process):
    """Process ids of the program below an mpirun (or the process itself when it is the program)."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.path.realpath(entry / "exe") == os.path.realpath(PROGRAM) and os.getsid(int(entry.name)) == process.pid:
                    found.append(int(entry.name))
            except (OSError, ProcessLookupError):
                pass
    return sorted(found)


def stat_of(path):
    """-> (state, session) of a process or thread, as proc(5) says; of one that is gone ("X", 0)."""
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[3])


def stopped_ranks(process):
    """Those of ranks_of() that stand still, by a fail point with the action `stop` or by a signal."""
    return [pid for pid in ranks_of(process) if stat_of(pathlib.Path(f"/proc/{pid}"))[0] == "T"]


def let_go(process, seconds=1800):
    """Wakes whoever has stopped or stops yet, until the run ends -> (output, errors)."""
    deadline = time.monotonic() + seconds
    while True:
        for pid in stopped_ranks(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        try:
            return process.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise


def threads_of(entry):
    try:
        return list((entry / "task").iterdir())
    except OSError:
        return []


def left_of(process):
    """Process ids of the run's session, mpirun's own among them, with a thread that has not ended: who is being killed has no /proc/PID/exe any
    more, but still files and locks."""
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and stat_of(entry)[1] == process.pid
            and any(stat_of(thread)[0] not in "ZX" for thread in threads_of(entry))]


def wait_until(condition, seconds=600, pause=0.02):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        time.sleep(pause)
    return value
