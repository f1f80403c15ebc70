#!/usr/bin/env python3
"""The comparison with bitsandbytes: its layers packed by itself on a CPU and saved, the numbers that they stand for by its own dequantisation,
to the bit. Not part of CI: the package has 125 MB of GPU code (a venv of its own; `pip install --no-deps bitsandbytes==0.50.2` beside the tests').

usage: compare_bitsandbytes.py      MAGISTER_BUILD_DIR is needed; the table is in tests/README.md
"""
import json
import pathlib
import sys
import tempfile

import bitsandbytes
import safetensors.torch
import torch

from quantized_oracle_test import probe

# The last: an odd number of codes, blocks across rows, the last one not full. Not [48, 192], where blocks of 128 end inside even rows: there
# 0.50.2's own dequantisation on CPUs is 0.19 from the weight, and codes times scales, as its packing means them, 0.05.
SIZES = ((48, 256), (64, 4096), (37, 71))


def saved(layer, weight):
    """-> (the tensors of a layer "m" as its state_dict has them, the layer)."""
    layer.load_state_dict({"weight": weight}, strict=False)
    layer = layer.to("cpu")
    return {f"m.{name}": tensor for name, tensor in layer.state_dict().items() if isinstance(tensor, torch.Tensor)}, layer


def four_bits(kind, nested, block, weight):
    out, inputs = weight.shape
    layer = bitsandbytes.nn.Linear4bit(inputs, out, bias=False, quant_type=kind, compress_statistics=nested)
    layer.weight.blocksize = block
    tensors, layer = saved(layer, weight)
    values = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested}, tensors, values


def eight_bits(weight):
    codes, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight)
    values = bitsandbytes.functional.int8_vectorwise_dequant(codes, scales)
    return {"quant_method": "bitsandbytes", "load_in_8bit": True}, {"m.weight": codes, "m.SCB": scales, "m.weight_format": torch.tensor(0, dtype=torch.uint8)}, values


def main():
    failures = 0
    print("| what is packed | layers | numbers that differ | largest difference |\n|---|---|---|---|")
    cases = [(f"{kind}{', nested' if nested else ''}, blocks of {block}", lambda weight, a=(kind, nested, block): four_bits(*a, weight))
             for kind in ("nf4", "fp4") for nested in (False, True) for block in (64, 128, 4096)]
    for name, pack in [*cases, ("LLM.int8()", eight_bits)]:
        different, layers, worst = 0, 0, 0.0
        for seed, (out, inputs) in enumerate(SIZES):
            for kind in (torch.float32, torch.bfloat16, torch.float16):
                weight = (torch.randn(out, inputs, generator=torch.Generator().manual_seed(seed)) * 0.1 + 0.02).to(torch.float16 if pack is eight_bits else kind)
                config, tensors, values = pack(weight)
                asked = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[values.dtype]
                with tempfile.TemporaryDirectory() as folder:
                    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, pathlib.Path(folder) / "model.safetensors")
                    (pathlib.Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))
                    done = probe("windows", folder, f"m.weight 0 {out} 0 {inputs} {asked} 0".encode())
                if done.returncode != 0:
                    sys.exit(f"FAILS {name} [{out}, {inputs}]: {done.stderr.decode()}")
                found = torch.frombuffer(bytearray(done.stdout), dtype=values.dtype).reshape(out, inputs)
                different += int((found != values).sum())
                worst = max(worst, float((found.float() - values.float()).abs().max()))
                layers += 1
        failures += different
        print(f"| {name} | {layers} | {different} | {worst:.2g} |", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
