#!/usr/bin/env bash
# Believed: the text that transformers' text-generation pipeline gives for a prompt is the text of prompt and completion, as one decode() of all ids gives it.
# Seen with transformers 5.23.0, tokenizers 0.23.3, torch 2.11.0: with a vocabulary of Llama 2's kind (SentencePiece, a decoder that strips the first blank) the
# pipeline decodes the completion's ids alone and glues the text behind the prompt. The blank of its first word is lost, in return_full_text too:
#   ids of prompt and completion: ['▁The', '▁sky', '▁is', '▁blue', '</s>'], decode: 'The sky is blue'
#   pipeline, return_full_text=True: 'The sky isblue'; return_full_text=False: 'blue'
# (TRL 1.16's GRPOTrainer joins batch_decode(completion_ids) with the prompt for a reward model in the same way.) The download is large: torch and its CUDA libraries.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 \
  nvidia-nvtx==13.0.85 nvidia-nccl-cu13==2.28.9 numpy==2.4.6 typing-extensions==4.16.0 filelock==4.2.11 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 \
  transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers

# Four words, each spelt letter by letter behind its blank.
vocabulary, merges = {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3}, []
for word in ("The", "sky", "is", "blue"):
    for letter in word:
        vocabulary.setdefault(letter, len(vocabulary))
for word in ("The", "sky", "is", "blue"):
    begun = "▁"
    for letter in word:
        if begun + letter not in vocabulary:
            merges.append((begun, letter))
            vocabulary[begun + letter] = len(vocabulary)
        begun += letter
made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True))
made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")

# A model that writes "▁blue" behind "▁is", and then ends.
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(vocabulary), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                                                               num_key_value_heads=2, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)).eval()
prompt, blue = tokenizer("The sky is").input_ids, vocabulary["▁blue"]
with torch.no_grad():
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    model.lm_head.weight.zero_()
    for before, after in ((prompt[-1], blue), (blue, 2)):
        model.lm_head.weight[after] = model.model.norm(model.model.embed_tokens.weight[before])

pipeline = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
ids = pipeline("The sky is", max_new_tokens=4, do_sample=False, return_tensors=True)[0]["generated_token_ids"]
whole = tokenizer.decode(ids, skip_special_tokens=True)
full, alone = (pipeline("The sky is", max_new_tokens=4, do_sample=False, return_full_text=wanted)[0]["generated_text"] for wanted in (True, False))
print(f"ids of prompt and completion: {tokenizer.convert_ids_to_tokens(ids)}, decode: {whole!r}; pipeline: {full!r}, {alone!r}")
if (whole, full, alone) != ("The sky is blue", "The sky isblue", "blue"):
    sys.exit("the behaviour has changed")
PYTHON
