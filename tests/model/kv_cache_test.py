"""Pages of 8-bit floats (model.kv_cache: fp8) beside transformers: its own models in f32 with a cache that rounds keys and values as our pages
do, by torch's e4m3 and a power of two for each vector. Prompts in two parts, the last tokens one by one, and the loss of both programs.

Passes in bf16 differ from f32, and a number next to the middle between two codes may get the other code: so our logits are compared with
transformers' as those of bf16 pages are, and what rounding costs by the mean KL from pages that are not rounded, one program at a time.
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
import tiny_models  # noqa: E402

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from probe_cases import run_case  # noqa: E402

PROBE = os.environ.get("FAMILIES_PROBE") or str(pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/model/families_probe")
LENGTHS = (1, 2, 7, 33, 20, 130)
# Norms of heads; windows and layers that read earlier pages; experts; values narrower than keys, and sinks.
MODELS = ("llama", "qwen3", "gemma3n", "qwen3_moe", "mimo_v2")
# Mean differences of log-probabilities, about three times what was measured: 0.046 to 0.11, and 0 to 0.002 for tokens written one by one. The losses
# were 0.82 to 1.07 of transformers'.
LIMITS = {"codes": 0.3, "decoded": 0.006}
LEAST_LOSS, MOST_LOSS = 0.6, 1.6


def rounded(vectors):
    """What our pages hold, from vectors [..., E]."""
    vectors = vectors.to(torch.bfloat16).float()
    largest = vectors.abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(largest / 448)
    scale = torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), exponent - (mantissa == 0.5).int()), 1.0)
    return (vectors / scale).to(torch.float8_e4m3fn).float() * scale


class RoundingCache(transformers.DynamicCache):
    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(rounded(key_states), rounded(value_states), *args, **kwargs)


def logprobs(logits):
    logits = torch.as_tensor(numpy.array(logits)).double()
    return (logits - logits.logsumexp(-1, keepdim=True)).numpy()


def by_transformers(path, token_lists):
    """Log-probabilities of plain and of rounded caches, every text alone, a fresh model for each."""
    found = []
    for kind in (transformers.DynamicCache, RoundingCache):
        rows = []
        for tokens in token_lists:
            model = tiny_models.load_reference(path)
            with torch.no_grad():
                cache = kind(config=tiny_models.text_config(model))
                rows.append(model(torch.tensor([tokens]), use_cache=True, past_key_values=cache).logits[0].float().numpy())
        found.append(logprobs(numpy.concatenate(rows)))
    return found


def kl(one, other):
    return float((numpy.exp(one) * (one - other)).sum(axis=1).mean())


class KvCache(unittest.TestCase):
    def compare(self, name):
        with tempfile.TemporaryDirectory(prefix="magister_kv_") as folder:
            work = pathlib.Path(folder)
            path = tiny_models.make(work, name)
            config = tiny_models.text_config(tiny_models.load_reference(path))
            token_lists = tiny_models.sequences(config.vocab_size, LENGTHS)
            plain, codes = by_transformers(path, token_lists)
            (work / "tokens.json").write_text(json.dumps(token_lists))
            run_case([PROBE, path, work / "tokens.json", work, "1k"], check=True)
            ours = {kind: logprobs(numpy.fromfile(work / f"{kind}.1.f32", dtype=numpy.float32).reshape(plain.shape))
                    for kind in ("pages", "codes", "codes_decoded")}
        self.assertTrue(all(numpy.isfinite(rows).all() for rows in ours.values()))
        # The token in the middle: some have other experts than in f32.
        apart = {"pages": numpy.median(numpy.abs(ours["pages"] - plain).mean(axis=1)), "codes": numpy.median(numpy.abs(ours["codes"] - codes).mean(axis=1)),
                 "decoded": numpy.abs(ours["codes_decoded"] - ours["codes"]).mean(), "rounding": numpy.median(numpy.abs(codes - plain).mean(axis=1))}
        loss = {"transformers": kl(plain, codes), "ours": kl(ours["pages"], ours["codes"])}
        print(f"{name:12s} mean differences: " + ", ".join(f"{key} {value:.2g}" for key, value in apart.items()) +
              "; loss in nat a token: " + ", ".join(f"{key} {value:.2g}" for key, value in loss.items()), flush=True)
        return apart, loss


def case(name):
    def test(self):
        apart, loss = self.compare(name)
        for key, limit in LIMITS.items():
            self.assertLess(apart[key], limit, key)
        self.assertLess(apart["codes"], apart["rounding"], "nearer to a cache that rounds than this is to one that does not")
        self.assertLess(LEAST_LOSS, loss["ours"] / loss["transformers"])
        self.assertLess(loss["ours"] / loss["transformers"], MOST_LOSS)
    return test


for model in MODELS:
    setattr(KvCache, f"test_{model}", case(model))

if __name__ == "__main__":
    unittest.main()
