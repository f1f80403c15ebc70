#!/usr/bin/env bash
# Believed: save_pretrained() writes the names of a published checkpoint, as it is meant to do by default, so that other programs can load what was trained.
# Seen with transformers 5.24.0 (5.23.0 the same), torch 2.11.0: a rule that turns names of Kimi K2.5's image encoder back is used for all tensors.
#   read: language_model.model.layers.N... (the published names by transformers' rules); written: language_model.model.blocks.N..., and mm_projector's norm as model.mm_projector.pre_norm
#   transformers reads both without a word; programs that know the published names find no layers
# By the same rules Qwen3-VL-MoE is published with experts as [experts, inputs, outputs]; what is written has them as [experts, outputs, inputs] under the same names.
# The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import safetensors.torch
import torch
import transformers

transformers.logging.disable_progress_bar()
SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "moe_intermediate_size": 40, "num_experts_per_tok": 2}
KIMI = {"model_type": "deepseek_v3", "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
SIGHT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "pos_emb_height": 4, "pos_emb_width": 4}
QWEN = {"model_type": "qwen3_vl_moe_text", "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4}
DEEP = {"hidden_size": 32, "intermediate_size": 32, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}


def saved(model, name):
    path = f"{sys.argv[1]}/{name}"
    model.save_pretrained(path)
    return path, safetensors.torch.load_file(f"{path}/model.safetensors")


def published(name, change):
    """The folder with its tensors as they are published, and the model that transformers makes of it."""
    path = f"{sys.argv[1]}/{name}"
    tensors = {new: tensor.contiguous() for key, value in safetensors.torch.load_file(f"{path}/model.safetensors").items() for new, tensor in [change(key, value)]}
    safetensors.torch.save_file(tensors, f"{path}/model.safetensors", metadata={"format": "pt"})
    model, report = transformers.AutoModelForImageTextToText.from_pretrained(path, output_loading_info=True)
    return tensors, model.eval(), not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


torch.manual_seed(0)
ids = torch.tensor([[1, 5, 9, 33]])
kimi = transformers.Kimi_K25ForConditionalGeneration(transformers.AutoConfig.for_model(
    "kimi_k25", text_config={**SMALL, **KIMI}, vision_config=SIGHT, projection_hidden_size=32, tie_word_embeddings=False)).eval()
saved(kimi, "kimi")
names, read, whole = published("kimi", lambda key, value: (key.replace("language_model.model.blocks.", "language_model.model.layers."), value))
again = saved(read, "kimi_again")[1]
same = whole and torch.equal(read(ids).logits, kimi(ids).logits)
layers = [sorted({name.split(".")[2] for name in keys if name.startswith("language_model.model.") and ".input_layernorm" in name}) for keys in (names, again)]
projector = sorted(name for name in again if "mm_projector" in name and name.endswith("weight"))
print(f"Kimi K2.5: read from {layers[0]} (the same logits: {same}), written as {layers[1]}; projector: {projector}")

qwen = transformers.Qwen3VLMoeForConditionalGeneration(transformers.AutoConfig.for_model(
    "qwen3_vl_moe", text_config={**SMALL, **QWEN}, vision_config=DEEP, tie_word_embeddings=False)).eval()
saved(qwen, "qwen")
names, read, whole = published("qwen", lambda key, value: (key, value.transpose(1, 2) if ".experts." in key else value))
again = saved(read, "qwen_again")[1]
key = "model.language_model.layers.1.mlp.experts.gate_up_proj"
alike = whole and torch.allclose(read(ids).logits, qwen(ids).logits, atol=1e-5)
print(f"Qwen3-VL-MoE: {key} read as {list(names[key].shape)} (the same logits: {alike}), written as {list(again[key].shape)}")
as_seen = (same and layers == [["layers"], ["blocks"]] and "model.mm_projector.pre_norm.weight" in projector and "mm_projector.proj.0.weight" in projector
           and alike and list(names[key].shape) == [4, 64, 80] and list(again[key].shape) == [4, 80, 64])
sys.exit(0 if as_seen else "what is saved has the published names and shapes now, or others")
PYTHON
