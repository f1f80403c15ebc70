"""The blocks of Gemma 3n alone, by the code of CPUs, against transformers' modules: AltUp's ends, prediction and correction, Laurel, and the
MLP whose gates few pass, whole and as the sum of two parts of its columns.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers.models.gemma3n import modeling_gemma3n as gemma3n
from transformers.models.gemma3n.configuration_gemma3n import Gemma3nTextConfig

PROBE = str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/stream_probe")
TOKENS, HIDDEN, COLUMNS, RANK = 19, 40, 57, 7
TOLERANCE = 2e-6  # relative to the largest number


def noise(*shape):
    return torch.randn(shape)


def filled(module, router_scale):
    for name, weight in module.named_parameters():
        weight.data = 1 + 0.3 * noise(*weight.shape) if weight.dim() == 1 else noise(*weight.shape) / weight.shape[-1] ** 0.5
        if name == "modality_router.weight":
            weight.data *= router_scale
    return module


def joined(hidden, streams, products):
    """What Gemma3nTextModel.forward writes out around its layers, in its own words."""
    target = torch.mean(hidden ** 2, dim=-1, keepdim=True) ** 0.5
    out = [hidden]
    for product, source in zip(products, streams):
        one = product(source)
        out.append(one * target / torch.sqrt(torch.mean(one ** 2, dim=-1, keepdim=True).clamp(min=1e-5)))
    return torch.stack(out)


def check(inputs, active, sparsity, silent):
    config = Gemma3nTextConfig(hidden_size=HIDDEN, num_attention_heads=4, intermediate_size=COLUMNS, num_hidden_layers=1, laurel_rank=RANK, vocab_size=8,
                               vocab_size_per_layer_input=8, altup_num_inputs=inputs, altup_active_idx=active, activation_sparsity_pattern=[sparsity],
                               num_kv_shared_layers=0)
    with torch.no_grad():
        altup, laurel = filled(gemma3n.Gemma3nTextAltUp(config), HIDDEN * 1.3).eval(), filled(gemma3n.Gemma3nTextLaurelBlock(config), 1)
        mlp, norm = filled(gemma3n.Gemma3nTextMLP(config), 1), filled(gemma3n.Gemma3nRMSNorm(HIDDEN), 1)
        ends = [[filled(torch.nn.Linear(HIDDEN, HIDDEN, bias=False), 1) for _ in range(inputs - 1)] for _ in range(2)]
        if silent:  # a product without a size cannot be scaled to one
            ends[0][0].weight.zero_()
        hidden, activated = noise(1, TOKENS, HIDDEN) * 3, noise(1, TOKENS, HIDDEN) * 3
        streams = joined(hidden, [hidden] * (inputs - 1), ends[0])
        predicted = altup.predict(streams)
        corrected = altup.correct(predicted, activated)
        expected = {"streams": streams, "predicted": predicted, "corrected": corrected,
                    "joined": joined(corrected[0], corrected[1:], ends[1]).mean(0)}
        expected = {name: value.permute(1, 2, 0, 3) if value.dim() == 4 else value for name, value in expected.items()}
        expected |= {"active": predicted[active], "scaled": altup.scale_corrected_output(corrected[active]), "laurel": hidden + laurel(norm(hidden)),
                     "mlp": mlp(hidden), "mlp_parts": mlp(hidden)}
    cutoff = torch.distributions.Normal(0, 1).icdf(torch.tensor(sparsity)).item()
    sizes = {"tokens": TOKENS, "hidden": HIDDEN, "inputs": inputs, "active": active, "rank": RANK, "columns": COLUMNS, "cutoff": cutoff, "eps": 1e-6}
    given = {"hidden": hidden, "activated": activated, "router": altup.modality_router.weight, "router_norm": altup.router_norm.weight,
             "prediction": altup.prediction_coefs.weight, "correction": altup.correction_coefs.weight, "scale": altup.correct_output_scale,
             "left": laurel.linear_left.weight, "right": laurel.linear_right.weight, "laurel_norm": laurel.post_laurel_norm.weight,
             "input_norm": norm.weight, "gate": mlp.gate_proj.weight, "up": mlp.up_proj.weight, "down": mlp.down_proj.weight}
    for i in range(inputs - 1):
        given |= {f"projection{i}": ends[0][i].weight, f"unembedding{i}": ends[1][i].weight}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "sizes.json").write_text(json.dumps(sizes))
        for name, value in given.items():
            value.detach().numpy().astype("<f4").tofile(folder / f"{name}.f32")
        done = subprocess.run([PROBE, folder], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return [f"{sizes}: {done.stderr.strip()}"]
        worst = {}
        for name, value in expected.items():
            value = value.numpy()
            found = np.fromfile(folder / f"{name}.f32", dtype="<f4").reshape(value.squeeze(0).shape)
            worst[name] = float(np.abs(found - value.squeeze(0)).max() / np.abs(value).max())
    kept = float((mlp._gaussian_topk(mlp.gate_proj(hidden)) > 0).float().mean())
    print(f"{inputs} vectors, number {active} active, {kept:.0%} of the gates pass: " + ", ".join(f"{name} {value:.2g}" for name, value in worst.items()))
    return [f"{sizes}: {name} differs by {value:.3g}" for name, value in worst.items() if not value <= TOLERANCE]


def main():
    torch.manual_seed(0)
    failures = check(3, 0, 0.8, False) + check(4, 2, 0.5, True) + check(2, 1, 0.95, False)
    print("\n".join(f"FAILS: {failure}" for failure in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
