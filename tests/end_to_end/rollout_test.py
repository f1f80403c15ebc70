"""Task rollout from outside: roll-ins and greedy continuations are transformers' own; rewards, cuts and preferences by Python; the same bytes on any number
of ranks, after kills and without shared prefixes; bad input is refused.
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
import math_verify
import numpy
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import score_test
import tiny_world

HEAD = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "seed: 3\nlayout:")
PATTERN = "[aeiou]t"
EXPERIMENT = HEAD + """  - task: rollout
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 512
    max_new_tokens: 6
    cuts: 2
    reward: {{verifier: regex, pattern: "[aeiou]t"}}
"""


class Rollout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1, results=("rollouts.h5",))
        with open(cls.world.data, "w", encoding="utf-8") as file:
            for index in range(9):
                text = " ".join(tiny_world.WORDS[index:2 * index + 3] * (1 + 6 * (index % 2)))
                file.write(json.dumps({"id": f"r{index}", "text": text, "right": "no answer"}) + "\n")
        cls.records = [json.loads(line)["text"] for line in cls.world.data.read_text().splitlines()]
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        cls.reference = AutoModelForCausalLM.from_pretrained(cls.world.model, dtype=torch.float32).eval()
        small = dict(vocab_size=cls.reference.config.vocab_size, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None)
        score_test.make_classifier(cls.folder / "value", cls.world.model / "tokenizer.json", "llama", {**small, "num_labels": 1}, seed=7)

    def command(self, name, task, ranks=0, head=HEAD):
        path = self.folder / f"{name}.yaml"
        whole = head.format(name=name, runs=self.folder / "runs", model=self.world.model)
        entry = {"task": "rollout", "dataset": {"path": str(self.world.data), "key": "id"}, "max_prompt_length": 512, "max_new_tokens": 16,
                 "reward": {"verifier": "regex", "pattern": PATTERN, "scale": 2.0}}
        whole_task = {key: value for key, value in {**entry, **task}.items() if value is not None}
        path.write_text(whole + f"  - {json.dumps(whole_task)}\n")
        return [*(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []), tiny_world.PROGRAM, "run", str(path)]

    def start(self, command, **environment):
        return subprocess.run(command, env={**self.world.environment, **environment}, cwd=self.folder, capture_output=True, text=True, timeout=600)

    def run_it(self, name, task, ranks=0, head=HEAD, **environment):
        done = self.start(self.command(name, task, ranks, head), **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.world.results(name)

    def read(self, path, cuts, n):
        """By record: (prompt, roll-in, [(cut, [(tokens, reward, preferred, reason)])])"""
        with h5py.File(path) as file:
            data = {key: file[f"rollout/{key}"][()] for key in file["rollout"]}
            offset, ids = file["samples/offset"][()], file["tokens/id"][()]
        slots = data["roll_in_id"].shape[1]
        everything = []
        for r in range(len(offset) - 1):
            texts = data["id"][r].reshape(cuts * n, slots)
            of = lambda key, i: data[key][r].reshape(-1)[i]
            every = [[(texts[i, :of("length", i)].tolist(), float(of("reward", i)), int(of("preferred", i)), int(of("finish_reason", i))) for i in range(c * n, c * n + n)] for c in range(cuts)]
            self.assertAlmostEqual(float(data["mean_reward"][r]), numpy.mean([one[1] for cut in every for one in cut]), places=5)
            everything.append((ids[offset[r]:offset[r + 1]].tolist(), data["roll_in_id"][r, :data["roll_in_length"][r]].tolist(), list(zip(data["cut"][r].reshape(-1).tolist(), every))))
        return everything

    def test_texts_are_transformers_and_rewards_are_python(self):
        got = self.read(self.run_it("oracle", {"cuts": 5, "n": 3, "preference": {"beta": 50.0}, "temperature": 1.3}), 5, 3)
        wins, cuts = 0, []
        for record, (prompt, roll_in, parts) in zip(self.records, got, strict=True):
            self.assertEqual(prompt, self.tokenizer.encode(record).ids)
            with torch.no_grad():
                want = self.reference.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False, pad_token_id=0)[0, len(prompt):].tolist()
            self.assertEqual(roll_in, want)
            for cut, texts in parts:
                self.assertTrue(1 <= cut < len(roll_in))
                cuts.append((cut - 1) / max(1, len(roll_in) - 2))
                self.assertEqual(roll_in[:cut] + texts[0][0], roll_in, "a greedy continuation of a greedy roll-in is the roll-in")
                for tokens, reward, preferred, reason in texts:
                    self.assertEqual(len(tokens) + cut == 16, reason == 1)
                    written = self.tokenizer.decode(roll_in[:cut] + tokens)
                    self.assertEqual(reward, 2.0 * (re.search(PATTERN, written) is not None), written)
                (_, a, first, _), (_, b, second, _), (_, _, third, _) = texts
                self.assertEqual((first + second, third), (1, 2))
                if a != b:
                    wins += 1
                    self.assertEqual(first, a > b)
        self.assertGreater(wins, 3)
        self.assertLess(abs(numpy.mean(cuts) - 0.5), 4 / (12 * len(cuts)) ** 0.5)
        self.assertGreater(len({tuple(one[0]) for *_, parts in got for _, texts in parts for one in texts}), 60)
        print(f"{len(got)} records, {wins} pairs of unlike reward, cuts at {numpy.mean(cuts):.2f} of their texts on average")

    def test_rewards_by_value(self):
        """`verifier: math`: Math-Verify's verdict on the whole texts; why one was not compared stands beside its reward and, in sums, in the log; the same on 1 and 2 ranks."""
        data, golds = self.folder / "sums.jsonl", ["12", "$345$", "#### 5", "\\boxed{2}", "x", *"1346789"]
        data.write_text("".join(json.dumps({"id": f"v{index}", "text": record, "answer": golds}) + "\n" for index, record in enumerate(self.records)))
        task = {"dataset": {"path": str(data), "key": "id"}, "cuts": 3, "n": 3, "temperature": 1.5, "reward": {"verifier": "math"}}
        model, self.world.model = self.world.model, tiny_world.make_counter(self.folder / "counter", self.world.model, self.tokenizer)
        try:
            path, other = self.run_it("value", task), self.run_it("values", task, ranks=2)
        finally:
            self.world.model = model
        with h5py.File(path) as file, h5py.File(other) as beside:
            unread = file["rollout/unread"][()]
            for key in file["rollout"]:
                self.assertTrue(numpy.array_equal(file[f"rollout/{key}"][()], beside[f"rollout/{key}"][()]), key)
        parsed, right = [math_verify.parse(gold, parsing_timeout=None) for gold in golds], 0
        for record, (_, roll_in, parts) in enumerate(self.read(path, 3, 3)):
            for i, (cut, (tokens, reward, *_)) in enumerate((cut, one) for cut, texts in parts for one in texts):
                written = self.tokenizer.decode(roll_in[:cut] + tokens)
                if re.search("[\u3000-\ud7ff\uff00-\uffee][-0-9.(]", written):
                    continue  # to Math-Verify no number begins behind an ideograph
                answer = math_verify.parse(written, parsing_timeout=None)
                self.assertEqual(reward, float(any(math_verify.verify(gold, answer, timeout_seconds=None) for gold in parsed)), written)
                self.assertTrue(reward == 0 or unread[record, i] == 0)
                right += reward
        self.assertTrue(0 < right < unread.size and (unread == 1).any())
        (told,) = [event for event in map(json.loads, (path.parent / "run.jsonl").read_text().splitlines()) if event["event"] == "unread"]
        self.assertEqual((told["compared"], told["nothing_found"]), ((unread == 0).sum(), (unread == 1).sum()))
        subprocess.run([tiny_world.PROGRAM, "check", path], check=True, capture_output=True)

    def test_stop_texts_may_begin_before_the_cut(self):
        task = {"max_new_tokens": 24, "cuts": 24, "n": 1, "ignore_eos": True, "reward": {"verifier": "regex", "pattern": "."}}
        stops = set()
        for _, roll_in, _ in self.read(self.run_it("unstopped", task), 24, 1):
            for begin in range(3, 23, 5):  # of each text, the end of one token and the beginning of the next
                whole = self.tokenizer.decode(roll_in[begin:begin + 2])
                border = len(self.tokenizer.decode(roll_in[begin:begin + 1]))
                if 0 < border < len(whole) and whole.isascii():
                    stops.add(whole[border - 1:border + 1])
        stopped = straddled = 0
        for _, roll_in, parts in self.read(self.run_it("stopped", {**task, "stop": sorted(stops)[:6]}), 24, 1):
            stopped += len(roll_in) < 24
            for cut, [(tokens, *_)] in parts:
                self.assertEqual(roll_in[:cut] + tokens, roll_in, "a greedy continuation of a greedy roll-in is the roll-in")
                straddled += len(roll_in) < 24 and cut + 1 == len(roll_in)
        self.assertGreater(min(stopped, straddled), 2)

    def test_slices_are_merged(self):
        """Whose longest keys and samples differ."""
        task = {"max_new_tokens": 6, "cuts": 2, "n": 2}
        slices = [self.run_it(f"slice-{i}", {**task, "slice": f"{i}/2"}) for i in range(2)]
        with h5py.File(slices[0]) as first, h5py.File(slices[1]) as second:
            self.assertNotEqual(first.attrs["longest_sample"], second.attrs["longest_sample"])
        merged = self.folder / "merged.h5"
        done = self.start([tiny_world.PROGRAM, "merge", str(merged), *map(str, slices)])
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = self.run_it("unsliced", task)
        self.assertEqual(self.read(merged, 2, 2), self.read(whole, 2, 2))
        with h5py.File(merged) as got, h5py.File(whole) as want:
            for name in ("key_bytes", "longest_sample", "num_samples"):
                self.assertEqual(got.attrs[name], want.attrs[name])
        self.assertEqual(self.start([tiny_world.PROGRAM, "check", str(merged)]).returncode, 0)

    def test_preferences_have_their_probability(self):
        got = self.read(self.run_it("drawn", {"cuts": 32, "n": 2, "max_new_tokens": 4, "preference": {"beta": 0.4}, "temperature": 1.5, "roll_in": "sampled", "continuations": "sampled", "first_cut": 0}), 32, 2)
        pairs = [(a[1] - b[1], a[2]) for *_, parts in got for _, (a, b) in parts]
        self.assertIn(0, [cut for *_, parts in got for cut, _ in parts])
        expected = numpy.array([1 / (1 + math.exp(-0.4 * gap)) for gap, _ in pairs])
        won = numpy.array([first for _, first in pairs])
        self.assertLess(abs((won - expected).sum()), 3.5 * math.sqrt((expected * (1 - expected)).sum()))
        unlike = numpy.array([gap != 0 for gap, _ in pairs])
        self.assertGreater(unlike.sum(), 20)
        signs = numpy.sign([gap for gap, _ in pairs])
        self.assertGreater((signs * (2 * won - 1))[unlike].mean(), 0.1)

    def test_same_bytes_for_ranks_and_kills(self):
        task = {"cuts": 3, "n": 3, "temperature": 0.9, "guide": {"model": {"path": str(self.folder / "value")}, "multiplier": 3.0}, "reward": {"model": {"path": str(self.folder / "value")}}}
        digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
        first = self.run_it("same", task, ranks=1)
        want, texts = digest(first), self.read(first, 3, 3)
        for ranks, point in ((2, ""), (4, ""), (2, "rollout.pass@9"), (1, "rollout.record.done@4"), (1, "rollout.pass@30")):
            self.world.forget("same")
            if point:
                self.assertNotEqual(self.start(self.command("same", task), MAGISTER_FAIL_POINT=f"{point}:kill").returncode, 0)
            self.assertEqual(digest(self.run_it("same", task, ranks=ranks)), want, (ranks, point))
        for more in ({"share_prefixes": False}, {"max_sequences": 2, "token_budget": 21}):
            self.world.forget("other")
            self.assertEqual(self.read(self.run_it("other", {**task, **more}), 3, 3), texts)
        # What the reference goes on with is another text, and the roll-in is not.
        self.world.forget("other")
        plain = self.read(self.run_it("other", {**task, "continue_with": "reference"}), 3, 3)
        self.assertEqual([roll_in for _, roll_in, _ in plain], [roll_in for _, roll_in, _ in texts])
        self.assertNotEqual(plain, texts)
        for arguments in (["check"], ["export", "--to", "jsonl", "--out", str(self.folder / "out.jsonl")]):
            done = self.start([tiny_world.PROGRAM, arguments[0], str(first), *arguments[1:]])
            self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(first, "r+") as file:
            file["rollout/preferred"][0, 0] = 2
        self.assertNotEqual(self.start([tiny_world.PROGRAM, "check", str(first)]).returncode, 0)

    def test_a_judge_rewards(self):
        """Rewards are what task judge says of the same texts, whichever code writes them; another judge is another experiment."""
        judge = {"model": {"path": str(tiny_world.make_model(self.folder / "judge", seed=5)), "dtype": "f32"}, "mode": "rubric", "classes": 4, "prompt": {"user": "{{ text }} {{ answer }} {{ reply_rule }}"}}
        task = {"max_new_tokens": 6, "temperature": 0.9, "reward": {"judge": judge, "scale": 2.0}}
        written, rewards = [], []
        for name, environment in (("judged", {}), ("judged-gpu", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
            path = self.run_it(name, task, **environment)
            for record, (_, roll_in, parts) in zip(self.records, self.read(path, 4, 2), strict=True):
                for cut, texts in parts:
                    written += [{"text": record, "answer": self.tokenizer.decode(roll_in[:cut] + tokens).replace("\0", "\ufffd")} for tokens, *_ in texts]
                    rewards += [reward for _, reward, *_ in texts]
            digest = path.read_bytes()
            self.world.forget(name)
            self.assertNotEqual(self.start(self.command(name, task), MAGISTER_FAIL_POINT="rollout.record.done@5:kill", **environment).returncode, 0)
            other = {**task, "reward": {"judge": {**judge, "prompt": {"user": "{{ answer }} {{ reply_rule }}"}}}}
            self.assertEqual(self.start(self.command(name, other), **environment).returncode, 78)
            self.assertEqual(self.run_it(name, task, ranks=2, **environment).read_bytes(), digest)
        texts = self.folder / "written.jsonl"
        texts.write_text("".join(json.dumps(one) + "\n" for one in written))
        with h5py.File(self.run_it("verdicts", {"task": "judge", "name": "rollouts", "dataset": {"path": str(texts)}, **judge, "max_prompt_length": 2048, "max_new_tokens": None, "reward": None})) as file:
            want = (2.0 * file["judge/expected"][()]).astype(numpy.float32)
        self.assertEqual(rewards, want.tolist())
        self.assertGreater(numpy.std(want), 0.02)
        print(f"{len(want)} grades of texts, {len(set(want.tolist()))} differ")

    def test_a_shard_that_waits_for_long_rewards_is_not_stuck(self):
        """Rewards come from the leader, whose judge is loaded for half a minute, and the other rank waits for more than the watchdog's patience. A leader that is
        itself stuck ends the job."""
        judge = {"model": {"path": str(tiny_world.make_model(self.folder / "judge", seed=5)), "dtype": "f32"}, "mode": "rubric", "classes": 4, "prompt": {"user": "{{ text }} {{ answer }} {{ reply_rule }}"}}
        task = {"max_new_tokens": 6, "reward": {"judge": judge}, "dataset": {"path": str(self.world.data), "key": "id", "limit": 1}}
        head = HEAD.replace("devices: cpu", "devices: cpu, gpus_per_group: 2").replace("layout:", "run: {{watchdog_seconds: 4}}\nlayout:")
        done = self.start(self.command("hung", task, 2, head), MAGISTER_FAIL_POINT="rollout.reward@2:hang")
        self.assertEqual(done.returncode, 70, done.stderr[-3000:])
        self.assertIn("has been in phase reward texts for ", done.stderr)
        self.run_it("hung", task, 2, head, MAGISTER_FAIL_POINT=",".join(["rollout.reward:slow"] * 10))
        # Two groups of a rank have one judge: the second waits as long.
        two = {**task, "dataset": {**task["dataset"], "limit": 2}, "max_sequences": 1}
        self.run_it("two-groups", two, 0, head.replace("gpus_per_group: 2", "gpus_per_group: 1, shards_per_rank: 2"), MAGISTER_FAIL_POINT=",".join(["rollout.reward:slow"] * 10))

    def test_a_judge_that_an_earlier_task_trains(self):
        """By one command where nothing stands yet, with the rewards that a copy of the trained folder gives; of rollouts and of GRPO."""
        data, student = {"path": str(self.world.data), "limit": 3}, self.folder / "runs/taught/student"
        judge = {"mode": "rubric", "classes": 4, "prompt": {"user": "{{ text }} {{ answer }} {{ reply_rule }}"}}
        short = {"steps": 1, "global_batch": 2, "max_length": 256}
        found = []
        for name, folder in (("taught", student), ("copied", self.folder / "copy-of-student")):
            reward = {"judge": {**judge, "model": {"path": str(folder), "dtype": "f32"}}}
            tasks = [{"task": "train", "name": "student", "dataset": data, "train": {**short, "optimizer": {"lr": 0.05}}},
                     {"task": "rollout", "name": "rolls", "dataset": data, "max_new_tokens": 4, "cuts": 1, "reward": reward},
                     {"task": "train", "name": "learns", "objective": "grpo", "dataset": data, "grpo": {"num_generations": 2, "max_new_tokens": 4, "reward": reward}, "train": short}]
            path = self.folder / f"{name}.yaml"
            path.write_text(HEAD.format(name=name, runs=self.folder / "runs", model=self.world.model) + "".join(f"  - {json.dumps(task)}\n" for task in tasks))
            done = self.start([tiny_world.PROGRAM, "run", str(path)])
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            with h5py.File(self.folder / "runs" / name / "rolls.h5") as rolls, h5py.File(self.folder / "runs" / name / "learns.h5") as learns:
                found.append([rolls["rollout/reward"][()].tolist(), learns["train/reward"][()].tolist()])
            if name == "taught":
                shutil.copytree(student, self.folder / "copy-of-student")
        self.assertEqual(*found)

    def test_groups_of_several_sizes(self):
        """Rewards of a model and of a judge, on CPUs and in the GPU's kernels, where all shards of a group compute the model: any number of groups of each size
        writes the same bytes, after a kill, too. Texts are those of groups of one, and rewards theirs within a score's limit."""
        judge = {"model": {"path": str(tiny_world.make_model(self.folder / "judge", seed=5)), "dtype": "f32"}, "mode": "rubric", "classes": 4, "prompt": {"user": "{{ text }} {{ answer }} {{ reply_rule }}"}}
        mixed = HEAD.replace("devices: cpu", "devices: cpu, gpus_per_group: [2, 1]")
        texts = lambda got: [(roll_in, [(cut, [(ids, reason) for ids, _, _, reason in every]) for cut, every in parts]) for _, roll_in, parts in got]
        rewards = lambda got: numpy.array([one[1] for *_, parts in got for _, every in parts for one in every])
        for kind, reward in (("model", {"model": {"path": str(self.folder / "value")}}), ("judge", {"judge": judge})):
            task = {"cuts": 2, "max_new_tokens": 6, "temperature": 0.9, "reward": reward, "dataset": {"path": str(self.world.data), "key": "id", "limit": 6}}
            for device, environment in (("cpu", {}), ("gpu", {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
                name = f"sizes-{kind}-{device}"
                alone, found = self.read(self.run_it(f"{name}-alone", task, **environment), 2, 2), []
                for ranks, point in ((3, ""), (5, ""), (4, "rollout.record.done@2:kill")):
                    self.world.forget(name)
                    if point:
                        self.assertNotEqual(self.start(self.command(name, task, ranks, mixed), MAGISTER_FAIL_POINT=point, **environment).returncode, 0)
                    found.append(self.run_it(name, task, ranks, mixed, **environment).read_bytes())
                self.assertEqual(found[1:], found[:1] * 2, name)
                got = self.read(self.world.results(name), 2, 2)
                self.assertEqual(texts(got), texts(alone))
                self.assertLess(abs(rewards(got) - rewards(alone)).max(), 1e-4)
                self.assertGreater(numpy.ptp(rewards(got)), 0.02)

    def test_weights_of_other_models_stay(self):
        """Of a guide, of a reward and of a model that is scored, as long as the next task has them; GRPO's reward model, too. The bytes are those of each task alone."""
        value = {"path": str(self.folder / "value"), "dtype": "f32"}
        data, guide, reward = {"path": str(self.world.data), "limit": 2}, {"model": {"path": value["path"]}, "candidates": 3}, {"model": {"path": value["path"]}}
        texts, rolls = {"task": "generate", "max_new_tokens": 4}, {"task": "rollout", "max_new_tokens": 4, "cuts": 1}
        learns = {"task": "train", "objective": "grpo", "grpo": {"num_generations": 2, "max_new_tokens": 4, "reward": reward}, "train": {"steps": 1, "global_batch": 2, "max_length": 256}}
        # What of a task's own weights was there, and what of the others'.
        tasks = [("first", {**texts, "guide": guide}, False, [False]), ("both", {**rolls, "guide": guide, "reward": reward}, True, [True, True]),
                 ("zero", {**texts, "guide": {**guide, "multiplier": 0}}, True, None), ("again", {**rolls, "reward": reward}, True, [False]),
                 ("scored", {"task": "score", "model": value}, True, None), ("learns", learns, False, [True]), ("rewarded", {**rolls, "seed": 5, "reward": reward}, False, [True]),
                 ("plain", texts, True, None), ("guided", {**texts, "guide": guide}, True, [False])]
        gpu = [tasks[0], ("rewarded", {**rolls, "reward": reward}, True, [True]), tasks[2], *tasks[-2:], ("scored", tasks[4][1], True, None), ("twice", {**tasks[4][1], "max_length": 9}, True, None)]
        two = [task for task in gpu if task[0] != "rewarded"]  # on CPUs a rank without a text to reward reads no reward model
        head = HEAD.replace("tasks:", "run: {{at_once: 1}}\ntasks:")
        for name, ranks, chosen, environment in (("stay", 1, tasks, {}), ("stay_two", 2, two, {}), ("stay_gpu", 1, gpu, {"MAGISTER_GPU_CODE_ON_HOST": "1"})):
            whole = head.format(name=name, runs=self.folder / "runs", model=self.world.model)
            path, folder, digests = self.folder / f"{name}.yaml", self.folder / "runs" / name, {}
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), tiny_world.PROGRAM, "run", str(path)]
            for some in (chosen, *([task] for task in (chosen if name == "stay" else chosen[:1]))):
                self.world.forget(name)
                path.write_text(whole + "".join(f"  - {json.dumps({'name': task, 'dataset': data, **keys})}\n" for task, keys, *_ in some))
                done = self.start(command, **environment)
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.h5")}
                self.assertLessEqual(found.items(), (digests or found).items(), "another task's weights were taken")
                if digests:
                    continue
                digests = found
                events = [event for event in map(json.loads, (folder / "run.jsonl").read_text().splitlines()) if event["event"] == "start"]
                kept = [(event["task"], event["weights_kept"], event.get("other_weights_kept")) for event in events]
                self.assertEqual(kept, [(task, own, others) for task, _, own, others in chosen])

    def test_on_a_gpus_code(self):
        """Policy, guide and reward model in the GPU's kernels, run on the host: texts as the CPU's and rewards within a score's limit; the same bytes on two ranks,
        over two shards again and where a pass of rewards has no memory."""
        value = {"path": str(self.folder / "value")}
        task = {"cuts": 3, "max_new_tokens": 6, "temperature": 0.9, "guide": {"model": value, "candidates": 4}, "reward": {"model": value}, "dataset": {"path": str(self.world.data), "key": "id", "limit": 4}}
        texts = lambda got: [(roll_in, [(cut, [(ids, reason) for ids, _, _, reason in every]) for cut, every in parts]) for _, roll_in, parts in got]
        rewards = lambda got: numpy.array([one[1] for *_, parts in got for _, every in parts for one in every])
        want = self.read(self.run_it("gpu-cpu", task), 3, 2)
        on_host = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
        alone = self.run_it("gpu-alone", task, **on_host)
        with h5py.File(alone) as file:
            self.assertEqual(file.attrs["device"], b"gpu")
        got = self.read(alone, 3, 2)
        self.assertEqual(texts(got), texts(want))
        worst = abs(rewards(got) - rewards(want)).max()
        print(f"largest difference of a reward from the CPU's path: {worst:.1e}")
        self.assertLess(worst, 1e-4)
        self.assertGreater(numpy.ptp(rewards(got)), 0.1)
        whole = alone.read_bytes()
        self.world.forget("gpu-alone")
        self.assertEqual(self.run_it("gpu-alone", task, ranks=2, **on_host).read_bytes(), whole)
        self.assertEqual(self.read(self.run_it("gpu-halves", task, **on_host, MAGISTER_FAIL_POINT="score.pass.memory@1:enospc"), 3, 2), got)
        head = HEAD.replace("devices: cpu", "devices: cpu, shards_per_rank: 2")
        group = [self.read(self.run_it(name, task, head=head, **on_host), 3, 2) for name in ("gpu-group", "gpu-group-again")]
        self.assertEqual(group[0], group[1])
        self.assertEqual(texts(group[0]), texts(want))
        self.assertLess(abs(rewards(group[0]) - rewards(want)).max(), 1e-4)

    def test_bad_input_is_refused(self):
        for task, message in (({"n": 5000}, "tasks.0.n"), ({"cuts": 100, "n": 100}, "at most 4096"), ({"reward": {}}, "no reward"), ({"reward": {"judge": {"model": {"path": "x"}, "mode": "choice"}}}, "known: reference, simpleqa, rubric"),
                              ({"reward": {"judge": {"model": {"path": "x"}}, "verifier": "exact"}}, "a text has one reward"),
                              ({"temperature": 0}, "all of them would be the same"), ({"dataset": {"path": str(self.world.data), "tokens": "ids"}}, "rewards are read from texts"),
                              ({"samples_per_example": 4}, "cuts"), ({"roll_in": "guided"}, "greedy")):
            done = self.start(self.command("bad", task))
            self.assertEqual(done.returncode, 78, (task, done.stderr[-500:]))
            self.assertIn(message, done.stderr)
            self.assertRegex(done.stderr, r"bad\.yaml:\d+:\d+")
        missing = self.start(self.command("bad", {"reward": {"verifier": "exact", "answer": "wrong"}, "dataset": {"path": str(self.world.data), "text": "text"}}))
        self.assertEqual(missing.returncode, 65, missing.stderr[-500:])
        self.assertIn("data.jsonl", missing.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
