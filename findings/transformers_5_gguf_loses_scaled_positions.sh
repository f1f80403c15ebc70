#!/usr/bin/env bash
# Believed: from_pretrained(gguf_file=...) of transformers gives the model of the file: float32 weights come back with the same bits, and what the file says of the positions (rope.freq_base,
#   rope.scaling.*, the tensor rope_freqs.weight that Llama 3.1 and later have there) is taken.
# Packages: transformers 5.24.0, gguf 0.19.0, torch 2.15.0 (PyPI).
# Behaviour: of these only freq_base is read. The table of keys by which the config is made has no rope.scaling for llama, qwen2, qwen3 and others, and a tensor that no weight has the name of is
#   left out. The model is made with unscaled positions, whatever the file says: linear, YaRN and Llama 3's scaling are lost. No error, no warning, at the default level of the log.
# Seen, a model of 2 layers with each kind of scaling, written to GGUF in float32 and read back; error relative to the largest logit, and that against the same weights without scaling:
#                       200 tokens   the first 16   against no scaling
#     llama, none       0            0              0
#     llama, linear     1.3          1.5            0
#     llama, yarn       1.4          0.71           0
#     llama, llama3     1.2          0.87           0
#     qwen2, yarn       1.4          0.65           0          (qwen2 and qwen3 without scaling: 0 everywhere)
#     qwen3, yarn       0.80         0.29           0
# Matters: a GGUF of Llama 3.1, or of a Qwen that YaRN has made longer, is another model in transformers, and no oracle for a reader of GGUF. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps gguf==0.19.0 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - "$folder" 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import pathlib
import sys

import gguf
import numpy
import torch
import transformers

torch.set_num_threads(1)
SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
         "initializer_range": 0.2, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.o_proj": "attn_output", **{f"self_attn.{one}_proj": f"attn_{one}" for one in "qkv"},
         **{f"self_attn.{one}_norm": f"attn_{one}_norm" for one in "qk"}}
TEXT = torch.randint(3, 96, (1, 200), generator=torch.Generator().manual_seed(0))
SCALES = {"default": {}, "linear": {"factor": 4.0}, "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
          "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}


def make(family, scaling):
    torch.manual_seed(0)
    size = {"head_dim": 128} if family == "qwen3" else {}
    rotary = {"rope_type": scaling, "rope_theta": 10000.0, **SCALES[scaling]}
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **{**SMALL, **size}, rope_parameters=rotary)).eval()


def write(model, family, scaling, path):
    file, config = gguf.GGUFWriter(str(path), family), model.config
    size = getattr(config, "head_dim", None) or 16
    for add, value in ((file.add_context_length, 256), (file.add_embedding_length, 64), (file.add_block_count, 2), (file.add_feed_forward_length, 96), (file.add_head_count, 4), (file.add_head_count_kv, 2),
                       (file.add_layer_norm_rms_eps, config.rms_norm_eps), (file.add_rope_dimension_count, size), (file.add_key_length, size), (file.add_value_length, size),
                       (file.add_rope_freq_base, 10000.0), (file.add_vocab_size, 96), (file.add_tokenizer_model, "gpt2"), (file.add_token_list, [f"w{place}" for place in range(96)]),
                       (file.add_token_types, 96 * [1]), (file.add_token_merges, [])):
        add(value)
    if scaling in ("linear", "yarn"):
        file.add_rope_scaling_type(gguf.RopeScalingType.LINEAR if scaling == "linear" else gguf.RopeScalingType.YARN)
        file.add_rope_scaling_factor(4.0)
    if scaling == "yarn":
        file.add_rope_scaling_orig_ctx_len(64)
    if scaling == "llama3":
        plain = 10000.0 ** -(torch.arange(0, size, 2) / size)
        file.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy().astype(numpy.float32))
    for key, weight in model.state_dict().items():
        module, kind = key.rsplit(".", 1)
        layer, module = ("blk." + module.split(".")[2] + ".", module.split(".", 3)[3]) if module.startswith("model.layers.") else ("", module)
        numbers = weight.numpy()
        if family == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):  # GGUF's llama has the pairs that turn together beside each other
            heads = 4 if "q_proj" in module else 2
            numbers = numbers.reshape(heads, 2, size // 2, 64).swapaxes(1, 2).reshape(numbers.shape)
        file.add_tensor(layer + NAMES[module] + "." + kind, numpy.ascontiguousarray(numbers))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def error(got, right):
    return ((got - right).abs().max() / right.abs().max()).item()


as_seen = True
for family, scaling in (("llama", "default"), ("llama", "linear"), ("llama", "yarn"), ("llama", "llama3"), ("qwen2", "default"), ("qwen2", "yarn"), ("qwen3", "default"), ("qwen3", "yarn")):
    folder = pathlib.Path(sys.argv[1]) / f"{family}_{scaling}"
    folder.mkdir()
    model, plain = make(family, scaling), make(family, "default")
    write(model, family, scaling, folder / "model.gguf")
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32).eval()
    with torch.no_grad():
        got, right, unscaled = (one(TEXT).logits for one in (read, model, plain))
    off, short, none = error(got, right), error(got[:, :16], right[:, :16]), error(got, unscaled)
    kind = read.config.rope_parameters["rope_type"]
    print(f"seen {family}, {scaling}: error of the model that was read, 200 tokens {off:.2g}, the first 16 {short:.2g}; to the weights without scaling {none:.2g}; its config: {kind}")
    as_seen = as_seen and none < 1e-5 and (off < 1e-5 if scaling == "default" else min(off, short) > 0.1) and kind == "default"
sys.exit(0 if as_seen else "transformers reads the scaling of positions from GGUF now")
PYTHON
