"""Attention blocks whose keys an indexer chooses, each alone on hidden states of its own, against transformers' modules in fp32: the chosen keys,
which are the same, and the outputs. Texts are shorter and longer than index_topk; layers that share a choice follow the one that makes it.

With 3 heads many keys have the score 0 by all ReLUs, and which of them torch.topk takes depends on the length of the row: transformers' modules
then get the lower positions, as here (findings/transformers_5_equal_scores_of_keys.sh).
"""
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

PROBE = str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/indexer_probe")
LENGTHS = (1, 9, 10, 33, 70, 130)
VARIANTS = [name for name, variant in tiny_models.VARIANTS.items() if "index_topk" in variant.changes]
TIED = {f"{name}_ties": dataclasses.replace(variant, changes={**variant.changes, "index_n_heads": 3})
        for name, variant in tiny_models.VARIANTS.items() if name in ("deepseek_v32", "glm_moe_dsa")}
tiny_models.VARIANTS.update(TIED)
TOLERANCE = 1e-5  # of outputs of about 1; measured 1e-6
MARGIN = 3e-6  # of the largest score: numbers of f32 have 24 bits, and where the last chosen key is less ahead of the next one, rounding may decide


def own(model, hidden):
    """-> outputs of all blocks [layers, length, hidden], chosen keys [layers, length, length] bool, the least margin, and ties at 0"""
    length, masks, margins, ties = hidden.shape[1], [], [], 0
    causal = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
    position = torch.arange(length)[None]
    turning = model.model.rotary_emb(hidden[0][None], position_ids=position)
    top_k, choice, outputs, seen = model.config.index_topk, None, [], []
    topk = torch.Tensor.topk

    def lower_first(scores, k, dim=-1):
        seen.append(scores[0])
        best = scores.sort(dim=dim, descending=True, stable=True)
        return torch.return_types.topk((best.values[..., :k], best.indices[..., :k]))
    for layer, states in zip(model.model.layers, hidden):
        more = {"prev_topk_indices": choice} if model.config.model_type == "glm_moe_dsa" else {}
        chosen = []
        indexer = layer.self_attn.indexer
        handle = indexer.register_forward_hook(lambda _, __, out: chosen.append(out)) if indexer is not None else None
        torch.Tensor.topk = lower_first
        try:
            outputs.append(layer.self_attn(hidden_states=layer.input_layernorm(states[None]), position_embeddings=turning, attention_mask=causal,
                                           position_ids=position, **more)[0][0])
        finally:
            torch.Tensor.topk = topk
        if handle is not None:
            handle.remove()
            choice = chosen[0]
        masks.append(torch.zeros(length, length, dtype=torch.bool).scatter(1, choice[0].long(), True) & (causal[0, 0] == 0))
    for scores in seen:
        for row in range(top_k, length):
            best = scores[row, :row + 1].sort(descending=True).values
            if best[top_k - 1] == 0 == best[top_k]:
                ties += 1
            else:
                margins.append(float((best[top_k - 1] - best[top_k]) / best.abs().max()))
    return torch.stack(outputs), torch.stack(masks), min(margins, default=1.0), ties


def check_variant(name, work):
    model = tiny_models.load_reference(tiny_models.make(work, name))
    layers, width = model.config.num_hidden_layers, model.config.hidden_size
    hidden = torch.randn(layers, sum(LENGTHS), width, generator=torch.Generator().manual_seed(1))
    files = [work / f"{name}.{part}" for part in ("hidden", "out", "chosen")]
    hidden.numpy().tofile(files[0])
    subprocess.run([PROBE, work / name, *files, *map(str, LENGTHS)], check=True)
    out = np.fromfile(files[1], dtype=np.float32).reshape(layers, -1, width)
    chosen = np.fromfile(files[2], dtype=np.int32).reshape(layers, len(out[0]), -1)
    failures, worst, least, begin, tied = [], 0.0, 1.0, 0, 0
    with torch.no_grad():
        for length in LENGTHS:
            rows = slice(begin, begin + length)
            begin += length
            expected, masks, margin, ties = own(model, hidden[:, rows])
            least, tied = min(least, margin), tied + ties
            worst = max(worst, float(np.abs(out[:, rows] - expected.numpy()).max()))
            for layer in range(layers):
                for row, keys in enumerate(chosen[layer, rows]):
                    keys = list(range(row + 1)) if keys[0] < 0 else keys.tolist()
                    if keys != np.flatnonzero(masks[layer, row]).tolist():
                        failures.append(f"{name}: layer {layer} chooses {keys} for token {row} of {length}")
    print(f"{name:26s} differs by {worst:.2g}; the last chosen key is {least:.1g} ahead, in {tied} rows equal", flush=True)
    if (tied > 20) != (name in TIED):
        failures.append(f"{name}: {tied} rows with equal scores at the border")
    if least < MARGIN:
        failures.append(f"{name}: scores are too close; choose other sizes of the indexer")
    return failures + ([] if worst <= TOLERANCE else [f"{name}: outputs differ by {worst:.3g}"])


def main():
    with tempfile.TemporaryDirectory(prefix="magister_sparse_attention_") as folder:
        failures = [failure for name in (*VARIANTS, *TIED) for failure in check_variant(name, pathlib.Path(folder))]
    print("\n".join(f"FAILS: {failure}" for failure in failures))
    print(f"{len(VARIANTS) + len(TIED)} models, {len(failures)} failures")
    return 1 if failures or not VARIANTS else 0


if __name__ == "__main__":
    sys.exit(main())
