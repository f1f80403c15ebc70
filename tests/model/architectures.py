"""Which decoders of transformers run: a tiny random model of every causal language model that can be made, through the passes of CPUs.

usage: architectures.py [--markdown] [--jobs N] [MODEL_TYPE ...]      MAGISTER_BUILD_DIR: the build whose tests/model/families_probe is asked
A line each: runs (largest difference of log-probabilities, with the best token equal), differs, refused (with the message), or could not be
made by transformers from a small config; the last line counts them. Each model has a process of its own with a limit of memory and time, so
none can stop the others. It is not a test: CI has the variants of tests/oracle/tiny_models.py.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import copy
import io
import json
import logging
import multiprocessing
import os
import pathlib
import re
import resource
import signal
import sys
import tempfile
import zlib

os.environ.setdefault("MAGISTER_BUILD_DIR", "build")
import families_test  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from probe_cases import run_case  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as ALL  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES  # noqa: E402

# Parts of encoders with decoders, encoders that can be asked to be decoders, and models that need pictures or sound.
NO_DECODERS = set("""bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert data2vec-text electra ernie git
got_ocr2 marian mbart megatron-bert mllama moshi moss_transcribe_diarize musicgen musicgen_melody mvp pegasus plbart prophetnet reformer rembert
roberta roberta-prelayernorm roc_bert roformer trocr whisper xlm xlm-roberta xlm-roberta-xl xlnet xmod fuyu emu3 phi4_multimodal""".split())
LENGTHS = (1, 2, 7, 33, 20, 70)
TOLERANCE = 2e-4
SECONDS = 60  # for transformers' part; a larger model than MOST_WEIGHTS has no small config here
MOST_WEIGHTS = 20_000_000
MOST_MEMORY = 6 << 30  # bytes of addresses that a process may have
# Small values of keys, set where the config has them.
SMALL = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None, "head_dim": 16,
    "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, "n_inner": 96, "n_ctx": 128, "rotary_dim": 8, "d_model": 64, "n_layers": 4,
    "n_heads": 4, "max_seq_len": 128, "ffn_dim": 96, "word_embed_proj_dim": 64, "num_kv_heads": 2, "sliding_window": 8, "window_size": 8,
    "max_window_layers": 2, "attention_types": [[["global", "local"], 2]], "num_layers": 4, "num_heads": 4, "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48, "shared_intermediate_size": 96, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "ffn_hidden_size": 96, "decoder_ffn_dim": 96, "decoder_layers": 4,
    "decoder_attention_heads": 4, "query_pre_attn_scalar": 24, "partial_rotary_factor": 0.5, "rotary_pct": 0.5, "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0, "residual_dropout": 0.0, "dim_model_base": 64, "moe_num_experts": 8, "moe_k": 2, "index_n_heads": 14, "index_head_dim": 18,
    "index_topk": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "attention_multiplier": 0.125, "logit_scale": 1.0, "mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_ssm": 128, "state_size": 8, "global_head_dim": 16,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320, "num_kv_shared_layers": 0, "lru_width": 64, "laurel_rank": 8,
}


def has(config, key):
    try:
        return hasattr(config, key)
    except Exception:  # noqa: BLE001 - a key whose value may differ by layer says so instead of giving one
        return True


def small_sizes(model_type):
    default = transformers.CONFIG_MAPPING[model_type]()
    names = {key: value for key, value in SMALL.items() if has(default, key)}
    ropes = getattr(default, "rope_parameters", None) or {}
    is_odd = {kind: isinstance(rope, dict) and rope.get("rope_type") == "default" and rope.get("partial_rotary_factor", 1) < 1 for kind, rope in ropes.items()}
    if any(is_odd.values()):  # such a part of a small head may be an odd number
        names["rope_parameters"] = {kind: {**rope, "partial_rotary_factor": 0.5} if is_odd[kind] else rope for kind, rope in ropes.items()}
    if "linear_num_key_heads" in names:  # the norm of a small output would multiply every rounding
        names["rms_norm_eps"] = 0.02
    if "kv_lora_rank" in names:  # latent attention has as many heads of keys, and sizes of their own
        names["num_key_value_heads"] = names["num_attention_heads"]
        names.pop("head_dim", None)
    kinds = getattr(default, "layer_types", None)
    if kinds and len(set(kinds)) > 1:
        distinct = sorted(set(kinds), key=kinds.index)
        names["layer_types"] = [distinct[i % len(distinct)] for i in range(4)]
    elif kinds:
        names["layer_types"] = kinds[:1] * 4
    if getattr(default, "mlp_layer_types", None):
        names["mlp_layer_types"] = ["dense", "sparse", "sparse", "sparse"] if "dense" in default.mlp_layer_types else ["sparse"] * 4
    for key in [key for key in names if key in type(default).attribute_map and type(default).attribute_map[key] in names]:
        names.pop(key)  # two names of one value
    for dropped in ((), ("head_dim",), ("partial_rotary_factor", "layer_types"), ("head_dim", "num_key_value_heads", "partial_rotary_factor")):
        yield {key: value for key, value in names.items() if key not in dropped}


def small_configs(model_type):
    """-> (config, class) of small models, the best first. Of a model of images and texts the class has both."""
    vision = families_test.tiny_models.VISION.get(model_type)
    if vision is None:
        for sizes in small_sizes(model_type):
            yield lambda sizes=sizes: (transformers.CONFIG_MAPPING[model_type](**sizes), getattr(transformers, ALL[model_type]))
        return
    text_type = transformers.CONFIG_MAPPING[model_type]().text_config.model_type
    for sizes in small_sizes(text_type):
        yield lambda sizes=sizes: (
            transformers.CONFIG_MAPPING[model_type](text_config={"model_type": text_type, **sizes, "pad_token_id": 0}, vision_config=vision,
                                                    **({"audio_config": None} if "audio_config" in vars(transformers.CONFIG_MAPPING[model_type]()) else {})),
            getattr(transformers, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type]))


def reference(model_type, folder, tokens):
    """Makes the model in the folder -> its logits by transformers."""
    for config_and_class in small_configs(model_type):
        try:
            config, kind = config_and_class()
            with torch.device("meta"):
                size = sum(weight.numel() for weight in kind(config).parameters())
            if size > MOST_WEIGHTS:
                raise ValueError(f"{size} weights by a config of small sizes")
            # Its own class: the class that the mapping names may be one around it.
            model = kind._from_config(config, attn_implementation="eager").float().eval()
            fill(model)
            model.save_pretrained(folder)
            expected = []
            stored = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            for row in tokens:  # one text at a time, by a fresh model: some remember the longest
                with torch.no_grad():
                    expected.append(copy.deepcopy(stored)(torch.tensor([row]), use_cache=False).logits[0].float().numpy())
            return np.concatenate(expected)
        except Exception as error:  # noqa: BLE001 - whatever it is, the model cannot be made
            if isinstance(error, TimeoutError):
                raise
            fault = error
    raise fault


def fill(model):
    """Random weights by name, so that logits vary by several nats and every weight matters."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
            if weight.dim() < 2:
                is_scale = weight.numel() > 0 and weight.std(unbiased=False) == 0
                weight.copy_(weight + (0.3 if name.endswith("bias") else 0.2) * noise if is_scale else weight + 0.1 * noise)
            elif weight.shape[0] == 320:
                weight.copy_(2.4 * noise / weight.shape[1] ** 0.5)
            else:
                weight.copy_(1.3 * noise / weight.shape[-1] ** 0.5)


def try_one(model_type, work):
    """-> (outcome, text)."""
    folder = work / model_type
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            tokens = families_test.tiny_models.sequences(320, LENGTHS)
            expected = reference(model_type, folder, tokens)
    except Exception as error:  # noqa: BLE001 - whatever it is, the model cannot be made
        return "not made", f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]
    finally:
        signal.alarm(0)
    (work / "tokens.json").write_text(json.dumps(tokens))
    done = run_case([families_test.PROBE, folder, work / "tokens.json", work, "1c"], text=True)
    if done.returncode != 0:
        message = re.sub(rf"^.*{re.escape(str(work))}/[^:]*: ", "", done.stderr.strip().splitlines()[-1])
        return "refused", re.sub(r"; known: .*", "...", message)[:200]
    found = np.fromfile(work / "fast.1.f32", dtype=np.float32).reshape(expected.shape)
    worst = families_test.difference(found, expected)
    spread = expected.std(axis=1).mean()
    return "runs" if worst <= TOLERANCE else "differs", f"{worst:.2g}, logits vary by {spread:.1f}"


def stop(*_):
    raise TimeoutError(f"more than {SECONDS} seconds")


def begin_process():
    """A process of one model: its threads and its memory are limited."""
    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)  # transformers prints every config that does not take a key
    torch.manual_seed(0)


def in_child(model_type, answer):
    begin_process()
    with tempfile.TemporaryDirectory(prefix="magister_architectures_") as folder:
        answer.send(try_one(model_type, pathlib.Path(folder)))


def try_apart(model_type):
    """try_one() in a process of its own."""
    processes = multiprocessing.get_context("fork")
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=in_child, args=(model_type, theirs))
    child.start()
    theirs.close()
    try:
        if ours.poll(3 * SECONDS):
            return ours.recv()
    except EOFError:
        pass
    finally:
        child.kill()
        child.join()
    return "not made", f"its process ended with {child.exitcode} and gave no answer"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("model_type", nargs="*")
    arguments = parser.parse_args()
    counts = collections.Counter()
    model_types = arguments.model_type or sorted(set(ALL) - NO_DECODERS)
    torch.set_num_threads(1)  # before the first fork: no threads of a library may exist then
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as jobs:
        for model_type, (outcome, text) in zip(model_types, jobs.map(try_apart, model_types)):
            counts[outcome] += 1
            text = text.replace("\n", " ").replace("|", "/")
            print(f"| {model_type} | {outcome} | {text} |" if arguments.markdown else f"{model_type:26s} {outcome:9s} {text}", flush=True)
    print(f"transformers {transformers.__version__}: {counts['runs']} of {len(model_types)} run; " + ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
