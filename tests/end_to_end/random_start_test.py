"""A model that has no weights yet: how they are drawn, what of its own and of another model's files the trained one gets, what is refused."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import gguf
import h5py
import torch
import transformers
from safetensors.torch import load_file

import tiny_world
import train_test

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.05, "rms_norm_eps": 1e-5,
          "rope_theta": 1e4, "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": 0}
FROZEN = "tasks.0.train.optimizer.lr=1.0e-12"


class RandomStart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=12, text=train_test.EXPERIMENT, results=("student.h5",))
        cls.config = cls.folder / "config"
        cls.config.mkdir()
        (cls.config / "config.json").write_text(json.dumps(CONFIG))

    def run_it(self, name, *keys, ranks=0, code=0, words=(), model=None):
        model = model or {"config": str(self.config), "seed": 7, "tokenizer": str(self.world.model)}
        done = self.world.run(name, ranks, *keys, *(f"tasks.0.model.{key}={value}" for key, value in model.items()))
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        for word in words:
            self.assertIn(word, done.stderr)
        return self.folder / "runs" / name / "student"

    def weights(self, *arguments, **settings):
        return load_file(self.run_it(*arguments, **settings) / "model.safetensors")

    def test_weights_are_drawn_as_transformers_draws_them(self):
        drawn = self.weights("drawn", FROZEN, "tasks.0.train.steps=1")
        torch.manual_seed(0)
        theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).state_dict()
        self.assertEqual({name: value.shape for name, value in drawn.items()}, {name: value.shape for name, value in theirs.items()})
        numbers = []
        for name, value in theirs.items():
            if value.dim() == 1:
                torch.testing.assert_close(drawn[name], value, rtol=0, atol=1e-9)
                continue
            count = value.numel()
            self.assertLess(abs(drawn[name].std() / 0.05 - 1), 4 / (2 * count) ** 0.5, name)
            self.assertLess(abs(drawn[name].mean()), 4 * 0.05 / count ** 0.5, name)
            numbers.append(drawn[name].flatten() / 0.05)
        # Of one normal distribution (Kolmogorov and Smirnov's distance), and no two tensors, rows or neighbours alike.
        numbers = torch.cat(numbers)
        ranks = torch.arange(1, len(numbers) + 1) / len(numbers)
        self.assertLess((torch.special.ndtr(numbers.sort().values.double()) - ranks).abs().max(), 1.63 / len(numbers) ** 0.5)
        self.assertLess(abs((numbers[1:] * numbers[:-1]).mean()), 4 / len(numbers) ** 0.5)
        layers = [drawn[f"model.layers.{layer}.mlp.up_proj.weight"].flatten() / 0.05 for layer in (0, 1)]
        self.assertLess(abs((layers[0] * layers[1]).mean()), 4 / len(layers[0]) ** 0.5)

    def test_families_with_rules_of_their_own(self):
        """GPT-2's products onto the residual stream, gpt-oss's sinks and biases, experts one by one, xIELU's numbers: the deviations of transformers' first weights."""
        for variant in ("gpt2", "gpt_oss", "mixtral", "apertus"):
            model = tiny_models.make(self.folder, variant)
            drawn = self.weights(variant, FROZEN, "tasks.0.train.steps=1", model={"config": str(model), "seed": 7, "tokenizer": str(self.world.model)})
            torch.manual_seed(0)
            transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(model)).save_pretrained(self.folder / "theirs")
            theirs = load_file(self.folder / "theirs/model.safetensors")
            self.assertEqual({name: value.shape for name, value in drawn.items()}, {name: value.shape for name, value in theirs.items()})
            for name, value in theirs.items():
                if value.numel() == 1:  # of xIELU, of which two are logarithms of exponentials
                    torch.testing.assert_close(drawn[name], value, rtol=0, atol=1e-7)
                    continue
                if value.std() == 0:
                    torch.testing.assert_close(drawn[name], value, rtol=0, atol=1e-9)
                    continue
                spread = 1 / (2 * value.numel()) ** 0.5
                self.assertLess(abs(drawn[name].std() / value.std() - 1), 8 * spread, name)

    def test_seeds_ranks_and_restarts(self):
        one = self.weights("one", "tasks.0.train.steps=4", ranks=1)
        three = self.weights("three", "tasks.0.train.steps=4", ranks=3)
        other = self.weights("other", "tasks.0.train.steps=4", model={"config": str(self.config / "config.json"), "seed": 8, "tokenizer": str(self.world.model)})
        for name, value in one.items():
            self.assertTrue(torch.equal(value, three[name]), name)
            self.assertFalse(torch.equal(value, other[name]) and value.dim() > 1, name)
        # The states of another seed or another config are not gone on with.
        model = {"config": str(self.config), "seed": 9, "tokenizer": str(self.world.model)}
        self.run_it("one", "tasks.0.train.steps=4", model=model, code=78)

    def test_what_the_student_gets_and_gives(self):
        student = self.run_it("student", "tasks.0.train.steps=30", "tasks.0.train.optimizer.lr=3.0e-3")
        self.assertEqual((student / "tokenizer.json").read_bytes(), (self.world.model / "tokenizer.json").read_bytes())
        loaded = transformers.AutoModelForCausalLM.from_pretrained(student)
        self.assertEqual(loaded.dtype, torch.float32)
        with h5py.File(self.world.results("student")) as file:
            losses = file["train/loss"][()]
        self.assertGreater(losses[0], 5.5)  # ln 320 = 5.77
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_config_and_tokenizer_of_a_model_that_is_trained_before(self):
        """By one command where nothing stands yet: until then what that training starts from stands in, and the weights are those that a copy of its
        folder gives. Through two trainings, too, and `plan` says so."""
        step = "  - {{task: train, name: %s, model: {{%s}}, dataset: {{path: {data}, key: id}}, train: {{steps: 2, global_batch: 4, max_length: 96}}}}\n"
        text = self.world.text
        def experiment(first, second):
            sources = (("first", f"config: {self.config}, seed: 7, tokenizer: {self.world.model}"), ("second", f'config: "{first}", seed: 3'),
                       ("third", f'config: {self.config}, seed: 4, tokenizer: "{first}"'), ("fourth", f'config: "{second}/config.json", tokenizer: "{second}", seed: 5'))
            return tiny_world.EXPERIMENT.split("  - task:")[0] + "".join(step % source for source in sources)
        try:
            runs = self.folder / "runs/chained"
            self.world.text = experiment(runs / "first", runs / "second")
            done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("chained"))], env=self.world.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            for words in (rf"config +not there yet; planned with {self.config}, from which first starts", rf"tokenizer +not there yet; planned with {self.world.model}, from which first starts",
                          rf"config +not there yet; planned with {self.config}, from which second starts"):
                self.assertRegex(done.stdout, words)
            done = self.world.run("chained", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
            copies = [shutil.copytree(runs / name, self.folder / f"copy-of-{name}") for name in ("first", "second")]
            self.world.text = experiment(*copies)
            self.assertEqual(self.world.run("copied", 1).returncode, 0)
            for name in ("second", "third", "fourth"):
                chained, copied = (load_file(self.folder / "runs" / run / name / "model.safetensors") for run in ("chained", "copied"))
                for tensor, value in copied.items():
                    self.assertTrue(torch.equal(chained[tensor], value), (name, tensor))
                self.assertEqual((runs / name / "tokenizer.json").read_bytes(), (self.world.model / "tokenizer.json").read_bytes())
        finally:
            self.world.text = text

    def test_a_gguf_files_tokenizer(self):
        if not tiny_world.SMOLLM2.exists():
            self.skipTest("the model of the quickstart is not here")
        config = self.folder / "large"
        config.mkdir(exist_ok=True)
        (config / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 49152, "hidden_size": 16, "head_dim": 4}))
        student = self.run_it("gguf", FROZEN, "tasks.0.train.steps=1", model={"config": str(config), "tokenizer": str(tiny_world.SMOLLM2)})
        reader = gguf.GGUFReader(student / "tokenizer.gguf")
        self.assertEqual(len(reader.tensors), 0)
        # No two spaces before a number: transformers reads a GGUF file's vocabulary without its pre-tokenizer.
        text = "café 12345 \tdef f(x): return x  # ünïcode 世界 <|im_start|>user"
        theirs = transformers.AutoTokenizer.from_pretrained(student, gguf_file="tokenizer.gguf")
        found = [subprocess.run([tiny_world.PROGRAM, "tokenize", str(path)], input=text, capture_output=True, text=True, check=True).stdout
                 for path in (student, tiny_world.SMOLLM2)]
        self.assertEqual(found[0], found[1])
        self.assertEqual(json.loads(found[0]), theirs(text)["input_ids"])
        self.assertIn("<|im_start|>", (student / "chat_template.jinja").read_text())
        self.assertEqual(json.loads((student / "tokenizer_config.json").read_text())["eos_token"], "<|im_end|>")

    def test_what_is_refused(self):
        folder = str(self.world.model)
        here = {"config": str(self.config), "tokenizer": folder}
        cases = [({"seed": 1, "path": folder}, (), "is given without `config`"),
                 ({"tokenizer": folder, "path": folder}, (), "is given without `config`"),
                 ({**here, "path": folder}, (), "is given together with `config`"),
                 ({**here, "task": "before"}, (), "is given together with `task`"),
                 (here, ("tasks.0.train.adapter.rank=2",), "an adapter of a model that has no weights yet"),
                 ({**here, "tokenizer": str(self.world.model / "tokenizer.json")}, (), "neither a folder nor a .gguf file"),
                 ({**here, "tokenizer": str(tiny_world.SMOLLM2)}, (), "raise vocab_size"),
                 ({**here, "seed": -1}, (), "model.seed")]
        for number, (model, keys, words) in enumerate(cases):
            with self.subTest(words=words):
                self.run_it(f"refused-{number}", *keys, model=model, code=78, words=(words,))
        self.run_it("nothing", model={"config": str(self.folder / "nothing")}, code=65, words=("config.json",))
        self.run_it("no-tokenizer", model={"config": str(self.config)}, code=65, words=("tokenizer.json: no such file",))
        bad = self.folder / "bad"
        shutil.copytree(self.config, bad)
        for change, words in (({"vocab_size": 0}, "vocab_size"), ({"model_type": "mamba"}, "mamba"), ({"initializer_range": -1}, "initializer_range"),
                              ({"initializer_range": "x"}, "initializer_range")):
            (bad / "config.json").write_text(json.dumps({**CONFIG, **change}))
            self.run_it("bad-config", model={"config": str(bad), "tokenizer": folder}, code=65, words=(words,))
        # A task that computes with a model needs one.
        text, self.world.text = self.world.text, tiny_world.EXPERIMENT
        try:
            self.run_it("noise", model={"config": str(self.config)}, code=78, words=("this task would compute with noise",))
        finally:
            self.world.text = text


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
