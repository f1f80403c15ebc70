"""Layers that bitsandbytes packs itself on a CPU and saves, against the numbers that they stand for by its own dequantisation, to the bit."""
import json
import pathlib
import tempfile
import unittest

import bitsandbytes
import safetensors.torch
import torch

from quantized_oracle_test import probe

# The last: an odd number of codes, blocks across rows, the last one not full. Not [48, 192], where blocks of 128 end inside even rows: there
# 0.50.2's own dequantisation on CPUs is 0.19 from the weight, and codes times scales, as its packing means them, 0.05.
SIZES = ((48, 256), (64, 4096), (37, 71))
TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def four_bits(name, weight, kind, nested, block):
    """-> (the tensors of a layer as its state_dict has them, the numbers that they stand for)."""
    out, inputs = weight.shape
    layer = bitsandbytes.nn.Linear4bit(inputs, out, bias=False, quant_type=kind, compress_statistics=nested)
    layer.weight.blocksize = block
    layer.load_state_dict({"weight": weight}, strict=False)
    layer = layer.to("cpu")
    tensors = {f"{name}.{key}": tensor for key, tensor in layer.state_dict().items() if isinstance(tensor, torch.Tensor)}
    return tensors, bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)


def eight_bits(name, weight):
    codes, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.half())
    values = bitsandbytes.functional.int8_vectorwise_dequant(codes, scales)
    return {f"{name}.weight": codes, f"{name}.SCB": scales, f"{name}.weight_format": torch.tensor(0, dtype=torch.uint8)}, values


class Bitsandbytes(unittest.TestCase):
    def compare(self, config, pack):
        """A checkpoint of nine layers, three sizes in three types."""
        stored, layers = {}, []
        for seed, (out, inputs) in enumerate(SIZES):
            for kind in TYPES:
                weight = (torch.randn(out, inputs, generator=torch.Generator().manual_seed(seed)) * 0.1 + 0.02).to(kind)
                tensors, values = pack(f"m{len(layers)}", weight)
                stored.update({key: tensor.contiguous() for key, tensor in tensors.items()})
                self.assertEqual(values.shape, weight.shape)
                self.assertLess(float((values.float() - weight.float()).abs().mean()), 0.02)
                self.assertGreater(len(values.unique()), 10)
                layers.append((f"m{len(layers)}.weight 0 {out} 0 {inputs} {TYPES[values.dtype]} 0", values))
        with tempfile.TemporaryDirectory() as folder:
            safetensors.torch.save_file(stored, pathlib.Path(folder) / "model.safetensors")
            (pathlib.Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "bitsandbytes", **config}}))
            done = probe("windows", folder, "\n".join(asked for asked, _ in layers).encode())
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        begin = 0
        for asked, values in layers:
            end = begin + values.nbytes
            found = torch.frombuffer(bytearray(done.stdout[begin:end]), dtype=values.dtype).reshape(values.shape)
            self.assertTrue(torch.equal(found, values), f"{asked}: largest difference {(found.float() - values.float()).abs().max()}")
            begin = end
        self.assertEqual(begin, len(done.stdout))

    def test_four_bits(self):
        for kind in ("nf4", "fp4"):
            for nested in (False, True):
                for block in (64, 128, 4096):
                    with self.subTest(kind=kind, nested=nested, block=block):
                        config = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested}
                        self.compare(config, lambda name, weight, a=(kind, nested, block): four_bits(name, weight, *a))

    def test_eight_bits(self):
        self.compare({"load_in_8bit": True}, eight_bits)


if __name__ == "__main__":
    unittest.main(verbosity=2)
