"""Writes a model folder of a Llama shape with random bf16 weights in seconds, one thread per file, without a library
of models, for whole runs of magister and of transformers on a machine that is available for minutes. The files are
as large as those of published models.
"""
import concurrent.futures
import json
import pathlib
import shutil

import numpy

import gpu_busy
import hf_gpu

# Number of random numbers; tensors take them in order. It is not a multiple of a row, so that rows differ.
POOL = 33_554_467
SHARD_BYTES = 5 << 30


def tensors_of(config):
    """-> [(name, shape)] with the names of transformers."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head, mlp = config.get("head_dim", width // heads), config["intermediate_size"]
    queries, keys = heads * head, config["num_key_value_heads"] * head
    found = [("model.embed_tokens.weight", (config["vocab_size"], width))]
    for layer in range(config["num_hidden_layers"]):
        shapes = {"input_layernorm": (width,), "post_attention_layernorm": (width,), "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
                  "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries), "mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width),
                  "mlp.down_proj": (width, mlp)}
        found += [(f"model.layers.{layer}.{name}.weight", shape) for name, shape in shapes.items()]
    found.append(("model.norm.weight", (width,)))
    return found if config["tie_word_embeddings"] else [*found, ("lm_head.weight", (config["vocab_size"], width))]


def count(shape):
    return int(numpy.prod(shape))


def bf16(values):
    return (values.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)


def shards_of(tensors):
    """-> lists of (name, shape), one list per file; a file has at most SHARD_BYTES unless one tensor is larger."""
    shards, size = [[]], 0
    for name, shape in tensors:
        bytes_here = 2 * count(shape)
        if shards[-1] and size + bytes_here > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += bytes_here
    return shards


def write_shard(path, tensors, pool, first):
    """Writes one file, in its order; first: position in the pool of its first number."""
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [place, place + 2 * count(shape)]}
        place += 2 * count(shape)
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for _, shape in tensors:
            left = count(shape)
            if len(shape) == 1:  # a norm
                file.write(bf16(numpy.ones(left)).tobytes())
                continue
            while left > 0:
                offset = first % len(pool)
                some = min(left, len(pool) - offset, 1 << 25)
                file.write(memoryview(pool[offset:offset + some]).cast("B"))
                left, first = left - some, first + some


def write(folder, shape, root):
    """-> bytes. The tokenizer is small, with as many entries as the model has logits. Does nothing if the folder is
    complete."""
    folder = pathlib.Path(folder)
    if (folder / "tokenizer.json").exists():
        return sum(path.stat().st_size for path in folder.iterdir())
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((pathlib.Path(shape) / "config.json").read_text(encoding="utf-8"))
    pool = bf16(numpy.random.default_rng(0).standard_normal(POOL, dtype=numpy.float32) * 0.02)
    shards, first, waiting, names = shards_of(tensors_of(config)), 0, [], {}
    with concurrent.futures.ThreadPoolExecutor(len(shards)) as workers:  # the writes of one file are sequential
        for index, tensors in enumerate(shards):
            path = folder / (f"model-{index + 1:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors")
            waiting.append(workers.submit(write_shard, path, tensors, pool, first))
            first += sum(count(shape) for _, shape in tensors)
            names.update({name: path.name for name, _ in tensors})
        for one in waiting:
            one.result()
    total = sum(path.stat().st_size for path in folder.iterdir())
    if len(shards) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": names}), encoding="utf-8")
    shutil.copy(pathlib.Path(shape) / "config.json", folder / "config.json")
    (folder / "tokenizer.json").write_text(hf_gpu.padded(gpu_busy.tokenizer_in(pathlib.Path(root)), config["vocab_size"]), encoding="utf-8")
    return total
