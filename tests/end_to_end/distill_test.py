"""Task train with `objective: distill`, and models that earlier tasks train. Losses, norms and weights against torch.autograd and AdamW on
what h5py reads from the teacher's file, for every loss, tail and encoding; the same bits on any number of ranks and after kills, also where
one experiment holds the teacher, the student and who uses it; what is refused, and by which words.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
from safetensors.torch import load_file

import tiny_world
from by_torch import adamw_steps
from teacher_encodings_test import unpacked
from train_test import ASSISTANT

sys.path.insert(0, str(tiny_world.ROOT / "tests/tasks"))
from teacher_rows_test import commit_again  # noqa: E402

LOSSES, TAILS = ("forward_kl", "reverse_kl", "js", "total_variation"), ("bucket", "none", "renormalised", "renormalised_both", "gold")
# Relative differences of loss, learning rate, gradient's norm and weights; measured 3.3e-7, 4.7e-8, 5.1e-6, 1.2e-6 from f64
# (the largest of AVX-512, AVX2 and ATen's plain code: AdamW divides small gradients by their own size, so their last bits are seen).
LIMITS = (1e-6, 1.5e-7, 2.5e-5, 3.5e-6)
HEAD = """name: @name
seed: 3
output: {directory: @runs}
layout: {devices: cpu}
model: {path: STUDENT}
tasks:
"""
TEACHER = """  - task: teacher_logits
    name: NAME
    model: {path: TEACHER}
    dataset: {path: DATA, key: id}
    max_length: 96
    unit_tokens: 64
    encoding: ENCODING
    top_k: TOP_K
"""
STUDENT = """  - task: train
    name: NAME
    objective: distill
    teacher: FILE
    distill: OPTIONS
    train: {epochs: 2, global_batch: 2, max_length: LENGTH, save_every: 3, shuffle: false, optimizer: {lr: 2.0e-3, schedule: cosine, warmup: 2, weight_decay: 0.1}}
"""
WRITER = """  - task: generate
    model: MODEL
    dataset: {path: @data, key: id, limit: 3}
    max_new_tokens: 6
    max_prompt_length: 512
"""


def filled(text, **values):
    for name, value in values.items():
        text = text.replace(name.upper(), str(value))
    return text


class TeacherRows:
    """A teacher's file by h5py: of every row the probabilities of its kept entries (of samples: weights) over the whole vocabulary."""

    def __init__(self, path):
        with h5py.File(path) as file:
            columns = {name: file["teacher"][name][:] for name in file["teacher"]}
            offset, ids = file["samples/offset"][:].astype("i8"), file["tokens/id"][:].astype("i8")
            attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()}
        self.vocabulary, self.sampled = int(attributes["vocab_size"]), attributes.get("encoding") == "sampled"
        k, bits = columns["top_logprob"].shape[1], (self.vocabulary - 1).bit_length()
        top = columns["top_id"] if "top_id" in columns else unpacked(columns["top_id_packed"], k, bits)
        draws = unpacked(columns["tail_id_packed"], columns["tail_id_packed"].shape[1] * 8 // bits, bits) if self.sampled else None
        dense = numpy.exp(columns["top_logprob"].astype("f8"))
        tail = columns["tail_mass"].astype("f8") if k < self.vocabulary else numpy.zeros(len(dense))
        if not self.sampled and k < self.vocabulary:
            dense *= ((1 - tail) / dense.sum(1))[:, None]
        self.p = numpy.zeros((len(dense), self.vocabulary))
        self.kept = numpy.zeros(self.p.shape, bool)
        numpy.put_along_axis(self.p, top.astype("i8"), dense, 1)
        numpy.put_along_axis(self.kept, top.astype("i8"), True, 1)
        if self.sampled:
            for t in range(len(draws)):
                numpy.add.at(self.p[t], draws[t], tail[t] / draws.shape[1])
        self.tail, self.entropy, self.scored = tail, columns["entropy"].astype("f8"), ~numpy.isnan(columns["target_logprob"])
        self.ids, self.ranges = ids, list(zip(offset[:-1], offset[1:]))

    def loss(self, logits, rows, labels, options):
        """Of each row: logits f64 [R, V], and the rows' places in the file. What the teacher gives to tokens beyond the student's is as if it were not kept."""
        label = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
        ce = -torch.log_softmax(logits, 1)[label]
        T, beta = options.get("temperature", 1.0), options.get("beta", 0.5)
        p, kept, tail = torch.from_numpy(self.p[rows]), torch.from_numpy(self.kept[rows]), torch.from_numpy(self.tail[rows])
        if T != 1 and logits.shape[1] != self.vocabulary:
            p = p ** (1 / T) / (p ** (1 / T)).sum(1, keepdim=True)
        more = (0, logits.shape[1] - self.vocabulary)
        tail = tail + p[:, logits.shape[1]:].sum(1)
        p, kept = torch.nn.functional.pad(p, more), torch.nn.functional.pad(kept, more)
        log_q = torch.log_softmax(logits / T, 1)
        if self.sampled:
            return options.get("weight", 1.0) * (-(p * log_q).sum(1) - torch.from_numpy(self.entropy[rows])) + options.get("lm_weight", 0.0) * ce
        tails, q = options.get("tail", "bucket"), log_q.exp()
        if tails == "gold":
            p, kept = p + label * tail[:, None], kept | label
        padded = logits.shape[1] != self.vocabulary
        p, q = torch.where(kept, p if padded else p ** (1 / T), 0.0), torch.where(kept, q, 0.0)
        if (T != 1 and not padded) or tails.startswith("renormalised"):  # another temperature is only asked where no tail is left
            p = p / p.sum(1, keepdim=True)
        if tails == "renormalised_both":
            q = q / q.sum(1, keepdim=True)
        if tails == "bucket" and not kept.all():
            p, q = torch.cat([p, tail[:, None]], 1), torch.cat([q, 1 - q.sum(1, keepdim=True)], 1)
        m = beta * p + (1 - beta) * q

        def kl(a, b):
            return torch.where(a > 0, a * (torch.where(a > 0, a, 1.0).log() - torch.where(a > 0, b, 1.0).log()), 0.0).sum(1)
        distance = {"forward_kl": lambda: kl(p, q), "reverse_kl": lambda: kl(q, p), "js": lambda: beta * kl(p, m) + (1 - beta) * kl(q, m),
                    "total_variation": lambda: (p - q).abs().sum(1) / 2}[options.get("loss", "forward_kl")]()
        return options.get("weight", 1.0) * distance * T * T + options.get("lm_weight", 0.0) * ce

    def steps(self, folder, options, max_length, global_batch=2, epochs=2):
        """-> as adamw_steps: samples in order, those without a scored row take no part."""
        cut = [(begin, min(end, begin + max_length)) for begin, end in self.ranges]
        parts = [(begin, end) for begin, end in cut if self.scored[begin:max(begin, end - 1)].any()]
        batches = [parts[i:i + global_batch] for _ in range(epochs) for i in range(0, len(parts), global_batch)]

        def loss_of(model, batch):
            padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(self.ids[begin:end]) for begin, end in batch], batch_first=True)
            logits = model(padded).logits
            places = [(b, t, begin + t) for b, (begin, end) in enumerate(batch) for t in range(end - begin - 1) if self.scored[begin + t]]
            b, t, rows = numpy.array(places).T
            return self.loss(logits[b, t], rows, torch.from_numpy(self.ids[rows + 1]), options).mean(), len(rows)
        return adamw_steps(folder, batches, loss_of, dtype=torch.float64)


class Distill(tiny_world.Refusals, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.big = tiny_world.make_model(cls.folder / "big", seed=1)
        cls.student = tiny_world.make_model(cls.folder / "small", seed=2, hidden_size=24, intermediate_size=40, num_attention_heads=3, num_key_value_heads=1)
        cls.world = tiny_world.World(cls.folder, records=11, model=cls.student, results=("student.h5",))
        cls.vocabulary = json.loads((cls.student / "config.json").read_text())["vocab_size"]
        cls.experiment("".join(cls.teach(name, encoding, top_k) for name, encoding, top_k in (
            ("plain", "plain", 6), ("compact", "compact", 6), ("sampled", "sampled", 4), ("whole", "plain", cls.vocabulary))), "whole.h5")
        cls.world.complete("teach", 1)
        cls.files = {name: cls.folder / f"runs/teach/{name}.h5" for name in ("plain", "compact", "sampled", "whole")}

    @classmethod
    def experiment(cls, tasks, *results):
        """@name, @runs and @data are tiny_world's to fill in."""
        text = (filled(HEAD, student=cls.student) + tasks).replace("{", "{{").replace("}", "}}")
        for name in ("name", "runs", "data"):
            text = text.replace("@" + name, "{" + name + "}")
        cls.world.text, cls.world.names = text, results or ("student.h5",)

    @classmethod
    def teach(cls, name="teacher", encoding="plain", top_k=6, data="@data"):
        return filled(TEACHER, name=name, teacher=cls.big, data=data, encoding=encoding, top_k=top_k)

    @classmethod
    def distillation(cls, teacher, options=(), name="student", length=96):
        """teacher: a task, or a file."""
        source = {"results" if isinstance(teacher, pathlib.Path) else "task": str(teacher)}
        return filled(STUDENT, name=name, file=json.dumps(source), options=json.dumps(dict(options)), length=length)

    def setUp(self):
        self.experiment(self.distillation(self.files["compact"], {"lm_weight": 0.25}))

    def folder_of(self, name, task="student"):
        return self.folder / "runs" / name / task

    def compare(self, name, task, rows, options, max_length=96, student=None):
        model, expected = rows.steps(student or self.student, options, max_length)
        with h5py.File(self.folder_of(name, task).with_suffix(".h5")) as file:
            found = {key: file[f"train/{key}"][()] for key in ("loss", "lr", "grad_norm", "tokens")}
            self.assertEqual(file.attrs["objective"], b"distill")
        self.assertEqual(found["tokens"].tolist(), expected[:, 3].tolist())
        self.assertGreaterEqual(len(expected), 10)
        weights = load_file(self.folder_of(name, task) / "model.safetensors")
        scale = numpy.maximum(numpy.abs(expected), [0.1, 1e-9, 1e-3, 1])  # a loss without its tail may pass 0
        apart = [(numpy.abs(found[key] - expected[:, i]) / scale[:, i]).max() for i, key in enumerate(("loss", "lr", "grad_norm"))]
        return apart + [max((weights[key] - value).norm() / value.norm() for key, value in model.state_dict().items()).item()]

    def test_every_loss_and_tail_against_torch(self):
        """One run trains all of these students; every second one cuts its samples."""
        students, text = {}, ""
        for i, (loss, tail) in enumerate((loss, tail) for loss in LOSSES for tail in TAILS):
            for encoding in ("plain", "compact"):
                options = {"loss": loss, "tail": tail, **({"beta": 0.3} if loss == "js" else {}), **({"weight": 0.7, "lm_weight": 0.2} if i % 3 == 0 else {})}
                students[f"{loss}-{tail}-{encoding}"] = (encoding, options, 40 if i % 2 else 96)
        for loss in LOSSES[:3]:
            students[f"{loss}-hot"] = ("whole", {"loss": loss, "temperature": 2.0, "lm_weight": 0.5}, 96)
        students["renormalised-hot"] = ("plain", {"tail": "renormalised", "temperature": 1.5}, 96)
        students["sampled"] = ("sampled", {"lm_weight": 0.1}, 96)
        for name, (file, options, max_length) in students.items():
            text += self.distillation(self.files[file], options, name, max_length)
        self.experiment(text, f"{name}.h5")
        self.world.complete("losses", 1)
        rows = {name: TeacherRows(path) for name, path in self.files.items()}
        worst = [0.0] * 4
        for name, (file, options, max_length) in students.items():
            with self.subTest(name):
                apart = self.compare("losses", name, rows[file], options, max_length)
                worst = [max(pair) for pair in zip(worst, apart)]
                for value, most in zip(apart, LIMITS):
                    self.assertLess(value, most)
        print("largest differences of loss, lr, norm, weights:", [f"{value:.1e}" for value in worst])

    def test_tables_of_one_tokenizer_with_other_paddings(self):
        """Qwen2.5: 7B has more rows than 0.5B, of one tokenizer. Its files are written otherwise, too: a stored truncation, other white space, merges as texts."""
        small = dict(seed=2, hidden_size=24, intermediate_size=40, num_attention_heads=3, num_key_value_heads=1)
        big, wide = (tiny_world.make_model(self.folder / name, vocab_size=self.vocabulary + 64, **settings) for name, settings in (("padded-big", {"seed": 1}), ("padded-small", small)))
        for folder in (big, wide):
            tokenizer = json.loads((folder / "tokenizer.json").read_text())
            tokenizer["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
            tokenizer["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1))
        taught = {"plain": 40, "compact": 40, "sampled": 30, "whole": self.vocabulary + 64}
        text = "".join(self.teach(f"wide-{name}", "plain" if name == "whole" else name, top_k) for name, top_k in taught.items()).replace(str(self.big), str(big))
        students = {}
        for name, options in (("plain", {"lm_weight": 0.2}), ("plain", {"loss": "reverse_kl"}), ("plain", {"tail": "none"}), ("plain", {"tail": "gold"}), ("compact", {"tail": "renormalised"}),
                              ("compact", {"tail": "renormalised_both", "loss": "js"}), ("sampled", {}), ("whole", {}), ("whole", {"temperature": 2.0}), ("whole", {"tail": "renormalised"})):
            students[f"{name}-{len(students)}"] = (f"wide-{name}", options, self.student)
        students |= {"larger": ("plain", {"lm_weight": 0.2}, wide), "larger-whole": ("whole", {}, wide)}
        for name, (file, options, student) in students.items():
            text += self.distillation(self.files[file] if file in self.files else file, options, name) + f"    model: {{path: {student}}}\n"
        self.experiment(text, f"{name}.h5")
        self.world.complete("paddings", 2)
        rows = {file: TeacherRows(self.files[file] if file in self.files else self.folder_of("paddings", f"{file}.h5")) for file, _, _ in students.values()}
        beyond = (rows["wide-plain"].p * rows["wide-plain"].kept)[:, self.vocabulary:].sum(1).mean()
        self.assertGreater(beyond, 0.02, "entries beyond the student's table would show nothing")
        for name, (file, options, student) in students.items():
            with self.subTest(name):
                for value, most in zip(self.compare("paddings", name, rows[file], options, student=student), LIMITS):
                    self.assertLess(value, most)

    def test_a_whole_vocabulary_is_the_full_divergence(self):
        """Where every entry is kept, all tails but that of the label's own are one loss: of whole distributions."""
        self.experiment("".join(self.distillation(self.files["whole"], {"tail": tail}, tail) for tail in TAILS), "gold.h5")
        self.world.complete("whole", 1)
        curves = []
        for tail in TAILS:
            with h5py.File(self.folder_of("whole", tail).with_suffix(".h5")) as file:
                curves.append(file["train/loss"][()])
        for curve in curves[1:]:
            numpy.testing.assert_allclose(curve, curves[0], rtol=3e-5, atol=1e-6)

    def content(self, name):
        """Everything that must not depend on ranks and restarts."""
        return self.world.sha256(name), (self.folder_of(name) / "model.safetensors").read_bytes()

    def finish(self, name, ranks):
        """The killed job's orphans may live for two seconds; until then the lock refuses with 74."""
        tiny_world.wait_until(lambda: self.world.run(name, ranks).returncode == 0, seconds=60, pause=0.3)

    def test_ranks_kills_and_stops_change_nothing(self):
        self.world.complete("bits", 1)
        one = self.content("bits")
        for ranks, threads in ((2, "1"), (3, "1"), (4, "1"), (1, "2")):
            self.world.forget("bits")
            self.world.complete("bits", ranks, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        for number, point in enumerate(("train.step.begin@6:kill", "train.save.begin@2:kill")):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, MAGISTER_FAIL_POINT=point).returncode, 0)
            self.finish("bits", 1 + 2 * number)
            self.assertEqual(self.content("bits"), one, point)
        self.world.forget("bits")
        done = self.world.interrupted("train.step.begin@5", signal.SIGTERM, "bits", 2)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertTrue(any(self.folder_of("bits").with_suffix(".checkpoints").glob("*.safetensors")))
        self.finish("bits", 3)
        self.assertEqual(self.content("bits"), one)
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results("bits")], check=True, capture_output=True)

    def test_another_teacher_under_the_same_name_is_refused(self):
        path = self.folder / "teacher.h5"
        self.experiment(self.distillation(path, {"lm_weight": 0.25}))
        shutil.copy(self.files["plain"], path)
        self.assertNotEqual(self.world.run("swap", 1, MAGISTER_FAIL_POINT="train.step.begin@5:kill").returncode, 0)
        os.chmod(path, 0o644)
        shutil.copy(self.files["compact"], path)
        self.refused("swap", 78, "dataset_sha256")
        # The state of a step, put beside tokens of another teacher.
        state, = self.folder_of("swap").with_suffix(".checkpoints").glob("*.safetensors")
        other = self.folder_of("other").with_suffix(".checkpoints")
        self.assertNotEqual(self.world.run("other", 1, MAGISTER_FAIL_POINT="train.step.begin@2:kill").returncode, 0)
        other.mkdir(exist_ok=True)
        shutil.copy(state, other)
        self.refused("other", 78, "another experiment")

    def test_rows_that_were_not_scored_are_not_learnt(self):
        data, template = self.folder / "chats.jsonl", self.folder / "template.jinja"
        template.write_text(ASSISTANT)
        records = [json.loads(line) for line in self.world.data.read_text().splitlines()]
        data.write_text("".join(json.dumps({"id": str(i), "m": [{"role": "user", "content": r["text"][:30]}, {"role": "assistant", "content": r["text"][30:90]}]}) + "\n"
                                for i, r in enumerate(records)))
        teach = self.teach(data=data).replace("key: id", "key: id, messages: m")
        teach = teach.replace(str(self.big), f"{self.big}, chat_template: {template}") + "    score: assistant\n"
        self.experiment(teach + self.distillation("teacher", {"lm_weight": 0.5}))
        self.world.complete("masked", 2)
        rows = TeacherRows(self.folder_of("masked", "teacher.h5"))
        self.assertTrue(0.2 < rows.scored.mean() < 0.9)
        apart = self.compare("masked", "student", rows, {"lm_weight": 0.5})
        for value, most in zip(apart, LIMITS):
            self.assertLess(value, most)

    def test_what_is_refused(self):
        d, t = "tasks.0.distill.", "tasks.0.teacher"
        plain = self.files["plain"]
        one_token = self.folder / "one.jsonl"
        one_token.write_text(json.dumps({"id": "a", "text": "a"}) + "\n")
        self.experiment(self.teach(data=one_token), "teacher.h5")
        self.world.complete("one", 0)
        self.setUp()
        partial = self.folder / "begun.h5"
        shutil.copy(plain, f"{partial}.partial")
        shifted = self.folder / "shifted.h5"
        shutil.copy(plain, shifted)
        os.chmod(shifted, 0o644)
        with h5py.File(shifted, "r+") as file:
            for column in ("top_id", "top_logprob"):
                file["teacher"][column][:] = numpy.roll(file["teacher"][column][:], 1, 0)
        commit_again(shifted)
        foreign = shutil.copytree(self.student, self.folder / "foreign")
        tokenizer = json.loads((foreign / "tokenizer.json").read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
        (foreign / "tokenizer.json").write_text(json.dumps(tokenizer))
        for number, (code, words, *overrides) in enumerate((
                (78, "tasks.0.dataset: is given with objective: distill", "tasks.0.dataset.path=x.jsonl"),
                (78, "is given with objective: distill", "tasks.0.slice=0/2"), (78, "append_eos: is given", "tasks.0.train.append_eos=true"),
                (78, "is given with", "tasks.0.assistant_only_loss=true"), (78, "tasks.0.teacher: is given with another objective", "tasks.0.objective=lm", "tasks.0.dataset.path=x.jsonl"),
                (78, "`results` and `task` are there", f"{t}.task=teacher"),
                (78, "known: forward_kl", d + "loss=kl"), (78, "known: bucket", d + "tail=ghost"), (78, "without `loss: js`", d + "beta=0.5"),
                (78, "out of range", d + "beta=1.5", d + "loss=js"), (78, "out of range", d + "temperature=0"), (78, "nothing would be learnt", d + "weight=0", d + "lm_weight=0"),
                (78, "rows are samples", f"{t}.results={self.files['sampled']}", d + "loss=reverse_kl"), (78, "rows are samples", f"{t}.results={self.files['sampled']}", d + "temperature=2"),
                (78, "they have no tail", f"{t}.results={self.files['sampled']}", d + "tail=gold"),
                (74, "none.h5", f"{t}.results={self.folder / 'none.h5'}"), (65, "is not complete", f"{t}.results={partial}"),
                (65, "rows are shifted", f"{t}.results={shifted}"), (65, "has a row to learn from", f"{t}.results={self.folder / 'runs/one/teacher.h5'}"),
                (65, "tokenizer_sha256", f"model.path={foreign}"),
                (78, "not read as data sets", f"{t}.results={self.folder / 'small'}/config.ini"))):
            with self.subTest(overrides=overrides):
                self.refused(f"refused-{number}", code, words, overrides=overrides)
        for number, (words, source) in enumerate((("neither `results` nor `task` is there", "{}"), ("no teacher_logits task of that name", "{task: teacher}"))):
            self.experiment(self.distillation("x").replace('{"task": "x"}', source))
            self.refused(f"source-{number}", 78, words)
        self.experiment(self.distillation("x").replace('{"task": "x"}', "teacher.h5"))
        said = self.refused("source-scalar", 78, "write teacher: {results: teacher.h5}")
        self.assertNotIn("neither", said, "what the missing map lacks is no second fault")
        # Before the teacher has computed anything.
        self.experiment(self.teach() + self.distillation("teacher"))
        for number, (code, words, *overrides) in enumerate((
                (65, "tokenizer_sha256", f"model.path={foreign}"),
                (78, "did you mean teacher?", "tasks.1.teacher.task=techer"), (78, "student is this task itself", "tasks.1.teacher.task=student"))):
            with self.subTest(overrides=overrides, first=True):
                self.refused(f"early-{number}", code, words, overrides=overrides)
                self.assertFalse((self.folder_of(f"early-{number}", "teacher.h5.partial")).exists())

    def plan(self, name):
        done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment(name))], env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"},
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_experiment_teaches_learns_and_writes(self):
        """A teacher's file and a student's weights that earlier tasks make, on 1 and 2 ranks, killed in each of the three tasks."""
        self.experiment(self.teach(encoding="compact") + self.distillation("teacher", {"lm_weight": 0.25}) + filled(WRITER, model="{task: student}"),
                        "teacher.h5", "student.h5", "answers.h5")
        before = self.plan("chain")
        for words in ("unknown until the tasks before this one have run", f"not there yet; planned with {self.student}, from which student starts"):
            self.assertIn(words, before)
        self.world.complete("chain", 1)
        one = self.content("chain")
        after = self.plan("chain")
        self.assertEqual(after.count("complete: nothing to do"), 3)
        self.world.forget("chain")
        for ranks, point in ((2, "teacher.unit.computed@2:kill"), (1, "train.step.begin@5:kill"), (2, "train.folder.written:kill"), (2, "generate.record.done@2:kill")):
            tiny_world.wait_until(lambda: self.world.run("chain", ranks, MAGISTER_FAIL_POINT=point).returncode not in (0, 74), seconds=60, pause=0.3)
        self.finish("chain", 1)
        self.assertEqual(self.content("chain"), one)
        # The same student as a folder writes the same texts; as other weights it is another model.
        texts = self.texts("chain")
        self.experiment(filled(WRITER, model=f"{{path: {self.folder_of('chain')}}}"), "answers.h5")
        self.world.complete("folder", 1)
        self.assertEqual(self.texts("folder"), texts)

    def texts(self, name):
        with h5py.File(self.folder_of(name, "answers.h5")) as file:
            return file["generate/text"][()].tolist(), str(file.attrs["model_sha256"])

    def test_a_student_that_learns_anew_is_another_model(self):
        second = self.distillation(self.files["plain"], {"loss": "js"}, "second").replace("    objective", "    model: {task: student}\n    objective")
        self.experiment(self.distillation(self.files["plain"]) + second + filled(WRITER, model="{task: second}"), "student.h5", "second.h5", "answers.h5")
        self.world.complete("anew", 1)
        first = self.world.sha256("anew")
        for name in ("student.h5", "student"):
            path = self.folder_of("anew", name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.folder_of("anew").with_suffix(".checkpoints"))
        done = self.world.run("anew", 0, "tasks.0.train.epochs=1")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("model_sha256", done.stderr)
        self.world.complete("anew", 1, "--fresh")
        self.assertEqual(self.world.sha256("anew"), first)
        shutil.rmtree(self.folder_of("anew"))
        done = self.world.run("anew", 0)
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertIn("student: is not there, though", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
