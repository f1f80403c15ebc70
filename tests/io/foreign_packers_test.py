"""Quantised checkpoints packed by the program that defines the format, not by our reading of it: weights and config.json through
compressed-tensors' own compressors, and the numbers that they stand for through its decompressors, bit by bit.

GGUF's Q8_0, Q4_0 and Q4_1 are packed by the gguf package's quantisers in tensor_oracle_test.py and in tests/oracle/tiny_gguf.py.
"""
import json
import pathlib
import tempfile
import unittest

import safetensors.torch
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from quantized_oracle_test import probe

OUT, INPUTS = 48, 192
CASES = {
    "W4A16 group": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": True}),
    "W4A16 group asymmetric": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": False}),
    "W4A16 channel": ("pack-quantized", {"num_bits": 4, "strategy": "channel", "symmetric": True}),
    "W4A16 tensor": ("pack-quantized", {"num_bits": 4, "strategy": "tensor", "symmetric": True}),
    "W4A16 tensor asymmetric": ("pack-quantized", {"num_bits": 4, "strategy": "tensor", "symmetric": False}),
    "W8A16 tensor": ("pack-quantized", {"num_bits": 8, "strategy": "tensor", "symmetric": True}),
    "W8A16 group asymmetric": ("pack-quantized", {"num_bits": 8, "strategy": "group", "group_size": 32, "symmetric": False}),
    "W8A16 channel": ("pack-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": True}),
    "W8A8 channel": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": True}),
    "W8A8 channel asymmetric": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
    "FP8 channel": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}),
    "FP8 tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}),
}


def quantized(form, arguments, seed):
    """-> (quantization_config, tensors of "m", the numbers that they stand for)."""
    weight = torch.randn(OUT, INPUTS, generator=torch.Generator().manual_seed(seed)) * 0.1 + 0.02
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    grouped = weight.unflatten(1, (-1, args.group_size)) if arguments["strategy"] == "group" else weight.unsqueeze(1)
    low, high = (grouped.amin(-1), grouped.amax(-1)) if arguments["strategy"] != "tensor" else (weight.min().reshape(1), weight.max().reshape(1))
    scale, zero = calculate_qparams(low, high, args)
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress({"weight": weight, "weight_scale": scale, "weight_zero_point": zero}, scheme)
    values = compressor.decompress(dict(packed), scheme)["weight"]
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=form, quantization_status="compressed", ignore=["lm_head"])
    return config.model_dump(mode="json"), {f"m.{name}": tensor.contiguous() for name, tensor in packed.items()}, values


class ForeignPackers(unittest.TestCase):
    def test_mxfp4(self):
        """gpt-oss's blocks and scales, every scale there is, by transformers' own conversion: whole, and windows across experts and groups."""
        generator = torch.Generator().manual_seed(3)
        experts, out, groups = 3, 86, 3
        blocks = torch.randint(0, 256, (experts, out, groups, 16), generator=generator, dtype=torch.uint8)
        scales = torch.arange(experts * out * groups).remainder(256).to(torch.uint8).reshape(experts, out, groups)
        windows = [(0, experts * 96, 0, out), (1, 2, 85, 86), (31, 97, 3, 70), (95, 193, 64, 65), (200, 200, 0, 4)]
        with tempfile.TemporaryDirectory() as folder:
            safetensors.torch.save_file({"m.down_proj_blocks": blocks, "m.down_proj_scales": scales, "m.down_proj_bias": torch.ones(3, out)},
                                        pathlib.Path(folder) / "model.safetensors")
            (pathlib.Path(folder) / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
            for kind, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
                values = convert_moe_packed_tensors(blocks, scales, dtype=kind).reshape(experts * 32 * groups, out)
                self.assertGreater(values.isfinite().float().mean(), 0.99)
                asked = "\n".join("m.down_proj " + " ".join(map(str, window)) + f" {name} 0" for window in windows)
                done = probe("windows", folder, asked.encode())
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                found = torch.frombuffer(bytearray(done.stdout), dtype=kind)
                want = torch.cat([values[a:b, c:d].flatten() for a, b, c, d in windows])
                self.assertEqual(found.shape, want.shape)
                same = (found.view(torch.int16 if kind == torch.bfloat16 else torch.int32) == want.view(torch.int16 if kind == torch.bfloat16 else torch.int32))
                self.assertTrue((same | (found.isnan() & want.isnan())).all())

    def test_compressed_tensors(self):
        for seed, (name, (form, arguments)) in enumerate(CASES.items()):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                config, tensors, values = quantized(form, arguments, seed)
                self.assertEqual((values.dtype, values.shape), (torch.float32, (OUT, INPUTS)))
                self.assertGreater(len(values.unique()), 10)
                safetensors.torch.save_file(tensors, pathlib.Path(folder) / "model.safetensors")
                (pathlib.Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))
                done = probe("windows", folder, f"m.weight 0 {OUT} 0 {INPUTS} f32 0".encode())
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                found = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).reshape(OUT, INPUTS)
                self.assertTrue(torch.equal(found, values), f"largest difference {(found - values).abs().max()}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
