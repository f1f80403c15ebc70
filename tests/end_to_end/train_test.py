"""Task train: losses, weights and curves against torch and transformers; the same bits on any number of ranks and threads, after kills and
stops; the folder is a model for both programs; states that are not ours, cut or changed, and bad input are refused.
"""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import tiny_world
from by_torch import adamw_steps

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    dataset: {{path: {data}, key: id}}
    train: {{epochs: 2, global_batch: 4, max_length: 96, save_every: 3, optimizer: {{lr: 2.0e-3, schedule: cosine, warmup: 2}}}}
"""
PLAIN = ("tasks.0.train.shuffle=false", "tasks.0.train.optimizer.weight_decay=0.1")
ASSISTANT = ("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
             "{% else %}{{ m.content }}{% endif %}{{ '\\n' }}{% endfor %}")


class Train(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=26, text=EXPERIMENT, results=("student.h5",))
        cls.records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))

    def setUp(self):
        self.model = self.world.model

    def tearDown(self):
        self.world.model = self.model

    def train(self, name, ranks=1, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.curves(name)

    def curves(self, name):
        with h5py.File(self.world.results(name)) as file:
            self.assertEqual(file.attrs["format"], b"magister.train")
            return {key: file[f"train/{key}"][()] for key in ("step", "loss", "lr", "grad_norm", "tokens")}

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def content(self, name):
        """Everything that must not depend on ranks and restarts."""
        return self.world.sha256(name), (self.student(name) / "model.safetensors").read_bytes()

    def by_torch(self, sequences, labels, global_batch, epochs, weight_decay=0.1):
        """Sequences in order, each alone; -> the model, and a row a step."""
        steps = [begin for _ in range(epochs) for begin in range(0, len(sequences), global_batch)]

        def loss_of(model, begin):
            batch = list(zip(sequences[begin:begin + global_batch], labels[begin:begin + global_batch]))
            tokens = sum(sum(learnt[1:]) for _, learnt in batch)
            loss = 0
            for ids, learnt in batch:
                targets = torch.tensor([token if use else -100 for token, use in zip(ids[1:], learnt[1:])])
                loss = loss + torch.nn.functional.cross_entropy(model(torch.tensor([ids])).logits[0, :-1], targets, reduction="sum") / tokens
            return loss, tokens
        return adamw_steps(self.model, steps, loss_of, weight_decay=weight_decay)

    def compare(self, name, found, model, expected):
        self.assertEqual(found["step"].tolist(), list(range(1, len(expected) + 1)))
        self.assertEqual(found["tokens"].tolist(), expected[:, 3].tolist())
        weights = load_file(self.student(name) / "model.safetensors")
        apart = {key: (numpy.abs(found[key] - expected[:, i]) / numpy.maximum(expected[:, i], 1e-9)).max() for i, key in enumerate(("loss", "lr", "grad_norm"))}
        apart["weights"] = max((weights[key] - value).norm() / value.norm() for key, value in model.state_dict().items()).item()
        print(name, {key: f"{value:.1e}" for key, value in apart.items()}, f"loss {expected[0, 0]:.2f} to {expected[-1, 0]:.2f}")
        self.assertLess(apart["loss"], 1e-5)
        self.assertLess(apart["lr"], 1e-6)
        self.assertLess(apart["grad_norm"], 1e-4)
        self.assertLess(apart["weights"], 1e-5)
        self.assertGreater(expected[0, 0] - expected[-1, 0], 0.2)

    def test_texts_against_torch(self):
        """Micro-batches of several sequences on one side, each alone on the other; an empty record takes no part."""
        found = self.train("texts", 1, *PLAIN)
        sequences = [(self.tokenizer.encode(record["text"]).ids + [2])[:96] for record in self.records]
        sequences = [ids for ids in sequences if len(ids) > 1]
        model, expected = self.by_torch(sequences, [[1] * len(ids) for ids in sequences], 4, 2)
        self.assertLess(len(sequences), len(self.records))
        self.compare("texts", found, model, expected)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(self.student("texts"))
        self.assertEqual(loaded.dtype, torch.float32)
        with torch.no_grad():
            want = model(torch.tensor([sequences[0]])).logits
            torch.testing.assert_close(loaded(torch.tensor([sequences[0]])).logits, want, atol=1e-4, rtol=1e-4)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("texts")], check=True, capture_output=True)
        joined = subprocess.run([tiny_world.PROGRAM, "merge", self.folder / "joined.h5", self.world.results("texts")], check=False, capture_output=True, text=True)
        self.assertEqual((joined.returncode, "curves of a training" in joined.stderr), (65, True), joined.stderr)
        # The curves as text: a line a step.
        lines = subprocess.run([tiny_world.PROGRAM, "export", self.world.results("texts"), "--to", "jsonl"], check=True, capture_output=True, text=True).stdout
        rows = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual([row["step"] for row in rows], found["step"].tolist())
        numpy.testing.assert_allclose([row["loss"] for row in rows], found["loss"], rtol=1e-7)
        # The program reads it, too: its own loss of the first record.
        text, self.world.text, self.world.model = self.world.text, tiny_world.EXPERIMENT, self.student("texts")
        names, self.world.names = self.world.names, ("teacher.h5",)
        try:
            self.world.complete("use", 1, "tasks.0.dataset.limit=1")
            with h5py.File(self.world.results("use")) as file:
                logprob = file["teacher/target_logprob"][:len(sequences[0]) - 2]
        finally:
            self.world.text, self.world.names = text, names
        expected = want[0].log_softmax(-1)[range(len(logprob)), sequences[0][1:len(logprob) + 1]].detach().numpy()
        numpy.testing.assert_allclose(logprob, expected, atol=1e-4)

    def test_chats_learn_the_assistant_alone(self):
        data = self.folder / "chats.jsonl"
        chats = [[{"role": "user", "content": record["text"][:40]}, {"role": "assistant", "content": record["text"][40:200]}]
                 for record in self.records if len(record["text"]) > 60]
        data.write_text("".join(json.dumps({"id": str(i), "m": chat}) + "\n" for i, chat in enumerate(chats)))
        template = self.folder / "template.jinja"
        template.write_text(ASSISTANT)
        found = self.train("chats", 2, *PLAIN, f"tasks.0.dataset.path={data}", "tasks.0.dataset.messages=m", "tasks.0.assistant_only_loss=true",
                           f"model.chat_template={template}", "tasks.0.train.packing=true", "tasks.0.train.global_batch=100", "tasks.0.train.steps=2")
        sequences, labels = [], []
        for user, assistant in ((chat[0]["content"], chat[1]["content"]) for chat in chats):
            encoded = self.tokenizer.encode(f"{user}\n{assistant}\n")
            sequences.append(encoded.ids[:96])
            begin, end = len(user) + 1, len(user) + 1 + len(assistant)
            labels.append([int(a < end and b > begin) for a, b in encoded.offsets][:96])
        kept = [i for i, learnt in enumerate(labels) if sum(learnt[1:]) > 0]
        sequences, labels = [sequences[i] for i in kept], [labels[i] for i in kept]
        _, expected = self.by_torch(sequences, labels, len(sequences), 2)
        self.assertEqual(found["tokens"].tolist(), expected[:, 3].tolist())
        numpy.testing.assert_allclose(found["loss"], expected[:, 0], rtol=1e-5)

    def test_ranks_threads_kills_and_stops_change_nothing(self):
        self.train("bits", 1)
        one = self.content("bits")
        for ranks, threads, zero in ((2, "1", 1), (3, "1", 0), (4, "1", 1), (8, "1", 1), (1, "2", 0)):
            self.world.forget("bits")
            self.train("bits", ranks, f"tasks.0.train.zero={zero}", OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks, zero {zero}")
        # Sums in any order: other bits, the same numbers.
        self.train("fast", 1, "layout.collectives=fast")
        fast = self.train("fast-three", 3, "layout.collectives=fast")
        alone, found = self.curves("fast"), self.curves("bits")
        numpy.testing.assert_array_equal(alone["loss"], found["loss"])
        self.assertLess(abs(fast["loss"] / found["loss"] - 1).max(), 3e-6)
        # States are those of a whole optimizer: one that is divided goes on as one that is not, and the other way.
        for number, point in enumerate(("train.step.begin@6:kill", "train.save.begin@2:kill", "train.folder.written:kill")):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, f"tasks.0.train.zero={1 - number % 2}", MAGISTER_FAIL_POINT=point).returncode, 0)
            self.finish("bits", 3 - number % 3, f"tasks.0.train.zero={number % 2}")
            self.assertEqual(self.content("bits"), one, point)
        # SIGTERM between two steps: a state is saved, and nothing is computed twice.
        self.world.forget("bits")
        done = self.world.interrupted("train.step.begin@5", signal.SIGTERM, "bits", 2)
        self.assertEqual(done.returncode, 75, done.stderr)
        states = self.student("bits").with_suffix(".checkpoints")
        self.assertTrue(any(states.glob("*.safetensors")))
        self.assertFalse(self.world.results("bits").exists())
        self.finish("bits", 3)
        self.assertEqual(self.content("bits"), one)
        self.assertEqual(len(list(states.glob("*.safetensors"))), 2)  # the last that stay
        again = self.world.run("bits", 1)
        self.assertIn("complete already", again.stderr + again.stdout)

    def finish(self, name, ranks, *arguments):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        tiny_world.wait_until(lambda: self.world.run(name, ranks, *arguments).returncode == 0, seconds=60, pause=0.3)

    def test_a_rank_that_waits_for_slow_gradients_is_not_stuck(self):
        """Each parameter's gradient of rank 1 takes a tenth of a second, eight micro-batches some twenty; rank 0 has added its own long before."""
        keys = ("tasks.0.train.epochs=1", "tasks.0.train.steps=1", "tasks.0.train.global_batch=16", "tasks.0.train.micro_batch=1", "run.watchdog_seconds=4")
        self.train("waits", 2, *keys, MAGISTER_FAIL_POINT="train.gradient.part/1:slow")
        self.world.forget("waits")
        done = self.world.run("waits", 2, *keys, MAGISTER_FAIL_POINT="train.gradient.part@9/1:hang")
        self.assertEqual(done.returncode, 70, done.stderr)
        self.assertIn("in phase train (unit 0) for ", done.stderr)

    def test_a_state_of_another_slice_is_refused(self):
        """Texts of one length have the same plan in both."""
        text, data = self.world.text, self.folder / "equal.jsonl"
        data.write_text("".join(json.dumps({"id": str(i), "ids": [(7 * i + t) % 300 for t in range(16)]}) + "\n" for i in range(16)))
        self.world.text = text.replace("key: id}}", "key: id, tokens: ids}}").replace("{data}", str(data)).replace("  - task: train\n", "  - task: train\n    slice: 0/2\n")
        try:
            self.train("slices", 1)
            shutil.rmtree(self.student("slices"))
            self.world.results("slices").unlink()
            self.refused("slices", 78, "another experiment", overrides=("tasks.0.slice=1/2",))
            self.train("slices", 1)
        finally:
            self.world.text = text

    def test_a_refused_state_leaves_no_file_in_the_way(self):
        """Results were removed and their states were not: the wrong experiment is refused as often as it is tried, and then the right one runs."""
        self.train("left")
        whole = self.content("left")
        shutil.rmtree(self.student("left"))
        self.world.results("left").unlink()
        folder = self.world.results("left").parent
        states = self.student("left").with_suffix(".checkpoints")
        before = sorted(path.name for path in folder.iterdir())
        for ranks in (1, 2, 1):
            done = self.world.run("left", ranks, "tasks.0.train.optimizer.lr=1.0e-3")
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertEqual(done.stderr.count("belongs to another experiment (train.optimizer.lr is 0.002 in it and 0.001 in "), 1, done.stderr)
            self.assertEqual(sorted(path.name for path in folder.iterdir()), before)
        for state in states.glob("*.safetensors"):
            state.rename(state.with_suffix(".kept"))
            state.write_bytes(b"")
        self.refused("left", 65, "cut short or damaged")
        self.assertEqual(sorted(path.name for path in folder.iterdir()), before)
        for state in states.glob("*.kept"):
            state.rename(state.with_suffix(".safetensors"))
        done = self.world.run("left", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("continues after step", done.stdout + done.stderr)
        self.assertEqual(self.content("left"), whole)

    def test_states_that_are_refused(self):
        stop = dict(MAGISTER_FAIL_POINT="train.step.begin@5:kill")
        self.world.run("states", 1, **stop)
        (state,) = self.student("states").with_suffix(".checkpoints").glob("*.safetensors")
        whole = state.read_bytes()
        changed = bytearray(whole)
        changed[-100] ^= 4
        newer = whole.replace(b'"version":"1"', b'"version":"7"')
        fewer = whole.replace(b'"updates":"3"', b'"updates":"2"')
        later = whole.replace(b'"step":"3"', b'"step":"9"')
        self.assertEqual(len({whole, newer, fewer, later}), 4)
        for content, words in ((whole[:-8], "cut short or damaged"), (bytes(changed), "sha256 differs"), (newer, "newer version"), (b"", "cut short"),
                               (fewer, "sha256 differs"), (later, "what its metadata says")):
            state.write_bytes(content)
            self.refused("states", 65, words, str(state))
        state.write_bytes(whole)
        # Another experiment's, under the name of this one.
        self.world.run("other", 1, "tasks.0.train.optimizer.lr=1.0e-3", **stop)
        (other,) = self.student("other").with_suffix(".checkpoints").glob("*.safetensors")
        state.write_bytes(other.read_bytes())
        self.refused("states", 78, "another experiment (train.optimizer.lr is 0.001 in it and ")
        state.unlink()
        done = self.world.run("states", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        # --fresh puts everything aside.
        first = self.content("states")
        self.train("states", 1, "--fresh")
        self.assertEqual(self.content("states"), first)
        self.assertTrue(self.student("states").with_name("student.previous-1").is_dir())

    def test_a_damaged_state_is_put_aside_where_an_older_one_is_sound(self):
        self.train("damaged")
        whole = self.content("damaged")
        self.world.forget("damaged")
        stop = dict(MAGISTER_FAIL_POINT="train.step.begin@9:kill")
        self.assertNotEqual(self.world.run("damaged", 1, **stop).returncode, 0)
        older, newest = sorted(self.student("damaged").with_suffix(".checkpoints").glob("*.safetensors"))
        both = {path: path.read_bytes() for path in (older, newest)}

        def damage(path):
            changed = bytearray(both[path])
            changed[-100] ^= 4
            path.write_bytes(changed)
            return bytes(changed)

        # Where none is sound nothing is touched: who decides is a person.
        for path in both:
            damage(path)
        names = sorted(path.name for path in newest.parent.iterdir())
        self.refused("damaged", 65, "sha256 differs", str(newest))
        self.assertEqual(sorted(path.name for path in newest.parent.iterdir()), names)
        older.write_bytes(both[older])
        done = self.world.run("damaged", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{newest.name}: was changed since it was written", done.stderr)
        self.assertIn("continues after step 3", done.stderr)
        self.assertEqual(newest.with_name(newest.name + ".previous-1").read_bytes(), damage(newest))
        self.assertEqual(self.content("damaged"), whole)

    def test_a_kill_between_folder_and_results(self):
        """The folder is made again and stays where nothing in it differs; what differs is put aside."""
        self.train("between")
        whole = self.content("between")
        for changed in (False, True):
            self.world.forget("between")
            self.assertNotEqual(self.world.run("between", 1, MAGISTER_FAIL_POINT="train.folder.renamed:kill").returncode, 0)
            folder = self.student("between")
            self.assertFalse(self.world.results("between").exists())
            before = (folder / "model.safetensors").stat().st_ino
            if changed:
                (folder / "config.json").write_text((folder / "config.json").read_text().replace("float32", "float31"))
            self.train("between")
            self.assertEqual(self.content("between"), whole)
            self.assertEqual([path.name for path in folder.parent.glob("student.*") if "previous" in path.name or "creating" in path.name],
                             ["student.previous-1"] if changed else [])
            self.assertEqual((folder / "model.safetensors").stat().st_ino == before, not changed)

    def test_check_of_an_unfinished_training(self):
        self.world.run("unfinished", 1, MAGISTER_FAIL_POINT="train.step.begin@2:kill")
        running = self.student("unfinished").with_suffix(".running.h5")
        done = subprocess.run([tiny_world.PROGRAM, "check", running], check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (65, ""), done.stderr)
        self.assertRegex(done.stderr, r"is not finished, 0 of \d+ units are committed, and what is there is sound .*run the command that made it again")
        self.assertNotIn("--fresh", done.stderr)

    def test_steps_that_are_skipped(self):
        """One token points along a number of the stream that nothing else touches, and there the head has a row beyond f32's range: its
        sequences have infinite logits, the others do not as long as nothing is learnt (the first step's learning rate is 0)."""
        token = self.tokenizer.encode("über").ids[-1]
        has = [token in self.tokenizer.encode(record["text"]).ids[:96] for record in self.records]
        spoilt = [record for record, found in zip(self.records, has) if found]
        plain = [record for record, found in zip(self.records, has) if not found and record["text"]]
        self.world.model = self.folder / "huge"
        shutil.copytree(self.model, self.world.model)
        weights = load_file(self.model / "model.safetensors")
        for name, weight in weights.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight[0] = 0
        weights["model.embed_tokens.weight"][:, 0] = 0
        weights["model.embed_tokens.weight"][token] = torch.eye(weights["model.norm.weight"].numel())[0] * 1e3
        weights["lm_head.weight"][7] = torch.eye(weights["model.norm.weight"].numel())[0] * 3e38
        save_file(weights, self.world.model / "model.safetensors", metadata={"format": "pt"})
        data = self.folder / "skips.jsonl"
        arguments = (f"tasks.0.dataset.path={data}", *PLAIN, "tasks.0.train.global_batch=2", "tasks.0.train.micro_batch=1", "tasks.0.train.steps=3")

        def write(records):
            data.write_text("".join(json.dumps(record) + "\n" for record in records))
        write((plain[0], plain[1], plain[2], spoilt[0], plain[3], plain[4]))
        done = self.world.run("skips", 2, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 2 is skipped", done.stderr + done.stdout)
        self.assertIn(f"among the records {spoilt[0]['id']} ", done.stderr + done.stdout)
        found = self.curves("skips")
        self.assertEqual((numpy.isfinite(found["loss"]) & numpy.isfinite(found["grad_norm"])).tolist(), [True, False, True])
        self.assertTrue(all(torch.isfinite(value).all() for value in load_file(self.student("skips") / "model.safetensors").values()))
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("skips")], check=True, capture_output=True)
        write((plain[0], spoilt[0], spoilt[1], plain[1], plain[2], spoilt[2]))
        self.refused("three", 65, "3 steps in a row were skipped", spoilt[2]["id"], overrides=arguments)

    def test_what_is_refused(self):
        nothing, empty = self.folder / "nothing.jsonl", self.folder / "empty.jsonl"
        nothing.write_text("")
        empty.write_text(json.dumps({"id": "a", "text": ""}) + "\n")
        chats = self.folder / "no-answer.jsonl"
        chats.write_text(json.dumps({"id": "a", "m": [{"role": "user", "content": "x " * 300}, {"role": "assistant", "content": "y"}]}) + "\n")
        template = self.folder / "refused.jinja"
        template.write_text(ASSISTANT)
        o = "tasks.0.train.optimizer."
        for number, (code, words, *overrides) in enumerate((
                (78, "lr: 0 (nothing would be learnt)", o + "lr=0"), (78, "out of range", o + "lr=-1"), (78, "tasks.0.train.optimizer.lr", o + "lr=nan"),
                (78, "known: linear, cosine, constant", o + "schedule=polynomial"), (78, "neither a part of all steps nor a number of them (below 1 it is a part, else the steps are counted, and none is divided); round it", o + "warmup=1.5"),
                (78, "out of range", o + "beta2=1"), (78, "out of range", o + "weight_decay=-1"), (78, "out of range", o + "clip=-1"),
                (78, "stage 3 of ZeRO", "tasks.0.train.zero=3"), (78, "known: auto, f32, bf16", "tasks.0.train.precision=fp16"),
                (78, "known: lm, distill, dpo, reward", "tasks.0.objective=ppo"), (78, "tasks.0.dataset: is given with objective: distill", "tasks.0.objective=distill"), (78, "did you mean adapter?", "tasks.0.train.lora.rank=8"),
                (78, "out of range", "tasks.0.train.max_length=1"), (78, "was made for 4096 positions", "tasks.0.train.max_length=5000"),
                (78, "out of range", "tasks.0.train.epochs=0"), (78, "out of range", "tasks.0.train.steps=0"), (78, "out of range", "tasks.0.train.global_batch=0"),
                (78, "global_batch", "tasks.0.train.batch_size=8"), (78, "given together with `batch_tokens`", "tasks.0.train.batch_tokens=200"), (78, "5 sequences at once of a step that takes 4", "tasks.0.train.micro_batch=5"),
                (78, "no model here has a batch norm", "tasks.0.train.sync_batch_norm=true"), (78, "without chats", "tasks.0.assistant_only_loss=true"),
                (78, "trained in f32", "model.dtype=bf16"), (78, "cannot be trained", "model.quantization=int8"), (78, "it computes in bf16, and weights", "model.attention=cudnn"), (78, "it is for bf16 and fp8, and weights", "model.decoding=throughput"),
                (78, "kv_cache: fp8 (it is for bf16, and weights", "model.kv_cache=fp8"),
                (78, "group of 2 shards", "layout.shards_per_rank=2"), (65, f"none of the 0 records has a token to learn from in {nothing} (one", f"tasks.0.dataset.path={nothing}"),
                (65, f"none of the 1 records has a token to learn from in {empty} (one",
                                                                       f"tasks.0.dataset.path={empty}", "tasks.0.train.append_eos=false"),
                (65, "may cut the answers off", f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m", "tasks.0.assistant_only_loss=true",
                 f"model.chat_template={template}"))):
            with self.subTest(overrides=overrides):
                self.refused(f"refused-{number}", code, words, overrides=overrides)
        self.world.model = self.folder / "nan"
        shutil.copytree(self.model, self.world.model)
        weights = load_file(self.model / "model.safetensors")
        weights["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
        save_file(weights, self.world.model / "model.safetensors", metadata={"format": "pt"})
        self.refused("refused-nan", 65, "model.layers.1.mlp.up_proj.weight", "not finite")

    def test_plan_counts_the_memory(self):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("plan"))], env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"},
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("gradients", "optimizer", "activations", "steps", "14 of 4 sequences"):
            self.assertIn(word, done.stdout)

    def test_bf16_has_bits_of_its_own(self):
        """The same on any number of ranks; oracle_test.py holds the gradients against torch's with the same casts."""
        contents = []
        for ranks in (1, 3):
            self.world.forget("bf16")
            found = self.train("bf16", ranks, "tasks.0.train.precision=bf16", "tasks.0.train.steps=3")
            contents.append(self.content("bf16"))
        self.assertEqual(*contents)
        plain = self.train("f32", 1, "tasks.0.train.steps=3")
        apart = numpy.abs(found["loss"] / plain["loss"] - 1).max()
        print(f"bf16: losses {apart:.1e} from those of f32")
        self.assertTrue(1e-7 < apart < 1e-2)

    def test_a_divided_optimizer_is_smaller(self):
        """Moments of two ranks, by the plan."""
        def optimizer(ranks, zero):
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), tiny_world.PROGRAM, "plan", str(self.world.experiment("divided")), f"tasks.0.train.zero={zero}"]
            done = subprocess.run(command, env=self.world.environment, cwd=self.folder, capture_output=True, text=True, check=True)
            (line,) = [line for line in done.stdout.splitlines() if "optimizer" in line]
            number, unit = re.search(r"optimizer ([\d.]+) ([KMG]iB)", line).groups()
            return float(number) * 1024 ** "KMG".index(unit[0])
        whole = optimizer(1, 1)
        self.assertEqual(optimizer(2, 0), whole)
        self.assertAlmostEqual(optimizer(2, 1) / whole, 0.5, delta=0.01)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
