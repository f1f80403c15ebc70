"""Quantised checkpoints against the formats' arithmetic written out in numpy: codes are drawn, packed as the format packs
them and multiplied out in float32 here; TensorFile must give the same bits, whole, in 2, 3 and 4 slices of rows and of
columns, and in odd windows. Then checkpoints that are wrong, each refused with the words that tell why.

Sources of the layouts: AutoGPTQ, AutoAWQ, compressed-tensors, bitsandbytes (their documentation of the stored tensors).
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from probe_cases import run_case  # noqa: E402

PROBE = os.environ.get("IO_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/io_probe")
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0.0, 0.0052, 0.6667, 1.0, 0.3333, 0.5, 0.1667, 0.25, -0.0, -0.0052, -0.6667, -1.0, -0.3333, -0.5, -0.1667, -0.25]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(codes, bits, axis, order=None):
    """Unsigned codes -> i32 words along `axis`, lowest bits first, filled up with zeros."""
    per = 32 // bits
    codes = np.moveaxis(np.asarray(codes, dtype=np.uint64), axis, -1)
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], -codes.shape[-1] % per), dtype=np.uint64)], axis=-1)
    codes = codes.reshape(*codes.shape[:-1], -1, per)
    words = np.zeros(codes.shape[:-1], dtype=np.uint64)
    for place in range(per):
        words |= codes[..., order[place] if order else place] << np.uint64(bits * place)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words, -1, axis)).astype(np.uint32).view(np.int32))


class Formats:
    """Each gives (quantization_config, tensors of a weight "m.weight", the numbers it stands for as float32)."""

    def __init__(self, seed, out=48, inputs=144):
        self.rng, self.out, self.inputs = np.random.default_rng(seed), out, inputs

    def scales(self, *shape, dtype=torch.float16):
        return torch.from_numpy((self.rng.random(shape) * 0.1 + 1e-4).astype(np.float32)).to(dtype)

    def codes(self, limit, *shape):
        return self.rng.integers(0, limit, shape)

    def grouped(self, codes, zeros, scales, group_of):
        """codes [out, in], zeros and scales [out, groups]"""
        return (codes - zeros[:, group_of]).astype(np.float32) * scales.float().numpy()[:, group_of]

    def mxfp4(self):
        """Its numbers are compared with transformers' in foreign_packers_test.py."""
        return {"quant_method": "mxfp4"}, {"m.weight_blocks": torch.from_numpy(self.codes(256, 1, 144, 5, 16).astype(np.uint8)),
                                           "m.weight_scales": torch.from_numpy(self.codes(256, 1, 144, 5).astype(np.uint8))}, None

    def gptq(self, bits=4, group=32, version="gptq", act_order=False, symmetric=False, stored=None, says=None, first_zero=None):
        groups = -(-self.inputs // group)
        codes = self.codes(2**bits, self.out, self.inputs)
        zeros = np.full((self.out, groups), 2 ** (bits - 1)) if symmetric else self.codes(2**bits, self.out, groups)
        if first_zero is not None:
            zeros[0, 0] = first_zero
        scales = self.scales(self.out, groups)
        index = np.arange(self.inputs) // group
        if act_order:
            index = self.rng.permutation(index)
        less = (stored or version) == "gptq"
        tensors = {"m.qweight": pack(codes, bits, 1).T.contiguous(), "m.qzeros": pack((zeros - less) % 2**bits, bits, 0).T.contiguous(),
                   "m.scales": scales.T.contiguous(), "m.g_idx": torch.from_numpy(index.astype(np.int32))}
        config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric,
                  "checkpoint_format": version, "damp_percent": 0.01, **(says or {})}
        return config, tensors, self.grouped(codes, zeros, scales, index)

    def awq(self, group=32):
        groups = -(-self.inputs // group)
        codes, zeros = self.codes(16, self.out, self.inputs), self.codes(16, self.out, groups)
        scales = self.scales(self.out, groups)
        tensors = {"m.qweight": pack(codes.T, 4, 1, AWQ_ORDER), "m.qzeros": pack(zeros.T, 4, 1, AWQ_ORDER), "m.scales": scales.T.contiguous()}
        config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
        return config, tensors, self.grouped(codes, zeros, scales, np.arange(self.inputs) // group)

    def packed(self, bits=4, group=32, asymmetric=False, act_order=False, dtype=torch.bfloat16):
        group = group or self.inputs
        groups = -(-self.inputs // group)
        codes = self.codes(2**bits, self.out, self.inputs)
        zeros = self.codes(2**bits, self.out, groups) if asymmetric else np.full((self.out, groups), 2 ** (bits - 1))
        scales = self.scales(self.out, groups, dtype=dtype)
        index = np.arange(self.inputs) // group
        tensors = {"m.weight_packed": pack(codes, bits, 1), "m.weight_scale": scales, "m.weight_shape": torch.tensor([self.out, self.inputs])}
        if asymmetric:
            tensors["m.weight_zero_point"] = pack(zeros, bits, 0)
        if act_order:
            index = self.rng.permutation(index)
            tensors["m.weight_g_idx"] = torch.from_numpy(index.astype(np.int32))
        return self.compressed("pack-quantized", bits, group), tensors, self.grouped(codes, zeros, scales, index)

    def compressed(self, kind, bits, group=None, **more):
        weights = {"num_bits": bits, "type": "float" if kind == "float-quantized" else "int", "symmetric": True,
                   "group_size": group, "strategy": "group" if group else "channel", **more}
        return {"quant_method": "compressed-tensors", "format": kind, "quantization_status": "compressed", "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}

    def int8(self, one=False, zero=False):
        codes = self.codes(256, self.out, self.inputs) - 128
        scales = self.scales(1) if one else self.scales(self.out, 1, dtype=torch.bfloat16)
        zeros = self.codes(256, self.out, 1) - 128 if zero else np.zeros((self.out, 1), dtype=np.int64)
        tensors = {"m.weight": torch.from_numpy(codes.astype(np.int8)), "m.weight_scale": scales, "m.input_scale": torch.ones(1)}
        if zero:
            tensors["m.weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
        return self.compressed("int-quantized", 8), tensors, (codes - zeros).astype(np.float32) * scales.float().reshape(-1, 1).numpy()

    def fp8(self, kind="channel"):
        weight = torch.from_numpy(self.rng.standard_normal((self.out, self.inputs)).astype(np.float32) * 40).to(torch.float8_e4m3fn)
        tensors, config = {"m.weight": weight}, self.compressed("float-quantized", 8)
        if kind == "block":
            scales = self.scales(-(-self.out // 32), -(-self.inputs // 48), dtype=torch.float32)
            wide = scales.numpy().repeat(32, 0)[: self.out].repeat(48, 1)[:, : self.inputs]
            tensors["m.weight_scale_inv"], config = scales, {"quant_method": "fp8", "weight_block_size": [32, 48], "fmt": "e4m3"}
        elif kind == "blocks":  # of two sizes, in two groups of layers; this one has the first
            scales = self.scales(-(-self.out // 32), -(-self.inputs // 48), dtype=torch.float32)
            wide = scales.numpy().repeat(32, 0)[: self.out].repeat(48, 1)[:, : self.inputs]
            tensors["m.weight_scale"], groups = scales, config["config_groups"]
            groups["group_0"]["weights"].update(strategy="block", block_structure=[32, 48])
            groups["group_1"] = {**groups["group_0"], "targets": ["re:other"], "weights": {**groups["group_0"]["weights"], "block_structure": [16, 48]}}
        elif kind == "tensor":
            tensors["m.weight_scale"] = self.scales(1, dtype=torch.float32)
            wide = tensors["m.weight_scale"].numpy()
        else:
            tensors["m.weight_scale"] = self.scales(self.out, 1, dtype=torch.bfloat16)
            wide = tensors["m.weight_scale"].float().numpy()
        return config, tensors, weight.float().numpy() * wide

    def bnb4(self, kind="nf4", nested=False, block=64):
        count = self.out * self.inputs
        codes, blocks = self.codes(16, count), -(-count // block)
        table = np.array(NF4 if kind == "nf4" else FP4, dtype=np.float32)
        state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [self.out, self.inputs]}
        both = np.concatenate([codes, np.zeros(count % 2, dtype=np.int64)]).reshape(-1, 2)
        tensors = {"m.weight": torch.from_numpy((both[:, :1] << 4 | both[:, 1:]).astype(np.uint8)), "m.weight.quant_map": torch.from_numpy(table)}
        if nested:
            inner, second = self.codes(256, blocks), self.scales(-(-blocks // 16), dtype=torch.float32)
            second_table = np.sort(self.rng.random(256).astype(np.float32) * 2 - 1)
            state |= {"nested_blocksize": 16, "nested_dtype": "float32", "nested_offset": 0.123456}
            absmax = second_table[inner] * second.numpy()[np.arange(blocks) // 16] + np.float32(0.123456)
            tensors |= {"m.weight.absmax": torch.from_numpy(inner.astype(np.uint8)), "m.weight.nested_absmax": second,
                        "m.weight.nested_quant_map": torch.from_numpy(second_table)}
        else:
            absmax = self.scales(blocks, dtype=torch.float32).numpy()
            tensors["m.weight.absmax"] = torch.from_numpy(absmax)
        tensors[f"m.weight.quant_state.bitsandbytes__{kind}"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        values = (table[codes] * absmax[np.arange(count) // block]).reshape(self.out, self.inputs)
        return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}, tensors, values

    def bnb8(self):
        codes, scb = self.codes(256, self.out, self.inputs) - 128, self.scales(self.out, dtype=torch.float32)
        tensors = {"m.weight": torch.from_numpy(codes.astype(np.int8)), "m.SCB": scb, "m.weight_format": torch.tensor(0, dtype=torch.uint8)}
        values = codes.astype(np.float32) * scb.numpy()[:, None] * np.float32(0.007874015718698502)
        return {"quant_method": "bitsandbytes", "load_in_8bit": True}, tensors, values


def all_formats():
    for bits in (2, 4, 8):
        for version in ("gptq", "gptq_v2"):
            yield f"GPTQ {bits} {version}", lambda f, b=bits, v=version: f.gptq(b, version=v)
    yield "GPTQ act order", lambda f: f.gptq(act_order=True)
    yield "GPTQ symmetric", lambda f: f.gptq(symmetric=True)
    yield "GPTQ says v1, holds v2", lambda f: f.gptq(symmetric=True, stored="gptq_v2")
    yield "GPTQ one group", lambda f: f.gptq(group=144)
    # Modules of a mixed checkpoint (GPTQModel's `dynamic`): the config's first numbers are not theirs.
    for bits, group in ((8, 32), (2, 48), (4, 16)):
        own = {"bits": 4, "group_size": 32, "dynamic": {"-:.*lm_head.*": {}, "+:.*m.*": {"bits": bits, "group_size": group}}}
        yield f"GPTQ dynamic {bits} bits, groups of {group}", lambda f, b=bits, g=group, s=own: f.gptq(b, g, symmetric=True, says=s)
    for version, first in (("gptq", 9), ("gptq", 8), ("gptq_v2", 7), ("gptq_v2", 8)):
        yield (f"GPTQ asymmetric by dynamic, {version}, first zero {first}", lambda f, v=version, z=first:
               f.gptq(version=v, first_zero=z, says={"sym": True, "dynamic": {".*m.*": {"sym": False}}}))
    yield "AWQ", lambda f: f.awq()
    yield "AWQ one group", lambda f: f.awq(144)
    for bits in (4, 8):
        yield f"W{bits}A16 channel", lambda f, b=bits: f.packed(b, 0)
        yield f"W{bits}A16 group", lambda f, b=bits: f.packed(b)
        yield f"W{bits}A16 asymmetric", lambda f, b=bits: f.packed(b, asymmetric=True)
    yield "W4A16 act order", lambda f: f.packed(act_order=True, dtype=torch.float16)
    yield "W8A8", lambda f: f.int8()
    yield "W8A8 one scale", lambda f: f.int8(one=True)
    yield "W8A8 zeros", lambda f: f.int8(zero=True)
    for kind in ("tensor", "channel", "block", "blocks"):
        yield f"FP8 {kind}", lambda f, k=kind: f.fp8(k)
    for kind in ("nf4", "fp4"):
        yield kind, lambda f, k=kind: f.bnb4(k)
        yield f"{kind} nested", lambda f, k=kind: f.bnb4(k, nested=True)
    yield "LLM.int8", lambda f: f.bnb8()


def probe(command, folder, text=None):
    return run_case([PROBE, command, str(folder)], input=text)


class QuantizedOracle(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def write(self, config, tensors):
        plain = {"norm.weight": torch.arange(5.0), "m.bias": torch.arange(3.0)}
        safetensors.torch.save_file({**{n: t.contiguous() for n, t in tensors.items()}, **plain}, self.folder / "model.safetensors")
        (self.folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))

    def windows(self, out, inputs):
        for parts in (1, 2, 3, 4):
            for part in range(parts):
                yield 0, out, inputs * part // parts, inputs * (part + 1) // parts
                yield out * part // parts, out * (part + 1) // parts, 0, inputs
        for row, column in ((0, 0), (1, 3), (out - 2, inputs - 5)):
            yield row, row + 2, column, column + 5

    def check_values(self, values):
        want, asked = [], []
        for r0, r1, c0, c1 in self.windows(*values.shape):
            for dtype in ("f32", "bf16", "f16"):
                torch_type = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
                asked.append(f"m.weight {r0} {r1} {c0} {c1} {dtype} 3")
                want.append(torch.from_numpy(values[r0:r1, c0:c1].copy()).to(torch_type).view(torch.uint8).numpy().tobytes())
        done = probe("windows", self.folder, "\n".join(asked).encode())
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        at = 0
        for line, block in zip(asked, want):
            self.assertTrue(done.stdout[at : at + len(block)] == block, line)
            at += len(block)
        self.assertEqual(at, len(done.stdout))

    def test_every_format_bit_by_bit(self):
        for number, (name, make) in enumerate(all_formats()):
            for out, inputs in ((48, 144), (136, 4240)) if number % 5 == 0 else ((48, 144),):
                with self.subTest(name, out=out):
                    config, tensors, values = make(Formats(number, out, inputs) if inputs == 144 or "one group" not in name else Formats(number))
                    self.assertEqual(values.dtype, np.float32)
                    self.write(config, tensors)
                    listed = {n: shape for n, _, shape, _ in json.loads(probe("list", self.folder).stdout)["tensors"]}
                    self.assertEqual(listed, {"m.weight": list(values.shape), "norm.weight": [5], "m.bias": [3]})
                    self.check_values(values)

    def test_what_is_wrong_is_refused(self):
        base = {"gptq": Formats(1).gptq, "awq": Formats(1).awq, "ct": Formats(1).packed, "asym": lambda: Formats(1).packed(asymmetric=True),
                "int8": Formats(1).int8, "fp8": Formats(1).fp8, "blocks": lambda: Formats(1).fp8("blocks"), "nf4": lambda: Formats(1).bnb4(nested=True), "bnb8": Formats(1).bnb8, "mxfp4": Formats(1).mxfp4}
        state = "m.weight.quant_state.bitsandbytes__nf4"

        def edited_state(**changes):
            def edit(config, tensors):
                old = json.loads(bytes(tensors[state].tolist()))
                new = {key: value for key, value in {**old, **changes}.items() if value is not None}
                tensors[state] = torch.tensor(list(json.dumps(new).encode()), dtype=torch.uint8)
            return edit

        cases = [
            ("gptq", lambda c, t: c.update(quant_method="hqq"), "quant_method is \"hqq\""),
            ("gptq", lambda c, t: c.update(quant_method="\u001b[31m"), "quant_method"),
            ("gptq", lambda c, t: c.update(quant_method=7), "quant_method"),
            ("gptq", lambda c, t: c.update(bits=3), "3 bits"), ("gptq", lambda c, t: c.update(bits="4"), "bits"),
            ("gptq", lambda c, t: c.update(bits=2**63), "bits"), ("gptq", lambda c, t: c.update(group_size=2**40), "group_size"),
            ("gptq", lambda c, t: c.update(checkpoint_format="marlin"), "marlin"), ("gptq", lambda c, t: c.update(group_size=16), "m has scales for 5"),
            ("gptq", lambda c, t: t.pop("m.qzeros"), "m.qzeros is missing"), ("gptq", lambda c, t: t.pop("m.scales"), "m.scales is missing"),
            ("gptq", lambda c, t: t.update({"m.qzeros": t["m.qzeros"][:2]}), "m.qzeros"),
            ("gptq", lambda c, t: t.update({"m.scales": t["m.scales"][:, :7]}), "m.scales"),
            ("gptq", lambda c, t: t.update({"m.scales": t["m.scales"].to(torch.int16)}), "m.scales is I16"),
            ("gptq", lambda c, t: t.update({"m.qweight": t["m.qweight"].to(torch.int64)}), "m.qweight is I64"),
            ("gptq", lambda c, t: t.update({"m.qweight": t["m.qweight"][0]}), "m.qweight"),
            ("gptq", lambda c, t: t.update({"m.g_idx": t["m.g_idx"][:-1]}), "m.g_idx"),
            ("gptq", lambda c, t: t.update({"m.g_idx": t["m.g_idx"] + 4}), "belongs to group"),
            ("gptq", lambda c, t: t.update({"m.g_idx": t["m.g_idx"] - 9}), "belongs to group"),
            ("gptq", lambda c, t: t.update({"m.weight": torch.ones(48, 144)}), "both quantised and as numbers"),
            ("gptq", lambda c, t: [t.pop(n) for n in list(t)], "no quantised weight"),
            ("awq", lambda c, t: c.update(version="gemv"), "gemv"), ("awq", lambda c, t: c.update(bits=8), "8 bits"),
            ("awq", lambda c, t: t.update({"m.qzeros": t["m.qzeros"][:, 1:]}), "m.qzeros"),
            ("ct", lambda c, t: c.update(format="marlin-24"), "marlin-24"), ("ct", lambda c, t: c.update(transform_config={"a": 1}), "transform_config"),
            ("ct", lambda c, t: t.update({"m.weight_shape": torch.tensor([48, 145])}), "m.weight_packed"),
            ("ct", lambda c, t: t.update({"m.weight_shape": torch.tensor([-48, 144])}), "no layer has such a size"),
            ("ct", lambda c, t: t.update({"m.weight_shape": torch.tensor([2**62, 144])}), "no layer has such a size"),
            ("ct", lambda c, t: t.update({"m.weight_shape": torch.tensor([47, 144])}), "m.weight_packed"),
            ("ct", lambda c, t: t.pop("m.weight_shape"), "m.weight_shape is missing"),
            ("ct", lambda c, t: t.update({"m.weight_scale": t["m.weight_scale"][:, :3]}), "groups"),
            ("asym", lambda c, t: t.update({"m.weight_zero_point": t["m.weight_zero_point"][:, :3]}), "m.weight_zero_point"),
            ("int8", lambda c, t: t.pop("m.weight_scale"), "weight_scale"), ("int8", lambda c, t: t.update({"m.weight_scale": torch.ones(47, 1)}), "m.weight_scale"),
            ("int8", lambda c, t: t.update({"m.weight_scale_inv": torch.ones(1)}), "one of them"),
            ("fp8", lambda c, t: t.update({"m.weight_scale": torch.ones(2, 2)}), "m.weight_scale"),
            ("fp8", lambda c, t: t.update({"m.weight_scale": torch.ones(48, 1, 1)}), "m.weight_scale"),
            ("blocks", lambda c, t: c["config_groups"]["group_1"]["weights"].update(block_structure=[31, 48]), "blocks of 32 x 48 and of 31 x 48 (several fit"),
            ("blocks", lambda c, t: t.update({"m.weight_scale": torch.ones(5, 5)}), "in blocks of 32 x 48 and of 16 x 48 fit"),
            ("nf4", edited_state(blocksize=0), "blocksize"), ("nf4", edited_state(blocksize=None), "blocksize"), ("nf4", edited_state(shape=[48]), "shape"),
            ("nf4", edited_state(shape=[2**63, 2]), "no layer has such a size"), ("nf4", edited_state(shape=[48, 146]), "m.weight"),
            ("nf4", edited_state(blocksize=32), "m.weight.absmax"), ("nf4", edited_state(nested_offset=None), "nested_offset"),
            ("nf4", edited_state(nested_blocksize=8), "m.weight.nested_absmax"), ("nf4", lambda c, t: t.update({state: t[state][:-3]}), "JSON"),
            ("nf4", lambda c, t: t.pop("m.weight.quant_map"), "quant_map is missing"), ("nf4", lambda c, t: t.pop(state), "quant_state"),
            ("nf4", lambda c, t: t.update({"m.weight.nested_quant_map": torch.ones(255)}), "nested_quant_map"),
            ("bnb8", lambda c, t: t.update({"m.SCB": torch.ones(47)}), "m.SCB"), ("bnb8", lambda c, t: t.update({"m.weight_format": torch.tensor(2, dtype=torch.uint8)}), "weight_format"),
            ("bnb8", lambda c, t: t.pop("m.weight"), "m.weight is missing"),
            ("mxfp4", lambda c, t: t.pop("m.weight_scales"), "m.weight_scales is missing"),
            ("mxfp4", lambda c, t: t.pop("m.weight_blocks"), "no quantised weight"),
            ("mxfp4", lambda c, t: t.update({"m.weight_scales": t["m.weight_scales"][:, :, :4].clone()}), "m.weight_scales is U8 [1, 144, 4]"),
            ("mxfp4", lambda c, t: t.update({"m.weight_scales": t["m.weight_scales"].float()}), "m.weight_scales is F32"),
            ("mxfp4", lambda c, t: t.update({"m.weight_blocks": t["m.weight_blocks"][..., :15].clone()}), "m.weight_blocks is U8 [1, 144, 5, 15]"),
            ("mxfp4", lambda c, t: t.update({"m.weight_blocks": t["m.weight_blocks"][0].clone()}), "a shape of 4 numbers"),
            ("mxfp4", lambda c, t: t.update({"m.weight_blocks": t["m.weight_blocks"].to(torch.int32)}), "m.weight_blocks is I32"),
            ("mxfp4", lambda c, t: t.update({"m.weight": torch.ones(160, 144)}), "both quantised and as numbers"),
        ]
        for number, (kind, edit, words) in enumerate(cases):
            with self.subTest(kind, number=number, words=words):
                config, tensors, _ = base[kind]()
                edit(config, tensors)
                self.write(config, tensors)
                done = probe("windows", self.folder, b"m.weight 0 48 0 144 f32 0")
                self.assertEqual(done.returncode, 65, done.stderr.decode())
                self.assertIn(words, done.stderr.decode())
                self.assertNotIn(b"\x1b", done.stderr)
        print("refused:", len(cases))


if __name__ == "__main__":
    unittest.main()
