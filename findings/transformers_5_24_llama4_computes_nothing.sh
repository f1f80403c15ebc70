#!/usr/bin/env bash
# Believed: Llama 4 (Scout, Maverick), as it is published a model of images and texts, runs in transformers 5.24 as it did in 5.23.
# Seen with transformers 5.24.0, torch 2.11.0: Llama4ForConditionalGeneration fails on every text. Its forward() copies image_outputs of its decoder's output, a
# class that 5.24 does not give such a field (images go the same way by the source; they were not run):
#   text: AttributeError: 'MoeCausalLMOutputWithPast' object has no attribute 'image_outputs'; generate() the same
#   with return_dict=False, too; its decoder alone, the class of texts Llama4ForCausalLM: logits
# With 5.23.0 the same text has the decoder's logits in all these ways. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
for version in 5.23.0 5.24.0; do
  "$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps "transformers==$version"
  "$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers

torch.manual_seed(0)
text = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "intermediate_size_mlp": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "num_local_experts": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
sight = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_output_dim": 32,
         "projector_input_dim": 32, "projector_output_dim": 32, "pixel_shuffle_ratio": 0.5}
config = transformers.Llama4Config(text_config=text, vision_config=sight)
model = transformers.Llama4ForConditionalGeneration(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(0.05 * torch.randn(parameter.shape))
ids = torch.tensor([[1, 5, 9, 33, 17]])


def outcome(call):
    try:
        with torch.no_grad():
            return call()
    except AttributeError as error:
        return f"AttributeError: {error}"


forward = outcome(lambda: model(ids, use_cache=False).logits)
written = outcome(lambda: model.generate(ids, max_new_tokens=3, do_sample=False))
as_tuple = outcome(lambda: model(ids, use_cache=False, return_dict=False)[0])
of_texts = outcome(lambda: model.language_model(ids, use_cache=False).logits)
print(f"transformers {transformers.__version__}")
for name, found in {"forward": forward, "generate": written, "return_dict=False": as_tuple, "class of texts": of_texts}.items():
    print(f"  {name}: {found if isinstance(found, str) else tuple(found.shape)}")
if transformers.__version__ == "5.24.0":
    as_seen = torch.is_tensor(of_texts) and all(isinstance(found, str) and "image_outputs" in found for found in (forward, written, as_tuple))
else:
    as_seen = torch.equal(forward, of_texts) and torch.equal(as_tuple, of_texts) and written.shape == (1, 8)
sys.exit(0 if as_seen else "the class computes now, or fails in another way")
PYTHON
done
