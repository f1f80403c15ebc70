"""Quantised weights from outside: codes that a file holds are kept, and every bit of the results is that of the same file run
in f32 without quantisation; what was kept and made stands in run.jsonl; the measured loss of quantisation is numpy's
arithmetic on whole distributions, which are themselves those of the program without quantisation and with it.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import safetensors.torch
import torch

import tiny_world

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "io")]
import quantized_oracle_test as formats  # noqa: E402
import tiny_models  # noqa: E402

TASK = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, {keys}}}
layout: {{devices: cpu, shards_per_rank: {shards}}}
tasks:
  - task: teacher_logits
    dataset: {{path: {data}, tokens: ids}}
    max_length: 64
    top_k: {top_k}
    unit_tokens: 64
"""
LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


class Quantization(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.data = self.folder / "data.jsonl"
        sequences = tiny_models.sequences(320, (1, 2, 7, 33, 20, 64, 50))
        self.data.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in sequences))
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run_it(self, name, model, keys, ranks=0, shards=1, top_k=16, command="run", code=0):
        path = self.folder / f"{name}.yaml"
        path.write_text(TASK.format(name=name, runs=self.folder / "runs", model=model, keys=keys, data=self.data, shards=shards, top_k=top_k))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, tiny_world.PROGRAM, command, str(path)], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=1200)
        self.assertEqual(done.returncode, code, done.stderr[-3000:])
        if command != "run" or code:
            return done.stdout + done.stderr
        with h5py.File(self.folder / "runs" / name / "teacher.h5") as file:
            return {key: file[f"teacher/{key}"][()] for key in file["teacher"]} | {"ids": file["tokens/id"][()], "offset": file["samples/offset"][()]}

    def start_event(self, name):
        lines = [json.loads(line) for line in (self.folder / "runs" / name / "run.jsonl").read_text().splitlines()]
        return next(line for line in lines if line["event"] == "start")

    def assert_same_bits(self, one, other, message):
        for key in one:
            self.assertEqual(one[key].tobytes(), other[key].tobytes(), f"{message}: {key}")

    def assert_kept(self, model, kind, kept=8, made=0, sizes=(1, 2)):
        for shards in sizes:
            plain = self.run_it("plain", model, "dtype: f32", shards=shards)
            coded = self.run_it("coded", model, f"dtype: f32, quantization: {kind}", shards=shards)
            start = self.start_event("coded")
            self.assertEqual((start["quantization"], start["products_kept"], start["products_made"]), (kind.split(",")[0], kept, made))
            if made == 0:
                self.assert_same_bits(plain, coded, f"{model} over {shards}")
            for name in ("plain", "coded"):
                for file in (self.folder / "runs" / name).glob("*"):
                    if file.is_file():
                        file.unlink()

    def test_gguf_blocks_are_kept(self):
        for variant, kind in (("gguf_llama_q4_0", "int4"), ("gguf_llama_q4_1", "int4"), ("gguf_llama_q8_0", "int8"), ("gguf_qwen2", "int8")):
            with self.subTest(variant):
                self.assert_kept(tiny_models.make(self.folder, variant), kind)
        # Eight experts of two layers, all of a weight as one tensor: two products of each expert and of attention.
        self.assert_kept(tiny_models.make(self.folder, "gguf_olmoe"), "int8", kept=36, sizes=(1,))

    def test_a_bf16_head_beside_quantised_layers(self):
        """The start's test of fast paths knows how exact each is, where CPUs multiply bf16."""
        self.run_it("head", tiny_models.make(self.folder, "llama_bf16"), "dtype: bf16, quantization: int8")
        self.assertEqual(self.start_event("head")["products_made"], 8)

    def test_other_bits_and_groups_are_made(self):
        model = tiny_models.make(self.folder, "gguf_llama_q4_1")
        self.assert_kept(model, "int8")  # no wider than asked for
        self.run_it("wider", tiny_models.make(self.folder, "gguf_llama_q8_0"), "dtype: f32, quantization: int4")
        self.assertEqual(self.start_event("wider")["products_made"], 8)
        self.run_it("given", model, "dtype: f32, quantization: int4, quantization_group: 64")
        self.assertEqual(self.start_event("given")["products_made"], 8)
        self.run_it("same", model, "dtype: f32, quantization: int4, quantization_group: 32")
        self.assertEqual(self.start_event("same")["products_kept"], 8)
        mixed = tiny_models.make(self.folder, "gguf_qwen3_mixed")
        self.run_it("mixed", mixed, "dtype: f32, quantization: int4")
        start = self.start_event("mixed")
        self.assertEqual(start["products_kept"] + start["products_made"], 8)
        self.assertGreater(start["products_made"], 0)
        plan = self.run_it("planned", model, "quantization: int4", command="plan")
        self.assertIn("f16, layers int4: 8 products with the file's own codes", plan)

    def checkpoint(self, make):
        """The tiny llama with its linears as a quantised checkpoint has them."""
        source = pathlib.Path(tiny_models.make(self.folder, "llama"))
        folder = self.folder / "checkpoint"
        folder.mkdir(exist_ok=True)
        tensors = safetensors.torch.load_file(source / "model.safetensors")
        for layer in range(2):
            for number, linear in enumerate(LINEARS):
                name = f"model.layers.{layer}.{linear}"
                out, inputs = tensors.pop(f"{name}.weight").shape
                config, parts, _ = make(formats.Formats(7 * layer + number, out, inputs))
                tensors |= {name + part.removeprefix("m"): value.contiguous() for part, value in parts.items()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        plain = json.loads((source / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**plain, "quantization_config": config}))
        (folder / "tokenizer.json").write_text((source / "tokenizer.json").read_text())
        return folder

    def test_quantised_checkpoints_are_kept(self):
        cases = [("GPTQ", "int4", 8, lambda f: f.gptq()), ("GPTQ 8 bits", "int8", 8, lambda f: f.gptq(8)), ("GPTQ symmetric", "int4", 8, lambda f: f.gptq(symmetric=True)),
                 ("AWQ", "int4", 8, lambda f: f.awq()), ("W4A16", "int4", 8, lambda f: f.packed()), ("W4A16 f16", "int4", 8, lambda f: f.packed(dtype=torch.float16)),
                 ("W4A16 asymmetric", "int4", 8, lambda f: f.packed(asymmetric=True)), ("W8A16 channel", "int8", 8, lambda f: f.packed(8, 0)),
                 ("W8A8", "int8", 8, lambda f: f.int8()), ("W8A8 zeros", "int8", 8, lambda f: f.int8(zero=True)),
                 ("act order", "int4", 0, lambda f: f.gptq(act_order=True)), ("f32 scales", "int4", 0, lambda f: f.packed(dtype=torch.float32)),
                 ("2 bits", "int4", 0, lambda f: f.gptq(2)), ("groups of 16", "int4", 0, lambda f: f.gptq(group=16))]
        for name, kind, kept, make in cases:
            with self.subTest(name):
                self.assert_kept(self.checkpoint(make), kind, kept, 8 - kept)

    def test_an_adapter_over_codes(self):
        """It is merged into the numbers that the codes stand for; new codes of merged weights are refused."""
        numbers, adapter, merged = {}, self.folder / "adapter", self.folder / "merged"

        def make(format_):
            made = format_.gptq()
            numbers[len(numbers)] = torch.from_numpy(numpy.asarray(made[2])).float()
            return made
        model = self.checkpoint(make)
        plain = pathlib.Path(tiny_models.make(self.folder, "llama"))
        tensors, factors = safetensors.torch.load_file(plain / "model.safetensors"), {}
        for layer in range(2):
            for number, linear in enumerate(LINEARS):
                name = f"model.layers.{layer}.{linear}"
                tensors[f"{name}.weight"] = numbers[7 * layer + number]
                if linear.endswith(("q_proj", "down_proj")):
                    out, inputs = tensors[f"{name}.weight"].shape
                    a, b = torch.randn(4, inputs) * 0.2, torch.randn(out, 4) * 0.2
                    factors |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
                    tensors[f"{name}.weight"] = tensors[f"{name}.weight"] + 2 * b @ a
        for folder in (adapter, merged):
            folder.mkdir()
        safetensors.torch.save_file(factors, adapter / "adapter_model.safetensors")
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}))
        safetensors.torch.save_file(tensors, merged / "model.safetensors")
        for name in ("config.json", "tokenizer.json"):
            (merged / name).write_text((plain / name).read_text())
        rows = [self.run_it(name, *where, shards=shards) for name, shards, where in (
            ("merged", 1, (merged, "dtype: f32")), ("adapter", 1, (model, f"dtype: f32, adapter: {adapter}")), ("halves", 2, (model, f"dtype: f32, adapter: {adapter}")),
            ("without", 1, (model, "dtype: f32")))]
        for row in rows[1:3]:
            numpy.testing.assert_allclose(row["top_logprob"], rows[0]["top_logprob"], atol=1e-4)
        self.assertGreater(numpy.abs(rows[3]["top_logprob"] - rows[0]["top_logprob"]).max(), 0.05)
        refused = self.run_it("codes", model, f"quantization: int4, adapter: {adapter}", code=78)
        self.assertIn("merged weights need codes of their own", refused)

    def test_scales_of_a_cache_are_left_out(self):
        """As llm-compressor, ModelOpt and older files keep them, beside weights of any kind and in an adapter: the rows are those without them."""
        plain = pathlib.Path(tiny_models.make(self.folder, "llama"))
        scheme = {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
        coded = self.checkpoint(lambda f: f.fp8())
        adapter = self.folder / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}))
        out, inputs = safetensors.torch.load_file(plain / "model.safetensors")["model.layers.1.self_attn.q_proj.weight"].shape
        factors = {f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{x}.weight": torch.randn(shape) * 0.2
                   for layer in range(2) for x, shape in (("A", (4, inputs)), ("B", (out, 4)))}
        names = ("self_attn.k_scale", "self_attn.v_scale", "self_attn.k_proj.k_scale", "self_attn.v_proj.output_scale", "self_attn.kv_scale", "self_attn.attn.q_scale")

        def with_scales(source, name, prefix="", file="model.safetensors"):
            folder = pathlib.Path(shutil.copytree(source, self.folder / name))
            shape = [(), (1,), (1,), (), (3, 1, 1), (1,)]
            scales = {f"{prefix}model.layers.{layer}.{part}": torch.full(shape[i], 0.5) for layer in range(2) for i, part in enumerate(names)}
            safetensors.torch.save_file({**safetensors.torch.load_file(folder / file), **scales}, folder / file)
            return folder
        safetensors.torch.save_file(factors, adapter / "adapter_model.safetensors")
        cases = [("plain", plain, with_scales(plain, "plain_kv"), "dtype: f32"), ("codes", coded, with_scales(coded, "coded_kv"), "dtype: f32")]
        said = with_scales(plain, "said_kv")
        config = json.loads((said / "config.json").read_text())
        (said / "config.json").write_text(json.dumps({**config, "quantization_config": scheme}))
        cases.append(("said", plain, said, "dtype: f32"))
        scaled = with_scales(adapter, "adapter_kv", "base_model.model.", "adapter_model.safetensors")
        for name, one, other, keys in cases:
            with self.subTest(name):
                self.assert_same_bits(self.run_it(f"{name}-without", one, keys), self.run_it(f"{name}-with", other, keys), name)
                self.assertIn(f"{10 if name == 'codes' else 12} scales of a cache of few bits", self.run_it(f"{name}-plan", other, keys, command="plan"))
        one, other = (self.run_it(f"adapter{i}", plain, f"dtype: f32, adapter: {folder}") for i, folder in enumerate((adapter, scaled)))
        self.assert_same_bits(one, other, "adapter")

    def test_the_loss_is_numpys(self):
        model = tiny_models.make(self.folder, "llama_bf16")
        for ranks, shards, tokens in ((0, 1, 4000), (2, 1, 90), (0, 2, 90)):
            with self.subTest(ranks=ranks, shards=shards):
                loss_file = self.folder / f"runs/loss{ranks}{shards}/teacher.quantization.json"
                plain = self.run_it("whole", model, "dtype: f32", shards=shards, top_k=320)
                coded = self.run_it(f"loss{ranks}{shards}", model, f"dtype: f32, quantization: int4, quantization_loss: {tokens}", ranks, shards, top_k=320)
                found = json.loads(loss_file.read_text())
                self.assertEqual(plain["ids"].tolist(), coded["ids"].tolist())
                count = min(tokens, len(plain["ids"]))

                def whole(rows):
                    out = numpy.empty((count, 320))
                    numpy.put_along_axis(out, rows["top_id"][:count].astype(int), rows["top_logprob"][:count].astype(float), 1)
                    return out

                p, q = whole(plain), whole(coded)
                ends = set((plain["offset"][1:] - 1).tolist()) | {count - 1}
                rows = [row for row in range(count) if row not in ends]
                targets = plain["ids"][[row + 1 for row in rows]]
                self.assertEqual((found["tokens"], found["predicted_tokens"]), (count, len(rows)))
                for values, key in ((p, "perplexity_unquantized"), (q, "perplexity_quantized")):
                    want = numpy.exp(-values[rows, targets].mean())
                    self.assertAlmostEqual(found[key] / want, 1, delta=1e-6)
                self.assertAlmostEqual(found["mean_kl_nats"], (numpy.exp(p) * (p - q)).sum(1).mean(), delta=2e-6)
                self.assertGreater(found["mean_kl_nats"], 1e-4)
                events = [json.loads(line) for line in (loss_file.parent / "run.jsonl").read_text().splitlines()]
                self.assertEqual([e["mean_kl_nats"] for e in events if e["event"] == "quantization_loss"], [found["mean_kl_nats"]])
                (self.folder / "runs/whole/teacher.h5").unlink()

    def test_the_loss_leaves_the_results_alone(self):
        model = tiny_models.make(self.folder, "llama")
        self.run_it("a", model, "quantization: int8")
        self.run_it("b", model, "quantization: int8, quantization_loss: 50")
        one, other = ((self.folder / f"runs/{name}/teacher.h5") for name in "ab")
        with h5py.File(one) as first, h5py.File(other) as second:
            self.assertEqual(first.attrs["config_sha256"], second.attrs["config_sha256"])
            self.assertEqual(first.attrs["experiment"].replace(b"name: a", b"name: b"), second.attrs["experiment"])
        self.assertFalse(one.with_name("teacher.quantization.json").exists())
        self.assertIn("without a quantization", self.run_it("c", model, "quantization_loss: 50", code=78))

    def test_codes_that_are_no_numbers_are_refused(self):
        folder = self.checkpoint(lambda f: f.awq())
        path = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        tensors["model.layers.1.mlp.down_proj.scales"][1, 3] = torch.inf
        safetensors.torch.save_file(tensors, path)
        self.assertIn("not finite", self.run_it("bad", folder, "quantization: int4", code=65))


if __name__ == "__main__":
    unittest.main(verbosity=2)
