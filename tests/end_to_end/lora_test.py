"""Training of LoRA adapters against PEFT and torch: losses, norms and the adapter; the same bits on any number of ranks and threads and after
kills; states hold the adapter alone; the folder is an adapter for PEFT, transformers and this program.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import tiny_world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0] + """  - task: train
    dataset: {{path: {data}, key: id}}
    train:
      epochs: 2
      global_batch: 4
      max_length: 96
      shuffle: false
      save_every: 1
      keep: 30
      optimizer: {{lr: 2.0e-2, schedule: cosine, warmup: 2, weight_decay: 0.1}}
      adapter: {{rank: 4, alpha: 8, targets: [q_proj, v_proj]}}
"""
A = "tasks.0.train.adapter."
WEIGHTS = "adapter_model.safetensors"


class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=22, text=EXPERIMENT, results=("student.h5",))
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        cls.ids = [ids for record in records if (ids := cls.tokenizer.encode(record["text"]).ids)]

    def sequences(self):
        """As the program has them: the model's end token behind each, cut to 96."""
        end = json.loads((self.world.model / "config.json").read_text())["eos_token_id"]
        return [(ids + [end])[:96] for ids in self.ids]

    def setUp(self):
        self.model = self.world.model

    def tearDown(self):
        self.world.model = self.model

    def student(self, name):
        return self.world.results(name).with_suffix("")

    def states(self, name):
        return self.student(name).with_suffix(".checkpoints")

    def train(self, name, ranks=0, *arguments, **environment):
        done = self.world.run(name, ranks, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def content(self, name):
        return self.world.sha256(name), (self.student(name) / WEIGHTS).read_bytes()

    def by_peft(self, name, config, epochs=2, dtype=torch.float32, steps=None):
        """From the first values of our training: the first step's learning rate is 0. -> the model, and loss and norm of each step; steps: gets factors and first moments behind each."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.world.model, attn_implementation="eager", dtype=torch.float32)
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
        first = {key[len("model."):].replace(".weight", ".default.weight"): value
                 for key, value in load_file(self.states(name) / "step-00000001.safetensors").items() if key.startswith("model.")}
        trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
        self.assertEqual(set(first), set(trained))
        for key, value in first.items():
            if "lora_B" in key:
                self.assertEqual(value.abs().max(), 0)
                continue
            bound = value.shape[1] ** -0.5
            self.assertLessEqual(value.abs().max(), bound)
            self.assertLess(abs(value.std() / bound * 3 ** 0.5 - 1), 0.2)
            self.assertLess(abs(value.mean()), 0.25 * bound)
        self.assertEqual(len({tuple(value.flatten()[:4].tolist()) for key, value in first.items() if "lora_A" in key}), len(first) // 2)
        model.load_state_dict(first, strict=False)
        model.to(dtype)
        optimizer = torch.optim.AdamW(trained.values(), lr=2e-2, weight_decay=0.1)
        sequences = self.sequences()
        begins = [begin for _ in range(epochs) for begin in range(0, len(sequences), 4)]
        scheduler = transformers.get_scheduler("cosine", optimizer, 2, len(begins))
        rows = []
        for begin in begins:
            optimizer.zero_grad()
            batch = sequences[begin:begin + 4]
            tokens, loss = sum(len(ids) - 1 for ids in batch), 0
            for ids in batch:
                loss = loss + torch.nn.functional.cross_entropy(model(torch.tensor([ids])).logits[0, :-1], torch.tensor(ids[1:]), reduction="sum") / tokens
            loss.backward()
            rows.append([loss.item(), torch.nn.utils.clip_grad_norm_(trained.values(), 1.0).item()])
            optimizer.step()
            scheduler.step()
            if steps is not None:
                steps.append({key: (value.detach().clone(), optimizer.state[value]["exp_avg"].clone()) for key, value in trained.items()})
        return model.eval(), numpy.array(rows)

    def compare(self, name, config):
        model, expected = self.by_peft(name, config)
        with h5py.File(self.world.results(name)) as file:
            found = numpy.stack([file["train/loss"][:], file["train/grad_norm"][:]], 1)
        apart = (numpy.abs(found - expected) / expected).max(0)
        weights = peft.get_peft_model_state_dict(model)
        mine = load_file(self.student(name) / WEIGHTS)
        self.assertEqual(set(mine), set(weights))
        worst = max(((mine[key] - value).norm() / value.norm()).item() for key, value in weights.items())
        print(f"{name}: loss {apart[0]:.1e}, norm {apart[1]:.1e}, factors {worst:.1e}, loss {expected[0, 0]:.2f} to {expected[-1, 0]:.2f}")
        self.assertGreaterEqual(len(expected), 10)
        self.assertLess(apart[0], 1e-5)
        self.assertLess(apart[1], 1e-4)
        self.assertLess(worst, 1e-4)
        self.assertGreater(expected[0, 0] - expected[-1, 0], 0.1)
        return model

    def test_steps_are_peft_s(self):
        self.train("plain")
        model = self.compare("plain", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]})
        (state, *_) = self.states("plain").glob("*.safetensors")
        tensors = load_file(state)
        self.assertTrue(all(".lora_" in key or key.startswith("train.") for key in tensors))
        self.check_folder("plain", model)

    def check_folder(self, name, model):
        """An adapter for PEFT, transformers and this program."""
        first, student = self.sequences()[0], self.student(name)
        ids = torch.tensor([first])
        with torch.no_grad():
            want = model(ids).logits.log_softmax(-1)
            base = transformers.AutoModelForCausalLM.from_pretrained(self.world.model, dtype=torch.float32)
            self.assertGreater((base(ids).logits.log_softmax(-1) - want).abs().max(), 0.1)
            for loaded in (peft.PeftModel.from_pretrained(base, student), transformers.AutoModelForCausalLM.from_pretrained(student)):
                torch.testing.assert_close(loaded(ids).logits.log_softmax(-1), want, atol=1e-4, rtol=0)
        self.assertTrue((student / "tokenizer.json").is_file())
        with safe_open(student / "adapter_model.safetensors", "pt") as file, h5py.File(self.world.results(name)) as results:
            self.assertEqual(file.metadata(), {"format": "pt", "magister.base_sha256": results.attrs["model_sha256"].decode()})
        subprocess.run([tiny_world.PROGRAM, "check", self.world.results(name)], check=True, capture_output=True)
        # This program merges it: beside the model, or in the place of one.
        text, self.world.text, self.world.names = self.world.text, tiny_world.EXPERIMENT, ("teacher.h5",)
        try:
            for use, *arguments in (("use", f"model.adapter={student}"), ("alone", f"model.path={student}")):
                self.world.complete(f"{name}-{use}", 0, "tasks.0.dataset.limit=1", "tasks.0.max_length=128", *arguments)
                with h5py.File(self.world.results(f"{name}-{use}")) as file:
                    logprob = file["teacher/target_logprob"][:len(first) - 2]
                    self.assertIn("adapter_sha256", file.attrs)
                expected = want[0, range(len(logprob)), first[1:len(logprob) + 1]].numpy()
                numpy.testing.assert_allclose(logprob, expected, atol=1e-4)
        finally:
            self.world.text, self.world.names = text, ("student.h5",)

    def test_every_linear_layer_and_fused_ones(self):
        self.train("linear", 2, A + "targets=all-linear", A + "rank_stabilized=true", "tasks.0.train.gradient_checkpointing=true")
        self.compare("linear", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "use_rslora": True})
        tokenizer = self.world.model / "tokenizer.json"
        self.world.model = tiny_models.make(self.folder, "phi3")
        shutil.copy(tokenizer, self.world.model)
        self.train("fused", 0, A + "targets=[qkv_proj, o_proj, gate_up_proj, down_proj]", "tasks.0.train.append_eos=true")
        self.compare("fused", {"r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]})

    def use(self, variant):
        tokenizer = self.world.model / "tokenizer.json"
        self.world.model = tiny_models.make(self.folder, variant)
        shutil.copy(tokenizer, self.world.model)
        (self.world.model / "tokenizer_config.json").unlink()  # it names the end token of the vocabulary that stood there

    def test_a_nearly_zero_gradient_moves_by_its_rounding(self):
        """By PEFT in f64: first moments are as near as f32 has them everywhere. Factors are so, too, but where a first gradient is nearly 0: AdamW divides it by itself, so its rounding
        moves the number (measured: the factor of one of 256 numbers, a 1e-5th of its tensor's gradient, by 2e-4; the limits of compare() are for models without one)."""
        self.use("mistral_window")
        self.train("near", 0, A + "targets=all-linear")
        steps = []
        self.by_peft("near", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}, dtype=torch.float64, steps=steps)
        means = factors = worst = 0
        for number, exact in enumerate(steps[:3], 1):
            state = load_file(self.states("near") / f"step-{number:08}.safetensors")
            for key, (factor, mean) in exact.items():
                if not mean.any():
                    continue
                rms, name = mean.square().mean().sqrt(), key.replace(".default.weight", ".weight")
                means = max(means, ((state["exp_avg." + name] - mean).abs().max() / rms).item())
                apart = (state["model." + name] - factor).abs()
                worst = max(worst, apart.max().item())
                factors = max(factors, apart[mean.abs() > 1e-2 * rms].max().item())
        print(f"first moments {means:.1e} of their tensor's size apart, factors {factors:.1e}, and {worst:.1e} where their first gradient is nearly 0")
        self.assertLess(means, 5.4e-5)
        self.assertLess(factors, 2e-6)

    def test_gpt2_and_gpt_neox(self):
        """Weights that stand as [in, out], and q, k and v by head."""
        for variant, targets, layers in (("gpt2", "all-linear", "all-linear"), ("gpt2_uneven", "[mlp.c_proj, c_attn]", ["mlp.c_proj", "c_attn"]), ("gpt_neox", "all-linear", "all-linear")):
            with self.subTest(variant=variant):
                self.use(variant)
                self.train(variant, 2, A + f"targets={targets}", "tasks.0.train.gradient_checkpointing=true")
                model = self.compare(variant, {"r": 4, "lora_alpha": 8, "target_modules": layers, "fan_in_fan_out": variant.startswith("gpt2")})
                self.check_folder(variant, model)
                self.assertEqual(json.loads((self.student(variant) / "adapter_config.json").read_text())["fan_in_fan_out"], variant.startswith("gpt2"))
                self.world.model = self.model

    def test_mixtures_of_experts(self):
        """Experts and routers stay as they are, as in PEFT without their names."""
        for variant, targets in (("qwen3_moe", ["q_proj", "k_proj", "v_proj", "o_proj"]), ("gpt_oss", ["q_proj", "o_proj"])):
            with self.subTest(variant=variant):
                self.use(variant)
                self.train(variant, 2, A + f"targets={json.dumps(targets)}")
                self.check_folder(variant, self.compare(variant, {"r": 4, "lora_alpha": 8, "target_modules": targets}))
                self.world.model = self.model

    def test_gemma_3n(self):
        """Products beside attention and MLPs, too; layers that read the keys of others have no k_proj."""
        targets = ["q_proj", "k_proj", "gate_proj", "linear_left", "per_layer_input_gate"]
        self.use("gemma3n")
        self.train("gemma3n", 2, A + f"targets={json.dumps(targets)}", "tasks.0.train.gradient_checkpointing=true")
        self.compare("gemma3n", {"r": 4, "lora_alpha": 8, "target_modules": targets})
        # Factors that are 3.5e-5 from PEFT's move log-probabilities by 3e-3.
        base = transformers.AutoModelForCausalLM.from_pretrained(self.world.model, dtype=torch.float32)
        self.check_folder("gemma3n", peft.PeftModel.from_pretrained(base, self.student("gemma3n")).eval())

    def test_ranks_threads_and_kills_change_nothing(self):
        each = "tasks.0.train.micro_batch=1"
        self.train("bits", 0, each)
        one = self.content("bits")
        for ranks, threads in ((2, "1"), (3, "1"), (4, "1"), (0, "2")):
            self.world.forget("bits")
            self.train("bits", ranks, each, OMP_NUM_THREADS=threads)
            self.assertEqual(self.content("bits"), one, f"{ranks} ranks")
        for ranks, point in ((2, "train.step.begin@6:kill"), (0, "train.folder.written:kill")):
            self.world.forget("bits")
            self.assertNotEqual(self.world.run("bits", 2, each, MAGISTER_FAIL_POINT=point).returncode, 0)
            tiny_world.wait_until(lambda ranks=ranks: self.world.run("bits", ranks, each).returncode == 0, seconds=60, pause=0.3)
            self.assertEqual(self.content("bits"), one, point)
        # Another seed begins elsewhere.
        self.train("seed", 0, "seed=1", "tasks.0.train.steps=1")
        first = (load_file(self.states(name) / "step-00000001.safetensors") for name in ("bits", "seed"))
        key = "model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
        self.assertFalse(torch.equal(*(tensors[key] for tensors in first)))

    def test_the_base_is_named_as_it_was_given(self):
        """A model of the hub by its name: where the cache stands is nobody's business."""
        found = []
        for place in ("here", "there/deeper"):
            cached = self.folder / place / "models--some-org--tiny"
            (cached / "refs").mkdir(parents=True)
            (cached / "refs/main").write_text("0123abcd")
            shutil.copytree(self.world.model, cached / "snapshots/0123abcd")
            self.world.forget("hub")
            self.train("hub", 0, "tasks.0.train.steps=1", "model.path=some-org/tiny", HF_HUB_CACHE=str(self.folder / place))
            found.append(((self.student("hub") / "adapter_config.json").read_bytes(), self.world.sha256("hub")))
        self.assertEqual(json.loads(found[0][0])["base_model_name_or_path"], "some-org/tiny")
        self.assertEqual(*found)

    def test_what_is_refused(self):
        adapter = self.folder / "adapter"
        base = transformers.AutoModelForCausalLM.from_pretrained(self.world.model)
        peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(adapter)
        for number, (words, *overrides) in enumerate((
                ('"qkv_proj" is no linear layer', A + "targets=[q_proj, qkv_proj]"), ("choose among", A + "targets=embed_tokens"), ("all-linear", A + "targets=lm_head"),
                ("targets", A + "targets=[]"), ("out of range", A + "rank=0"), ("out of range", A + "rank=100000"), ("out of range", A + "alpha=0"), ("alpha", A + "alpha=-1"),
                ("did you mean rank?", A + "r=8"), ("did you mean alpha?", A + "lora_alpha=8"), ("did you mean targets?", A + "target_modules=[q_proj]"), ("dropout", A + "dropout=0.1"),
                ("adapter", "tasks.0.train.lora.rank=4"), ("train.adapter on a model with the adapter", f"model.adapter={adapter}"), ("train.adapter on a model with the adapter", f"model.path={adapter}"), ("trained in f32", "model.dtype=bf16"))):
            with self.subTest(overrides=overrides):
                done = self.world.run(f"refused-{number}", 0, *overrides)
                self.assertEqual(done.returncode, 78, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse(self.world.results(f"refused-{number}").exists())
        # A folder in the place of a model that says no base, or is an adapter of an adapter.
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": None}))
        for code, words, *overrides in ((65, "base_model_name_or_path", f"model.path={adapter}"), (78, "two adapters", f"model.path={adapter}", f"model.adapter={adapter}")):
            done = self.world.run("refused", 0, *overrides)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)

    def test_an_adapter_of_another_model(self):
        """Ours is refused beside weights that it was not trained on; a foreign one is told by the name of its base alone."""
        self.train("own", 0, "tasks.0.train.steps=1")
        other = self.folder / "other"
        shutil.copytree(self.world.model, other)
        weights = load_file(other / "model.safetensors")
        weights["model.norm.weight"][0] += 1e-3
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        foreign = self.folder / "foreign"
        for folder, name in ((self.student("own"), None), (foreign, "meta-llama/Llama-3.1-8B"), (foreign, f"someone/{self.world.model.name}")):
            if name:
                base = transformers.AutoModelForCausalLM.from_pretrained(self.world.model)
                peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(foreign)
                config = foreign / "adapter_config.json"
                config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": name}))
            for model in (self.world.model, other):
                with self.subTest(base=name, model=model.name):
                    text, self.world.text, self.world.names = self.world.text, tiny_world.EXPERIMENT, ("teacher.h5",)
                    try:
                        done = self.world.run("merged", 2, "tasks.0.dataset.limit=1", "tasks.0.max_length=128", f"model.path={model}", f"model.adapter={folder}", "--fresh")
                    finally:
                        self.world.text, self.world.names = text, ("student.h5",)
                    refused = not name and model == other
                    self.assertEqual(done.returncode, 65 if refused else 0, done.stderr)
                    self.assertEqual("was trained on a model with sha256" in done.stderr, refused, done.stderr)
                    self.assertEqual('was made for "' in done.stderr, bool(name) and model.name != name.split("/")[1], done.stderr)
                    self.assertLessEqual(done.stderr.count('was made for "'), 1)

    def test_plan_counts_the_adapter_s_memory(self):
        shown = []
        for arguments in ((), ("tasks.0.train.adapter.rank=8",)):
            done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("plan")), *arguments], env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"},
                                  cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            shown.append(done.stdout)
        # A product of two factors has no higher rank than their layers: told with the key's place, and computed, as PEFT does.
        for rank, is_told in ((24, False), (25, True)):
            done = subprocess.run([tiny_world.PROGRAM, "plan", str(self.world.experiment("plan")), f"tasks.0.train.adapter.rank={rank}"],
                                  env={**self.world.environment, "MAGISTER_ALLOW_SINGLETON": "1"}, cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, f"tasks.0.train.adapter.rank is {rank}, and the smallest side of the layers with an adapter is 24" in done.stderr), (0, is_told), done.stderr)
        # Two layers of q [48, 48] and v [24, 48]: the model's 67,824 numbers stand once, and have no moments.
        for rank, text in zip((4, 8), shown):
            factors = 2 * rank * (48 + 48 + 48 + 24)
            self.assertIn(f"{factors} of an adapter, in addition to 67824", text)
            self.assertIn(f"weights {4 * (67824 + factors) / 1024:.1f} KiB, ", text)
            self.assertIn(f"optimizer {8 * factors / 1024:.1f} KiB, ", text)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
