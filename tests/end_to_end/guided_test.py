"""generate.guide from outside: greedy texts and KL equal transformers' two models with the formulas in numpy; a star graph built by hand has the
closed forms; multiplier 0 is the reference to the bit; ranks, kills, shards and budgets change nothing; bad input is refused.
"""
import hashlib
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import preference_test
import score_test
import tiny_world

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0]

# Four GPUs that have a name, a number and memory.
PRETENDED_GPUS = """
#include <stdlib.h>
#include <string.h>
static size_t total(void) { return strtoull(getenv("PRETENDED_GPU_BYTES"), 0, 10); }
int cudaGetDeviceCount(int *count) { return *count = 4, 0; }
int cudaGetDeviceProperties(char *properties, int device) {
  memset(properties, 0, 400);
  strcpy(properties, "pretended");
  properties[256] = (char)(device + 1);     /* the UUID's first byte */
  *(size_t *)(properties + 288) = total();  /* totalGlobalMem */
  *(int *)(properties + 360) = 9;           /* major */
  return 0;
}
int cudaGetDeviceProperties_v2(char *properties, int device) { return cudaGetDeviceProperties(properties, device); }
"""


def softplus(x):
    return numpy.logaddexp(0, x)


def offsets(form, m, z):
    """z: [candidates, numbers of the head]"""
    if form == "histogram":
        atoms = numpy.linspace(0, 1, z.shape[1])
        return numpy.logaddexp.reduce(z - numpy.logaddexp.reduce(z, axis=1, keepdims=True) + m * atoms, axis=1)
    return softplus(m + z[:, 0]) - softplus(z[:, 0]) if form == "bernoulli" else m * z[:, 0]


class Guided(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1)
        cls.model = cls.world.model
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(6):
                text = " ".join(tiny_world.WORDS[index:2 * index + 3] * (1 + 3 * (index % 2)))
                file.write(json.dumps({"id": f"r{index}", "text": text}) + "\n")
        cls.records = [json.loads(line)["text"] for line in cls.world.data.read_text().splitlines()]
        cls.tokenizer = Tokenizer.from_file(str(cls.model / "tokenizer.json"))
        cls.reference = AutoModelForCausalLM.from_pretrained(cls.model, dtype=torch.float32).eval()
        vocabulary = cls.reference.config.vocab_size
        small = dict(vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None)
        cls.value = {name: score_test.make_classifier(cls.folder / name, cls.model / "tokenizer.json", "llama", {**small, "num_labels": labels}, seed=7)
                     for name, labels in (("value", 1), ("bins", 11))}

    def command(self, name, tasks, ranks=0, shards=1):
        path = self.folder / f"{name}.yaml"
        whole = HEAD.replace("devices: cpu", f"devices: cpu, shards_per_rank: {shards}").format(name=name, runs=self.folder / "runs", model=self.model)
        entry = {"dataset": {"path": str(self.world.data), "key": "id"}, "max_prompt_length": 512}
        path.write_text(whole + "".join(f"  - {json.dumps({'task': 'generate', **entry, **task})}\n" for task in tasks))
        return [*(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []), tiny_world.PROGRAM, "run", str(path)]

    def start(self, command, **environment):
        return subprocess.run(command, env={**self.world.environment, **environment}, cwd=self.folder, capture_output=True, text=True, timeout=600)

    def run_it(self, name, tasks, ranks=0, shards=1, **environment):
        """-> {task: path of its results}"""
        done = self.start(self.command(name, tasks, ranks, shards), **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.stderr = done.stderr
        return {task.get("name", "answers"): self.folder / "runs" / name / f"{task.get('name', 'answers')}.h5" for task in tasks}

    def guide(self, model="value", **keys):
        return {"model": {"path": str(self.folder / model)}, **keys}

    def texts(self, path):
        with h5py.File(path) as file:
            offset = file["samples/offset"][:]
            kl = file["generate/guide_kl"][:] if "generate/guide_kl" in file else [None] * offset[-1]
            return [(file["tokens/id"][a:b].tolist(), file["generate/logprob"][a:b].tolist(), list(kl[a:b])) for a, b in zip(offset, offset[1:])]

    def by_transformers(self, prompt, count, model, form, m, candidates, penalty, reference=None):
        """Tokens that the value model has no row for are as if the reference had none, either."""
        ids, kl = list(prompt), []
        value, reference = self.value[model], reference or self.reference
        with torch.no_grad():
            for _ in range(count):
                logits = reference(torch.tensor([ids])).logits[0, -1].double().numpy()
                logits[value.config.vocab_size:] = -numpy.inf
                seen = sorted(set(ids))
                logits[seen] = numpy.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
                best = numpy.argsort(-logits, kind="stable")[:candidates]
                hidden = value.model(torch.tensor([ids + [int(one)] for one in best])).last_hidden_state[:, -1]
                f = offsets(form, m, value.score(hidden).double().numpy())
                logp = logits[best] - numpy.logaddexp.reduce(logits)
                logq = logp + f - numpy.logaddexp.reduce(logp + f)
                kl.append(float((numpy.exp(logq) * (logq - logp)).sum()))
                ids.append(int(best[numpy.argmax(logits[best] + f)]))
        return ids[len(prompt):], kl

    def test_greedy_texts_and_kl_are_those_of_transformers(self):
        cases = {"logit": ("value", "logit", 1.5, 20, 1.0), "bernoulli": ("value", "bernoulli", 4.0, 7, 1.0), "expectation": ("value", "expectation", 0.25, 20, 1.3),
                 "histogram": ("bins", "histogram", 6.0, 20, 1.0)}
        tasks = [{"name": name, "temperature": 0, "max_new_tokens": 9, "ignore_eos": True, "repetition_penalty": penalty,
                  "guide": self.guide(model, form=form, multiplier=m, candidates=candidates)} for name, (model, form, m, candidates, penalty) in cases.items()]
        paths = self.run_it("oracle", [*tasks, {"name": "plain", "temperature": 0, "max_new_tokens": 9, "ignore_eos": True}])
        said = self.stderr
        plain = [ids for ids, *_ in self.texts(paths["plain"])]
        worst = 0
        for name, case in cases.items():
            got = self.texts(paths[name])
            for record, (ids, _, kl) in zip(self.records, got):
                want_ids, want_kl = self.by_transformers(self.tokenizer.encode(record).ids, 9, *case)
                self.assertEqual(ids, want_ids, name)
                worst = max(worst, numpy.abs(numpy.array(kl) - want_kl).max())
            self.assertNotEqual([ids for ids, *_ in got], plain, f"{name} guides nothing")
        print(f"largest difference of a KL to transformers': {worst:.2e} nats")
        self.assertLess(worst, 5e-6)
        more = self.run_it("more", [{"name": f"m{10 * m:.0f}", "max_new_tokens": 1, "guide": self.guide(multiplier=m)} for m in (0.5, 1, 2, 4)])
        firsts = numpy.array([[kl[0] for *_, kl in self.texts(path)] for path in more.values()])
        self.assertTrue((numpy.diff(firsts, axis=0) > 0).all(), "on one row KL grows with the multiplier")
        reported = re.findall(r"reference: ([0-9.]+) nats a token, ([0-9.]+) a text", said)
        self.assertEqual(len(reported), len(cases))
        mean = numpy.concatenate([kl for *_, kl in self.texts(paths["logit"])]).mean()
        self.assertAlmostEqual(float(reported[0][0]), mean, delta=1e-6)

    def test_tables_of_one_tokenizer_with_other_paddings(self):
        """A reference with more rows than its value model (Qwen2.5 of 7B and 0.5B), and the other way round; the tokenizer's file is written otherwise."""
        rows = self.reference.config.vocab_size + 64
        wide = tiny_world.make_model(self.folder / "wide", vocab_size=rows)
        tokenizer = json.loads((wide / "tokenizer.json").read_text())
        tokenizer["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
        (wide / "tokenizer.json").write_text(json.dumps(tokenizer, indent=2))
        self.value["wide-value"] = score_test.make_classifier(self.folder / "wide-value", wide / "tokenizer.json", "llama", seed=7, changes=dict(
            vocab_size=rows, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, num_labels=1))
        reference = AutoModelForCausalLM.from_pretrained(wide, dtype=torch.float32).eval()
        cases = {"fewer": ("value", "logit", 1.5, 20, 1.0), "all": ("value", "logit", 1.5, rows - 64, 1.3), "more": ("wide-value", "logit", 1.5, 20, 1.0)}
        tasks = [{"name": name, "temperature": 0, "max_new_tokens": 7, "ignore_eos": True, "repetition_penalty": penalty, "model": {"path": str(self.model if name == "more" else wide), "dtype": "f32"},
                  "guide": self.guide(model, form=form, multiplier=m, candidates=candidates)} for name, (model, form, m, candidates, penalty) in cases.items()]
        paths = self.run_it("paddings", [*tasks, {"name": "plain", "temperature": 0, "max_new_tokens": 7, "ignore_eos": True, "model": {"path": str(wide), "dtype": "f32"}}], ranks=2)
        self.assertTrue(any(id >= rows - 64 for ids, *_ in self.texts(paths["plain"]) for id in ids), "rows beyond the value model's would show nothing")
        for name, case in cases.items():
            for record, (ids, _, kl) in zip(self.records, self.texts(paths[name])):
                want_ids, want_kl = self.by_transformers(self.tokenizer.encode(record).ids, 7, *case, reference=None if name == "more" else reference)
                self.assertEqual(ids, want_ids, name)
                self.assertLess(numpy.abs(numpy.array(kl) - want_kl).max(), 1e-5)

    def star(self, arms, right, wrong):
        """A reference that takes any of `arms` tokens, and a value model that says `right` of the first and `wrong` of all others. Nothing but the
        newest token's embedding counts; it is long, so that the norm's epsilon is below f32's rounding."""
        tokens = list(range(40, 40 + arms))
        for name, source in (("reference", self.world.model), ("oracle", self.folder / "value")):
            folder = self.folder / f"star-{name}"
            shutil.copytree(source, folder, dirs_exist_ok=True)
            weights = load_file(folder / "model.safetensors")
            for key, weight in weights.items():
                if "o_proj" in key or "down_proj" in key:
                    weight.zero_()
                elif "norm" in key:
                    weight.fill_(1)
            embedding = weights["model.embed_tokens.weight"].zero_()
            size = embedding.shape[1]
            if name == "reference":
                embedding.fill_(100)
                weights["lm_head.weight"].fill_(-50 / size)[tokens] = 50 / size
            else:
                embedding[:, 1] = 100
                embedding[tokens[0], :2] = torch.tensor([100.0, 0.0])
                weights["score.weight"].zero_()[0, :2] = torch.tensor([right, wrong]) / size ** 0.5
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return tokens[0]

    def test_a_star_graph_has_the_closed_forms(self):
        def win(d, right):  # against a text of the reference, drawn with sigmoid(difference of rewards), 5 between right and wrong
            s = 1 / (1 + math.exp(-5))
            return 0.5 / d + (1 - 1 / d) * s if right else (1 - s) / d + (1 - 1 / d) * 0.5
        worst, model = 0, self.model
        try:
            for d in (3, 5):
                wins = win(d, True), win(d, False)
                for kind, (right, wrong) in {"true": (1.0, 0.0), "pairs": tuple(math.log(p / (1 - p)) for p in wins)}.items():
                    token = self.star(d, right, wrong)
                    self.model = self.folder / "star-reference"
                    forms = ["logit"] if kind == "true" else ["logit", "bernoulli"]
                    tasks = [{"name": f"{form}-{m}", "max_new_tokens": 1, "ignore_eos": True, "top_logprobs": d, "n": 300 if m == 1 else 1, "dataset": {"path": str(self.world.data), "limit": 2},
                              "guide": self.guide("star-oracle", form=form, multiplier=m)} for form in forms for m in (1, 4, 10)]
                    for name, path in self.run_it(f"star{d}-{kind}", tasks).items():
                        form, m = name.split("-")[0], float(name.split("-")[1])
                        a, b = ((1 - p + p * math.exp(m) for p in wins) if form == "bernoulli" else (math.exp(m * right), math.exp(m * wrong)))
                        q = a / (a + (d - 1) * b)
                        if kind == "true":
                            self.assertAlmostEqual(q, math.exp(m) / (math.exp(m) + d - 1), delta=1e-12)
                        kl = q * math.log(q * d) + (1 - q) * math.log((1 - q) * d / (d - 1))
                        got = self.texts(path)
                        worst = max(worst, *(abs(one - kl) for *_, text in got for one in text))
                        if m == 1:
                            share = numpy.mean([ids[0] == token for ids, *_ in got])
                            self.assertLess(abs(share - q), 4 * (q * (1 - q) / len(got)) ** 0.5, name)
        finally:
            self.model = model
        print(f"largest difference of a KL to the closed form: {worst:.2e} nats")
        self.assertLess(worst, 1e-6)

    def test_multiplier_zero_is_the_reference(self):
        task = {"max_new_tokens": 12, "n": 2, "temperature": 0.9, "top_p": 0.95, "top_logprobs": 3}
        paths = self.run_it("zero", [{"name": "plain", **task}, {"name": "zero", "guide": self.guide(multiplier=0, candidates=1), **task}])
        with h5py.File(paths["plain"]) as plain, h5py.File(paths["zero"]) as zero:
            for column in ("tokens/id", "generate/logprob", "generate/top_logprob", "generate/text"):
                self.assertEqual(plain[column][()].tobytes() if column != "generate/text" else list(plain[column]),
                                 zero[column][()].tobytes() if column != "generate/text" else list(zero[column]))
            self.assertEqual(set(zero["generate/guide_kl"][:]), {0.0})
            self.assertNotIn("guide_kl", plain["generate"])

    def test_same_bytes_for_ranks_kills_and_budgets(self):
        task = {"max_new_tokens": 20, "n": 2, "best_of": 3, "repetition_penalty": 1.2, "top_logprobs": 2, "guide": self.guide(multiplier=2.0, form="bernoulli")}
        digest = lambda path: hashlib.sha256(path["answers"].read_bytes()).hexdigest()
        first = self.run_it("same", [task], ranks=1)
        want, texts = digest(first), self.texts(first["answers"])
        self.assertTrue(all(len(kl) == len(ids) and min(kl) >= 0 for ids, _, kl in texts))
        means = [numpy.mean(logprob) for _, logprob, _ in texts]
        self.assertTrue(all(a >= b for a, b in zip(means[::2], means[1::2])))
        for ranks in (2, 4):
            self.world.forget("same")
            self.assertEqual(digest(self.run_it("same", [task], ranks=ranks)), want)
        for point in ("generate.pass@8", "task.pack.begin"):
            self.world.forget("same")
            self.assertNotEqual(self.start(self.command("same", [task]), MAGISTER_FAIL_POINT=f"{point}:kill").returncode, 0)
            self.assertEqual(digest(self.run_it("same", [task], ranks=2)), want, point)
        with h5py.File(first["answers"]) as file:
            self.assertNotEqual(file.attrs["guide_model_sha256"], file.attrs["model_sha256"])
        # Another value model in the same place is another identity.
        kept = load_file(self.folder / "value/model.safetensors")
        save_file({**kept, "score.weight": -kept["score.weight"]}, self.folder / "value/model.safetensors", metadata={"format": "pt"})
        try:
            other = self.start(self.command("same", [task]))
        finally:
            save_file(kept, self.folder / "value/model.safetensors", metadata={"format": "pt"})
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("guide_model_sha256", other.stderr)
        for budget in ({"max_sequences": 2}, {"token_budget": 21}):
            self.assertEqual(self.texts(self.run_it("budget", [{**task, **budget}])["answers"]), texts)
            self.world.forget("budget")
        shards = self.texts(self.run_it("shards", [task], shards=3)["answers"])
        self.assertEqual([ids for ids, *_ in shards], [ids for ids, *_ in texts])
        checked = self.start([tiny_world.PROGRAM, "check", str(first["answers"])])
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_on_a_gpus_code(self):
        """Both models' kernels, run on the host: texts as the CPU's, the same bytes on two ranks, from a group of two over again, and where a pass had no memory."""
        task = {"max_new_tokens": 5, "temperature": 0, "guide": self.guide(multiplier=2.0, candidates=4)}
        want = self.texts(self.run_it("gpu-cpu", [task])["answers"])
        on_host, points = {"MAGISTER_GPU_CODE_ON_HOST": "1"}, {"MAGISTER_FAIL_POINT": ",".join(["guide.pass.memory@1:enospc"] * 3)}
        alone = self.run_it("gpu-alone", [task], **on_host)["answers"]
        texts = self.texts(alone)
        self.assertEqual([ids for ids, *_ in texts], [ids for ids, *_ in want])
        worst = max(abs(a - b) for one, other in zip(texts, want) for a, b in zip(one[2], other[2]))
        print(f"largest difference of a KL from the CPU's path: {worst:.1e} nats")
        self.assertLess(worst, 5e-6)
        with h5py.File(alone) as file:
            self.assertEqual(file.attrs["device"], b"gpu")
        for name, ranks, environment in (("gpu-two", 2, {}), ("gpu-halves", 0, points)):
            self.assertEqual(self.texts(self.run_it(name, [task], ranks=ranks, **on_host, **environment)["answers"]), texts, name)
        group = [self.texts(self.run_it(name, [task], shards=2, **on_host)["answers"]) for name in ("gpu-group", "gpu-group-again")]
        self.assertEqual([ids for ids, *_ in group[0]], [ids for ids, *_ in texts])
        self.assertEqual(group[0], group[1])

    def test_a_group_s_size_counts_the_value_model(self):
        """On GPUs of which nothing is there but their memory: with room for the model alone a group of one GPU is chosen without a guide, and not with one."""
        source, library = self.folder / "gpus.c", self.folder / "gpus.so"
        source.write_text(PRETENDED_GPUS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)

        def plan(task, *arguments, gigabytes=1.0):
            command = [word for word in self.command("sized", [{"max_new_tokens": 5, "dataset": {"path": str(self.world.data), "limit": 0}, **task}]) if word != "run"]
            path = pathlib.Path(command[-1])
            path.write_text(path.read_text().replace("devices: cpu, shards_per_rank: 1", "devices: auto"))
            return self.start([command[0], "plan", *arguments, command[-1]], LD_PRELOAD=str(library), PRETENDED_GPU_BYTES=str(int(gigabytes * 1e9)))

        needed = []
        for task in ({}, {"guide": self.guide()}):
            planned = plan(task, "--config-only")
            self.assertEqual(planned.returncode, 0, planned.stderr)
            parts = re.search(r"  on 1: (.*)", planned.stdout)[1]
            needed.append(sum(float(size) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit) for size, unit in re.findall(r"([\d.]+) (\w*B)\b", parts)) / 1e9)
        between, enough = sum(needed) / 2 / 0.92, 1.02 * needed[1] / 0.92
        self.assertGreater(needed[1], 1.05 * needed[0])
        for task, gigabytes, alone in (({}, between, True), ({"guide": self.guide()}, between, False), ({"guide": self.guide()}, enough, True), ({"guide": self.guide(multiplier=0)}, between, True)):
            said = plan(task, "--ranks", "4", gigabytes=gigabytes).stderr
            self.assertRegex(said, "groups of [1-4] GPU")
            self.assertEqual("groups of 1 GPU," in said, alone, (needed, said))

    def test_models_of_a_group_count_their_communicator_once(self):
        """In a group of two devices both models add their sums through one NCCL."""
        task = {"max_new_tokens": 5, "guide": self.guide()}
        command = ["plan" if word == "run" else word for word in self.command("once", [task], shards=2)]
        planned = self.start(command, MAGISTER_GPU_CODE_ON_HOST="1")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        memory = re.search(r"memory per device .*", planned.stdout)[0]
        self.assertIn("value model: weights", memory)
        self.assertEqual(memory.count("NCCL"), 1, memory)
        path = pathlib.Path(command[-1])
        path.write_text(path.read_text().replace("devices: cpu, shards_per_rank: 2", "gpus_per_group: 2"))
        planned = self.start([*command[:-1], "--config-only", command[-1]])
        self.assertEqual(planned.returncode, 0, planned.stderr)
        parts = re.search(r"  on 2: (.*)", planned.stdout)[1]
        self.assertIn("value model: weights", parts)
        self.assertEqual(parts.count("NCCL"), 1, parts)

    def test_groups_of_several_sizes(self):
        """Two models each, in two tasks that do not need each other: in turn, for a part of the ranks would lack a size. A value model that one of the
        sizes cannot divide is refused by all ranks."""
        tasks = [{"name": "guided", "max_new_tokens": 6, "guide": self.guide()}, {"name": "plain", "max_new_tokens": 6}]

        def command(name, ranks, sizes, tasks=tasks):
            command = self.command(name, tasks, ranks)
            path = pathlib.Path(command[-1])
            path.write_text(path.read_text().replace("shards_per_rank: 1", f"gpus_per_group: {sizes}"))
            return command
        found = []
        for ranks in (3, 5):
            self.world.forget("sizes")
            done = self.start(command("sizes", ranks, "[2, 1]"))
            self.assertEqual(done.returncode, 0, done.stderr)
            found.append([hashlib.sha256((self.folder / f"runs/sizes/{name}.h5").read_bytes()).hexdigest() for name in ("guided", "plain")])
        self.assertEqual(found[0], found[1])
        done = self.start(command("undivided", 6, "[5, 1]"))
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("use groups of 1 to 4", done.stderr)

    def test_a_value_model_in_bf16(self):
        """On CPUs and in the GPU's kernels: half the weights, KL near f32's; another type is another identity."""
        task = {"max_new_tokens": 1, "temperature": 0, "guide": self.guide(multiplier=1.0, candidates=4)}
        narrow = {**task, "guide": {**task["guide"], "model": {**task["guide"]["model"], "dtype": "bf16"}}}
        for name, environment in (("bf16-cpu", {}), ("bf16-gpu", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
            kl = []
            for one in (task, narrow):
                self.world.forget(name)
                kl.append([kl[0] for *_, kl in self.texts(self.run_it(name, [one], **environment)["answers"])])
            worst = abs(numpy.array(kl[0]) - kl[1]).max()
            print(f"{name}: largest difference of a KL from f32's {worst:.1e} of {max(kl[0]):.1e} nats")
            self.assertTrue(0 < worst < 0.02 * max(kl[0]), (kl, name))
            refused = self.start(self.command(name, [task]), **environment)
            self.assertIn("tasks.0.guide.model.dtype is bf16 in it and f32 in this run", refused.stderr)
        command = self.command("bf16-plan", [task, {**narrow, "name": "narrow"}])
        command[command.index("run")] = "plan"
        planned = self.start(command)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        weights = [float(size) * {"KiB": 1, "MiB": 1024}[unit] for size, unit in re.findall(r"value model: weights ([\d.]+) (\w+)", planned.stdout)]
        self.assertAlmostEqual(weights[0] / weights[1], 2, delta=0.1)

    def test_a_constraint_holds_and_the_guide_chooses_within_it(self):
        task = {"max_new_tokens": 8, "temperature": 0, "constraint": {"choice": ["A", "B", "C D", "no"]}}
        paths = self.run_it("choice", [{"name": "up", "guide": self.guide(multiplier=50.0), **task}, {"name": "free", **task}])
        found = {}
        for name, path in paths.items():
            with h5py.File(path) as file:
                found[name] = [text.decode() for text in file["generate/text"]]
        self.assertLessEqual(set(found["up"] + found["free"]), {"A", "B", "C D", "no"})
        self.assertNotEqual(found["up"], found["free"])

    def test_a_constraint_on_a_gpus_code(self):
        """The candidates are found among the tokens that may come: texts and KL are the CPU's, the same bits on two ranks."""
        task = {"max_new_tokens": 6, "temperature": 0.8, "repetition_penalty": 1.2, "top_logprobs": 2, "constraint": {"regex": "[A-Z ]{2,4}(no|yes)"},
                "guide": self.guide(multiplier=2.0, candidates=4)}
        want = self.texts(self.run_it("mask-cpu", [task])["answers"])
        on_host = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
        got = self.texts(self.run_it("mask-gpu", [task], **on_host)["answers"])
        self.assertEqual([ids for ids, *_ in got], [ids for ids, *_ in want])
        worst = max(abs(a - b) for one, other in zip(got, want) for part in (1, 2) for a, b in zip(one[part], other[part]))
        print(f"largest difference of a KL or log-probability from the CPU's path, with a constraint: {worst:.1e} nats")
        self.assertLess(worst, 1e-5)
        self.assertEqual(self.texts(self.run_it("mask-two", [task], ranks=2, **on_host)["answers"]), got)

    def test_a_value_model_of_an_earlier_task(self):
        pairs = self.folder / "pairs.jsonl"
        preference_test.Preference.write(preference_test.pairs(4), pairs)
        train = {"task": "train", "name": "worth", "objective": "reward", "dataset": {"path": str(pairs), "key": "id"},
                 "train": {"steps": 2, "global_batch": 2, "max_length": 64, "optimizer": {"lr": 1e-3}}}
        texts = {"task": "generate", "dataset": {"path": str(self.world.data), "key": "id"}, "max_prompt_length": 512, "max_new_tokens": 5,
                 "guide": {"model": {"task": "worth"}, "candidates": 5}}
        path = self.folder / "chain.yaml"

        def write(name="worth"):
            tasks = [train, {**texts, "guide": {**texts["guide"], "model": {"task": name}}}]
            path.write_text(HEAD.format(name="chain", runs=self.folder / "runs", model=self.model) + "".join(f"  - {json.dumps(task)}\n" for task in tasks))
        write()
        planned = self.start([tiny_world.PROGRAM, "plan", str(path)])
        self.assertEqual(planned.returncode, 0, planned.stderr)
        for words in ("value model: weights", "value model: keys and values", "5 candidates, logit, multiplier 4"):
            self.assertIn(words, planned.stdout)
        done = self.start(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", tiny_world.PROGRAM, "run", str(path)])
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertGreater(sum(sum(kl) for *_, kl in self.texts(self.folder / "runs/chain/answers.h5")), 0)
        # The same folder by its path: the same texts.
        by_path = self.run_it("by-path", [{"max_new_tokens": 5, "guide": {"model": {"path": str(self.folder / "runs/chain/worth")}, "candidates": 5}}])
        self.assertEqual(self.texts(by_path["answers"]), self.texts(self.folder / "runs/chain/answers.h5"))
        write("wroth")
        refused = self.start([tiny_world.PROGRAM, "plan", str(path)])
        self.assertEqual(refused.returncode, 78)
        self.assertRegex(refused.stderr, r"chain\.yaml:\d+:\d+: tasks\.1\.guide\.model\.task: no train task of objective reward .* did you mean worth\?")

    def test_an_evaluation_tells_the_kl(self):
        data = {"path": str(self.world.data), "key": "id"}
        texts = {"task": "generate", "dataset": data, "max_prompt_length": 512, "max_new_tokens": 5, "n": 2}
        tasks = [{**texts, "name": "weak", "guide": self.guide(multiplier=0.5)}, {**texts, "name": "strong", "guide": self.guide(multiplier=4.0)}, {**texts, "name": "plain"}]
        tasks += [{"task": "score", "name": f"{name}-scores", "dataset": data, "answers": name, "score": {"verifier": "regex", "pattern": "([a-z])", "answer": "text"}}
                  for name in ("weak", "strong", "plain")]
        path = self.folder / "told.yaml"
        path.write_text(HEAD.format(name="told", runs=self.folder / "runs", model=self.model)
                        + "".join(f"  - {json.dumps(task)}\n" for task in [*tasks, {"task": "evaluate", "scores": [task["name"] for task in tasks[3:]]}]))
        done = self.start(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", tiny_world.PROGRAM, "run", str(path)])
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        folder = self.folder / "runs/told"
        methods = json.loads((folder / "evaluation.json").read_text())["methods"]
        with h5py.File(folder / "evaluation.h5") as file:
            by_record = file["evaluate/guide_kl"][:]
        for m, name in enumerate(("weak", "strong")):
            sums = numpy.array([numpy.sum(kl, dtype=numpy.float64) for *_, kl in self.texts(folder / f"{name}.h5")])
            with h5py.File(folder / f"{name}-scores.h5") as file:
                self.assertLess(abs(file["score/guide_kl"][:] - sums).max(), 3e-6)
            self.assertLess(abs(by_record[:, m] - sums.reshape(-1, 2).mean(1)).max(), 3e-6)
            self.assertAlmostEqual(methods[f"{name}-scores"]["guide_kl"], sums.mean(), delta=3e-6)
        # A guided token is one of the reference and a candidate's for each of the value model.
        reference, value = (2 * sum(one.numel() for one in model.parameters()) for model in (self.reference, self.value["value"]))
        for name, token, prompt in (("plain", reference, reference), ("weak", reference + 20 * value, reference + value)):
            with h5py.File(folder / f"{name}.h5") as file:
                self.assertEqual((file.attrs["flops_a_token"], file.attrs["flops_a_prompt_token"]), (token, prompt // 2))
        self.assertGreater(methods["strong-scores"]["guide_kl"], 2 * methods["weak-scores"]["guide_kl"])
        self.assertIsNone(methods["plain-scores"]["guide_kl"])
        self.assertTrue((by_record[:, 2] == -1).all())
        drawn = subprocess.run([sys.executable, str(tiny_world.ROOT / "scripts/draw_methods.py"), str(folder / "evaluation.json"), str(folder / "kl.svg")], capture_output=True, text=True, check=False)
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        picture = (folder / "kl.svg").read_text()
        self.assertEqual([picture.count(f">{name}<") for name in ("weak", "strong", "plain")], [1, 1, 1])

    def test_bad_input_is_refused(self):
        other = self.folder / "other"
        shutil.copytree(self.folder / "value", other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        score_test.make_classifier(self.folder / "smaller", self.model / "tokenizer.json", "llama", {"vocab_size": 300, "num_labels": 1, "pad_token_id": None})
        score_test.make_classifier(self.folder / "short", self.model / "tokenizer.json", "llama",
                                   {"vocab_size": self.reference.config.vocab_size, "num_labels": 1, "pad_token_id": None, "max_position_embeddings": 64})
        where = r"bad\.yaml:\d+:\d+: tasks\.0\.guide"
        for guide, code, message in (
                (self.guide("other"), 78, where + r"\.model: .* has another tokenizer"), (self.guide("smaller"), 78, where + r"\.model: .* has a vocabulary of 300, and its tokenizer 320"),
                (self.guide("model"), 78, where + r"\.model: .* without such a head"), (self.guide("short"), 78, where + r"\.model: .* 64 positions"),
                (self.guide("bins"), 78, where + r"\.form.* is logit, .* gives 11 numbers"), (self.guide(form="histogram"), 78, where + r"\.form is histogram, .* gives 1 number "),
                (self.guide(candidates=5000), 78, where + r"\.candidates is 5000 \(the vocabulary has"), (self.guide(candidates=0), 78, where + r"\.candidates: "),
                (self.guide(multiplier=-1), 78, where + r"\.multiplier: "), (self.guide(multiplier=float("nan")), 78, where + r"\.multiplier: "),
                (self.guide(multiplier=float("inf")), 78, where + r"\.multiplier: "), (self.guide(form="odds"), 78, where + r"\.form: "), ({"multiplier": 1}, 78, where + r"\.model"),
                ({"model": {"path": "x", "task": "y"}}, 78, where + r"\.model\.path: "), (self.guide("nothing"), 74, "nothing")):
            task = {"max_new_tokens": 5, "guide": guide}
            done = self.start(self.command("bad", [task]))
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, message)
            self.assertEqual(list((self.folder / "runs").glob("bad/*.h5*")), [], "something was written")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
