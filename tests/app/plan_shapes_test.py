"""plan --config-only: bytes per device of the models that people ask about, against the arithmetic of their shapes (and the figures
that are known for 70B), the smallest group that fits, and what is refused.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["MAGISTER"]
ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
             rope_theta=500000.0, tie_word_embeddings=False, hidden_act="silu",
             rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))
SHAPES = {  # hidden, MLP, layers, heads, KV heads
    "Llama-3.1-8B": (4096, 14336, 32, 32, 8), "Llama-3.1-70B": (8192, 28672, 80, 64, 8), "Llama-3.1-405B": (16384, 53248, 126, 128, 8),
    "Qwen2.5-72B": (8192, 29568, 80, 64, 8)}
QWEN = dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=152064, max_position_embeddings=32768, rms_norm_eps=1e-6,
            rope_theta=1e6, tie_word_embeddings=False, hidden_act="silu", use_sliding_window=False)
BITS = {"f32": 32, "bf16, f16": 16, "int8, one scale": 8.002, "int8, groups of 128": 8.125, "int4, groups of 128": 4.125, "int4, groups of 32": 4.5}
# Llama-3.1 70B, GB in all and on each of four GPUs.
KNOWN = {"bf16, f16": (141.1, 35.3), "int8, one scale": (72.7, 18.2), "int4, groups of 128": (39.5, 9.9)}


def arithmetic(shape, vocabulary, bits, wide):
    """Bytes of a model: its linears at `bits` a weight, embeddings and head at `wide` bytes."""
    hidden, mlp, layers, heads, kv_heads = shape
    head = 128
    linears = layers * (2 * hidden * heads * head + 2 * hidden * kv_heads * head + 3 * hidden * mlp)
    return linears * bits / 8 + 2 * vocabulary * hidden * wide


def parameters(folder):
    """-> (of the whole model, of its experts' products) as transformers makes it, without memory."""
    import torch
    import transformers
    config = transformers.AutoConfig.from_pretrained(folder)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        named = list(transformers.AutoModelForCausalLM.from_config(config).named_parameters())
    return sum(weight.numel() for _, weight in named), sum(weight.numel() for name, weight in named if ".mlp.experts." in name and weight.dim() == 3)


class PlanShapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        for name, (hidden, mlp, layers, heads, kv_heads) in SHAPES.items():
            (cls.folder / name).mkdir()
            config = {**(QWEN if name.startswith("Qwen") else LLAMA), "hidden_size": hidden, "intermediate_size": mlp,
                      "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
            (cls.folder / name / "config.json").write_text(json.dumps(config))
        cls.experiment = cls.folder / "e.yaml"
        cls.experiment.write_text("name: x\ntasks:\n  - {task: judge, dataset: {path: none.jsonl}}\nmodel: {path: none}\n")

    def plan(self, model, *overrides, code=0):
        done = subprocess.run([PROGRAM, "plan", "--config-only", self.experiment, f"model.path={self.folder / model}", *overrides],
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def weights(self, text):
        """-> {format: {devices: GB a device}}"""
        lines = text.splitlines()
        head = next(i for i, line in enumerate(lines) if "weights per device" in line)
        sizes = [int(n) for n in re.findall(r"on (\d+)", lines[head])]
        rows = {}
        for line in lines[head + 1:head + 1 + len(BITS)]:
            rows[line[:26].strip()] = dict(zip(sizes, map(float, re.findall(r"([\d.]+) GB", line))))
        return rows

    def test_bytes_a_device(self):
        for model, shape in SHAPES.items():
            table = self.weights(self.plan(model))
            self.assertEqual(set(table), set(BITS))
            for name, bits in BITS.items():
                vocabulary = QWEN["vocab_size"] if model.startswith("Qwen") else LLAMA["vocab_size"]
                whole = arithmetic(shape, vocabulary, bits, 4 if name == "f32" else 2) / 1e9
                self.assertEqual(list(table[name]), [1, 2, 4, 8, 16])
                for devices in (1, 2, 4, 8):
                    self.assertAlmostEqual(table[name][devices] / (whole / devices), 1, delta=0.02, msg=f"{model} {name} on {devices}")
        table = self.weights(self.plan("Llama-3.1-70B"))
        for name, (whole, quarter) in KNOWN.items():
            self.assertAlmostEqual(table[name][1] / whole, 1, delta=0.02)
            self.assertAlmostEqual(table[name][4] / quarter, 1, delta=0.02)

    def test_the_same_plan_stands_once(self):
        tasks = [dict(task="judge", name=f"j{i}", dataset=dict(path="none.jsonl"), **more) for i, more in enumerate([{}, dict(max_sequences=1), {}])]
        self.experiment.with_name("three.yaml").write_text(json.dumps(dict(name="x", model=dict(path=str(self.folder / "Llama-3.1-8B")), tasks=tasks)))
        done = subprocess.run([PROGRAM, "plan", "--config-only", self.folder / "three.yaml"], capture_output=True, text=True, check=True).stdout
        self.assertEqual([done.count("weights per device"), done.count("  as task j0\n")], [2, 1], done)
        self.assertTrue(done.endswith("  as task j0\n"), done)

    def test_weights_are_not_there(self):
        """A model of which only config.json is here: what counts without weights is named."""
        done = subprocess.run([PROGRAM, "plan", self.experiment, f"model.path={self.folder / 'Llama-3.1-8B'}"], env={**os.environ, "MAGISTER_ALLOW_SINGLETON": "1"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertIn("of a config.json alone `magister plan --config-only` tells the memory", done.stderr)

    def test_smallest_group(self):
        # As a run counts: 73.6 of a GPU's 80 GB, for weights and passes of 8,192 tokens; a CPU's 80 GB for those of 1,024.
        for model, keys, gpus, cpus in (("Llama-3.1-8B", [], 1, 1), ("Llama-3.1-70B", [], 3, 2), ("Llama-3.1-70B", ["model.quantization=int8"], 2, 2),
                                        ("Llama-3.1-405B", [], 12, 11), ("Llama-3.1-405B", ["model.quantization=int4"], 4, 4)):
            for devices, where in ((gpus, []), (cpus, ["layout.devices=cpu"])):
                self.assertIn(f"smallest group that fits: {devices} device", self.plan(model, "plan.device_memory=80GB", *keys, *where), (model, keys, where))
        # 141.1 GB of weights alone are more than the 132.3 GB that a run would take of such a GPU.
        short = ["plan.device_memory=133.9GiB", "tasks.0.max_prompt_length=64"]
        self.assertIn("smallest group that fits: 2 devices of 143.8 GB", self.plan("Llama-3.1-70B", *short))
        self.assertIn("smallest group that fits: 1 device of 143.8 GB", self.plan("Llama-3.1-70B", *short, "layout.devices=cpu"))

    def test_an_encoder(self):
        """DeBERTa-v3-large is planned in f32 whatever `auto` is for others, and as a reward model it is whole on each device of a group."""
        (self.folder / "encoder").mkdir()
        (self.folder / "encoder/config.json").write_text(json.dumps(dict(
            architectures=["DebertaV2ForSequenceClassification"], model_type="deberta-v2", vocab_size=128100, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
            num_attention_heads=16, max_position_embeddings=512, type_vocab_size=0, layer_norm_eps=1e-7, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm",
            share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, id2label={"0": "reward"})))
        other, self.experiment = self.experiment, self.folder / "encoder.yaml"
        self.addCleanup(setattr, self, "experiment", other)
        self.experiment.write_text("name: x\ntasks:\n  - {task: score, dataset: {path: none.jsonl}}\nmodel: {path: none}\n")
        alone = self.plan("encoder", "plan.devices=2 x H100-80GB")
        self.assertRegex(alone, r"on 1: weights 1\.6 GiB, activations [0-9.]+ [MG]iB, rows of a unit")
        self.assertIn("group 1: rank 1, cuda:1", alone)
        self.assertIn("cannot be divided over 2 devices", self.plan("encoder", "layout.gpus_per_group=2", code=78))
        reward = {"task": "rollout", "dataset": {"path": "none.jsonl"}, "max_prompt_length": 300, "max_new_tokens": 200,
                  "reward": {"model": {"path": str(self.folder / "encoder")}}}
        self.experiment.write_text(f"name: x\ntasks:\n  - {json.dumps(reward)}\nmodel: {{path: none}}\n")
        for size in (1, 4):
            for where in ([], ["layout.devices=cpu"]):
                text = self.plan("Llama-3.1-8B", f"layout.{'shards_per_rank' if where else 'gpus_per_group'}={size}", *where)
                self.assertIn("reward model: weights 1.6 GiB", text)

    def test_cards_by_name(self):
        """A card has what the driver says, not the number on its box: seed's 4 x A100-40GB hold 70B, and two of 80 GB do."""
        path = f"model.path={ROOT / 'configs/shapes/llama-3.1-70b'}"
        four = ["layout.gpus_per_group=4", path]
        self.assertIn("4 devices need 3", self.plan("Llama-3.1-70B", "plan.device_memory=40GB", *four, code=78))
        for card, mebibytes in (("A100-40GB", 40960), ("H100-80GB", 81559)):
            self.assertIn(f"smallest group that fits: {4 if card == 'A100-40GB' else 2} devices of {mebibytes * 2 ** 20 / 1e9:.1f} GB", self.plan("Llama-3.1-70B", f"plan.device_memory={card}", path))
            self.plan("Llama-3.1-70B", f"plan.device_memory={card}", *four)
        self.assertIn("smallest group that fits: 2 devices of 85.9 GB", self.plan("Llama-3.1-70B", "plan.device_memory=A100-80GB", path))
        said = self.plan("Llama-3.1-8B", "plan.device_memory=80GB")
        self.assertIn("80GB is 76293 MiB; cards that are sold with it have more: A100-80GB (81920 MiB), H100-80GB (81559 MiB)", said)
        self.assertNotIn("sold with", self.plan("Llama-3.1-8B", "plan.device_memory=A100-80GB"))
        self.assertIn("compute capability 7.0", self.plan("Llama-3.1-8B", "plan.device_memory=V100-32GB"))

    def test_the_cards_of_the_page_are_the_program_s(self):
        known = self.plan("Llama-3.1-8B", "plan.device_memory=A100", code=78).split("Cards: ")[1].strip().split(", ")
        rows = re.findall(r"\| (\d+) \| ((?:`[A-Za-z0-9-]+`(?:, )?)+)(?= \|)", (ROOT / "configs/keys/layout.md").read_text().split("## Plans for other machines")[1].split("\n## ")[0])
        listed = {name: int(mebibytes) for mebibytes, names in rows for name in re.findall(r"`([^`]+)`", names)}
        self.assertEqual(sorted(listed), sorted(known))
        for card, mebibytes in listed.items():
            self.assertIn(f"of a GPU's {mebibytes * 2 ** 20 / 1e9:.1f} GB a model may have", self.plan("Llama-3.1-8B", f"plan.device_memory={card}"), card)

    def test_shapes_that_are_shipped(self):
        """Parameters as their makers publish them."""
        for name, billions in (("llama-3.2-1b", 1.24), ("llama-3.2-3b", 3.21), ("llama-3.1-8b", 8.03), ("qwen2.5-14b", 14.77), ("qwen2.5-32b", 32.76), ("llama-3.1-70b", 70.55), ("llama-3.1-405b", 405.85), ("llama-4-scout", 107.77),
                               ("deepseek-v3", 671.03), ("kimi-k2", 1026.41), ("deepseek-v3.2", 671.88), ("glm-5", 743.91)):
            said = self.plan("Llama-3.1-8B", f"model.path={ROOT / 'configs/shapes' / name}")
            number, unit = re.search(r"([\d.]+) ([MB]) parameters", said).groups()
            self.assertAlmostEqual(float(number) * {"M": 1e-3, "B": 1}[unit] / billions, 1, delta=0.002, msg=name)

    def test_mixtures(self):
        """Parameters and bytes against transformers' own model on the meta device; gpt-oss's file has MXFP4's 17 bytes for 32 weights."""
        for name, columns, chosen, smallest, file_gb in (("glm-4.5", 1536, 8, 10, None), ("gpt-oss-120b", 2880, 4, 1, 65.25)):
            path = ROOT / "configs/shapes" / name
            number, experts = parameters(path)
            said = self.plan("Llama-3.1-8B", f"model.path={path}", "plan.device_memory=H100-80GB")
            self.assertAlmostEqual(float(re.search(r"([\d.]+) B parameters", said)[1]) / (number / 1e9), 1, delta=1e-4)
            found = re.search(r"\n  experts   \d+ with ([\d.]+) B weights; a token takes (\d+) and", said)
            self.assertAlmostEqual(float(found[1]) / (experts / 1e9), 1, delta=1e-4)
            self.assertEqual(int(found[2]), chosen)
            steps = columns // 32  # shards have whole steps of 32 columns
            for format_name, bits in (("f32", 32), ("bf16, f16", 16)):
                for devices in (1, 2, 4, 8, 16):
                    largest = (number - experts) / devices + experts * -(-steps // devices) / steps
                    self.assertAlmostEqual(self.weights(said)[format_name][devices] / (largest * bits / 8e9), 1, delta=0.02, msg=f"{name} {format_name} on {devices}")
            self.assertIn(f"smallest group that fits: {smallest} device", said)
            room = float(re.search(r"a model may have ([\d.]+) GB", said)[1])
            if smallest > 1:
                one_less = (number - experts) / (smallest - 1) + experts * -(-steps // (smallest - 1)) / steps
                self.assertGreater(one_less * 2e-9 + 1.5, room, "a pass takes 1.9 to 2.6 GB beside the weights")
            file_line = re.search(r"\n  file      ([\d.]+) GB: the experts' products in mxfp4 \(4.25 bits a weight\)", said)
            self.assertEqual(file_line is not None, file_gb is not None, said)
            if file_line:
                self.assertAlmostEqual(float(file_line[1]) / file_gb, 1, delta=0.002)
                self.assertAlmostEqual((experts * 17 / 32 + (number - experts) * 2) / 1e9 / file_gb, 1, delta=0.002)
                # GPUs keep the codes, with scales of 16 bits; in other formats and where the numbers change they cannot.
                codes = (experts * 18 / 32 + (number - experts) * 2) / 1e9
                for devices in (1, 4):
                    held = float(re.search(rf"\n    on {devices} +([\d.]+) GB", said[said.index("this plan"):])[1])
                    self.assertAlmostEqual(held * devices / codes, 1, delta=0.03)
                for changed in ("model.dtype=f32", "layout.devices=cpu", "model.quantization=int8"):
                    other = self.plan("Llama-3.1-8B", f"model.path={path}", changed)
                    self.assertIn("a run holds the numbers that they mean", other)

    def test_files_of_codes(self):
        """A config of a quantised checkpoint is planned as the numbers that a run computes with; of a method that cannot be read it is refused."""
        config = json.loads((self.folder / "Llama-3.1-8B/config.json").read_text())
        folder = self.folder / "codes"
        folder.mkdir(exist_ok=True)
        plain = self.plan("Llama-3.1-8B")
        for method in (dict(quant_method="fp8", weight_block_size=[128, 128]), dict(quant_method="gptq", bits=4, group_size=128)):
            (folder / "config.json").write_text(json.dumps({**config, "quantization_config": method}))
            said = self.plan("codes")
            self.assertEqual(self.weights(said), self.weights(plain))
            self.assertIn(f"\n  file      codes of {method['quant_method']}; a run holds the numbers that they mean\n", said)
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": dict(quant_method="quanto")}))
        self.assertIn('quant_method is "quanto"', self.plan("codes", code=65))
    def test_experts_and_latents(self):
        """Bytes from transformers' number of parameters, the experts' included; a token of the cache is one latent a layer, and a key of an indexer."""
        short = 61 * (1536 + 512 + 64) * 7168 / 1e9  # the short vectors' products, which every shard has; the indexers, too
        for name, billions, devices, whole in (("deepseek-v3", 671.026, 10, short), ("kimi-k2", 1026.408, 16, short), ("deepseek-v3.2", 671.878, 11, short + 0.852),
                                               ("glm-5", 743.911, 11, 78 * (2048 + 512 + 64) * 6144 / 1e9 + 0.731)):
            path = [f"model.path={ROOT / 'configs/shapes' / name}", "layout.devices=cpu"]
            said = self.plan("Llama-3.1-8B", *path, "plan.device_memory=5TB")
            for wide, format_name in ((4, "f32"), (2, "bf16, f16"), (1, "int8, one scale")):
                for shards in (1, 8, 16)[:1 if wide == 1 else 3]:  # a shard's scales are of its own columns
                    each = wide * (billions - whole) / shards + wide * whole
                    self.assertAlmostEqual(self.weights(said)[format_name][shards] / each, 1, delta=0.02, msg=f"{name} {format_name} {shards}")
            layers, indexed = (78 if name == "glm-5" else 61), name in ("deepseek-v3.2", "glm-5")
            self.assertIn(f" {layers * (512 + 64 + (128 if indexed else 0)) * 4} bytes per token over all devices", said)
            self.assertIn(f"smallest group that fits: {devices} device", self.plan("Llama-3.1-8B", *path, "plan.device_memory=150.8GB"))

    def test_a_cluster_from_the_config(self):
        """Groups line by line; of unlike cards the least counts; what cannot be is refused."""
        path = f"model.path={ROOT / 'configs/shapes/llama-3.1-70b'}"
        said = self.plan("Llama-3.1-70B", "plan.devices=8 x H100-80GB", path)
        self.assertEqual(re.findall(r"\n  group (\d): rank (\d), cuda:([\d,]+) on node0 \(H100-80GB, ranks (\d) and (\d)\)", said),
                         [(str(i), str(2 * i), f"{2 * i},{2 * i + 1}", str(2 * i), str(2 * i + 1)) for i in range(4)])
        self.assertIn("smallest group that fits: 4 devices of 42.9 GB", self.plan("Llama-3.1-70B", "plan.devices=[4 x A100-80GB, 4 x A100-40GB]", path))
        self.assertIn("hold no group of 4 or more", self.plan("Llama-3.1-70B", "plan.devices=2 x A100-40GB", path, code=78))

    def test_amounts_that_differ_look_different(self):
        """However little is missing: seed's 8-bit 70B "needs 22.1 GB" and a card "gives 22.1 GB"."""
        path, told = f"model.path={ROOT / 'configs/shapes/llama-3.1-70b'}", []
        for memory in range(23700, 24100, 40):
            done = subprocess.run([PROGRAM, "plan", "--config-only", self.experiment, path, "model.quantization=int8", "layout.gpus_per_group=4", f"plan.device_memory={memory}MB"],
                                  capture_output=True, text=True, check=False)
            found = re.search(r"4 devices need ([\d.]+) GB each, and plan.device_memory gives ([\d.]+) GB", done.stderr)
            self.assertEqual((done.returncode, found is not None), (78, True) if found else (0, False), done.stderr)
            if found:
                told.append(tuple(map(float, found.groups())))
                self.assertGreater(*told[-1])
        self.assertTrue(any(round(needed, 1) == round(given, 1) for needed, given in told), told)

    def test_a_model_beside(self):
        """A value model in f32, or bf16, and its cache beside the task's own, on GPUs and CPUs; of a multiplier of 0 there is none."""
        value = self.folder / "value"
        value.mkdir()
        config = json.loads((self.folder / "Llama-3.1-8B/config.json").read_text())
        (value / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForSequenceClassification"], "num_labels": 1, "id2label": {"0": "LABEL_0"}}))
        guided = self.folder / "guided.yaml"
        guided.write_text(f"name: x\ntasks:\n  - {{task: generate, dataset: {{path: none.jsonl}}, guide: {{model: {{path: {value}}}}}}}\nmodel: {{path: none}}\n")
        self.experiment, experiment = guided, self.experiment
        try:
            whole = arithmetic(SHAPES["Llama-3.1-8B"], LLAMA["vocab_size"], 16, 2) / 1e9
            beside = arithmetic(SHAPES["Llama-3.1-8B"], LLAMA["vocab_size"] / 2, 32, 4) / 1e9  # embeddings and no head
            for keys, most in (([], beside), (["tasks.0.guide.model.dtype=bf16"], beside / 2), (["tasks.0.guide.multiplier=0"], 0)):
                for where in ([], ["layout.devices=cpu"]):
                    text = self.plan("Llama-3.1-8B", "plan.device_memory=80GB", *keys, *where)
                    self.assertEqual("value model llama" in text, most > 0)
                    weights = float(re.search(r"on 1 +([\d.]+) GB", text[text.index("this plan"):])[1])
                    self.assertAlmostEqual(weights / (whole + most), 1, delta=0.02)
            # 16 GB and 28 GB of weights: 60 GB hold both, 48 GB and 24 GB do not.
            for memory, devices in (("60GB", 1), ("48GB", 2), ("24GB", 3)):
                self.assertIn(f"smallest group that fits: {devices} device", self.plan("Llama-3.1-8B", f"plan.device_memory={memory}"))
        finally:
            self.experiment = experiment

    def test_refusals(self):
        small = self.plan("Llama-3.1-70B", "plan.device_memory=80GB", "layout.gpus_per_group=1", code=78)
        self.assertIn("plan.device_memory gives 73.6 GB", small)
        self.assertIn("the smallest group that fits has 3 devices", small)
        self.assertIn("no group of 1 to 64 devices of 1.00 GB, of which a model may have 0.92 GB", self.plan("Llama-3.1-405B", "plan.device_memory=1GB", code=78))
        self.assertIn("use groups of 1 to 32", self.plan("Llama-3.1-8B", "layout.gpus_per_group=33", code=78))
        for wrong in ("80", "GB", "-1GB", "80 Gb", "1e300TB", "0GB", "A100", "a100-80gb", "8 x A100-80GB"):
            self.assertIn("write for example 79.2GiB, 80GB or A100-80GB. Cards: V100-16GB, ", self.plan("Llama-3.1-8B", f"plan.device_memory={wrong}", code=78))
        for wrong in ("8x", "0 x H100-80GB", "-1 x H100-80GB", "2 x 2 x 2 x H100-80GB", "eight x H100-80GB", "8 H100-80GB", "99999 x H100-80GB", "8 X H100-80GB", "2 x 4 x A30 + A40", "A30 +", "A30 + 2 x 2 x A40"):
            self.assertIn("write for example 8 x H100-80GB", self.plan("Llama-3.1-8B", f"plan.devices={wrong}", code=78))
        for wrong, meant in (("8 x A100", "A100-40GB or A100-80GB"), ("8 x a100-80gb", "A100-80GB"), ("4 x RTX 4090", "RTX4090"), ("4090", "RTX4090"), ("NVIDIA A100-SXM4-80GB", "A100-40GB or A100-80GB"),
                             ("2x H100", "H100-80GB or H100-NVL")):
            self.assertIn(f"all at most); did you mean {meant}? else write for example", self.plan("Llama-3.1-8B", f"plan.devices={wrong}", code=78))
        self.assertIn("is expected); did you mean A100-80GB? else write for example", self.plan("Llama-3.1-8B", "plan.device_memory=a100-80gb", code=78))
        # Who has said how much there is.
        self.assertIn("GB each, and plan.devices gives 23.7 GB (loading", self.plan("Llama-3.1-70B", f"model.path={ROOT / 'configs/shapes/llama-3.1-70b'}", "plan.devices=4 x RTX4090", "layout.gpus_per_group=4", code=78))
        self.assertIn("is given together with `device_memory`", self.plan("Llama-3.1-8B", "plan.devices=H200", "plan.device_memory=H200", code=78))
        self.assertIn("is given together with layout.devices: cpu", self.plan("Llama-3.1-8B", "plan.devices=H200", "layout.devices=cpu", code=78))
        self.assertIn("such as those in configs/shapes\n", self.plan("nothing", code=74))
        (self.folder / "one.gguf").write_bytes(b"GGUF")
        self.assertIn("leave --config-only out", self.plan("one.gguf", code=78))
        self.assertIn("1 device needs", small)
        cut = self.plan("Qwen2.5-72B", "layout.gpus_per_group=2", "model.quantization=int4", "model.quantization_group=128")
        self.assertIn("(29568 columns of the MLP are 231 groups)", cut)
        self.assertIn("no group is cut with 1, 3, 7, 11 devices", cut)


if __name__ == "__main__":
    unittest.main(verbosity=2)
