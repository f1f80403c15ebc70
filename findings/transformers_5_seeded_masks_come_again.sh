#!/usr/bin/env bash
# Believed: DataCollatorForLanguageModeling masks a text anew whenever it comes (dynamic masking, RoBERTa's), and its seed makes a run repeatable without changing that.
# Packages: transformers 5.24.0, torch 2.11.0 (PyPI).
# Behaviour: the collator's generator lives in the process that collates. Without workers it goes on from epoch to epoch. The workers of a DataLoader are new ones in every epoch, unless
#   persistent_workers is set (not the default, in the Trainer neither), and each begins again at seed + its number: the nth batch has the masks, and the random words, of the nth batch of
#   every other epoch. Without a seed the workers are seeded by torch anew, and masks differ. Nothing is said.
# Seen, 16 texts of 64 tokens in batches of 4, 8 epochs: epochs whose masks are those of the first, and tokens that are masked, and so predicted, at least once:
#     no worker, seed 7                  0 of 7    71 %
#     2 workers, seed 7                  7 of 7    15 %
#     2 workers, no seed                 0 of 7    76 %
#     2 persistent workers, seed 7       0 of 7    73 %
#     2 workers, seed 7, shuffled        7 of 7    67 %, as the places are the same and the texts in them others
#   And evaluations: a loader that is read twice gives a model the same masks with workers, others without, so that without them the loss differs though the model does not.
# Matters: masked training on texts in order, streamed ones above all, with dataloader_num_workers and a seed for the sake of repeatability: 85 % of the tokens are never predicted,
#   however many epochs there are. Evaluations of several checkpoints are comparable with workers only. The download is large: torch.
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
cat > "$folder/masks.py" <<'PYTHON'
import sys
import warnings

import torch
import transformers
from tokenizers import Tokenizer, models

warnings.filterwarnings("ignore", message="This DataLoader will create")
WORDS = {word: place for place, word in enumerate(["[MASK]", "[PAD]", "[UNK]", *(f"w{number}" for number in range(97))])}
EPOCHS = 8


def masks(texts, tokenizer, workers, seed, persistent=False, shuffled=False):
    """Returns, for every epoch, which tokens of which batch are masked, and the share of the texts' tokens that is masked at least once."""
    torch.manual_seed(3)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, seed=seed)
    loader = torch.utils.data.DataLoader(texts, batch_size=4, shuffle=shuffled, collate_fn=collator, num_workers=workers, persistent_workers=persistent)
    epochs, ever = [], set()
    for _ in range(EPOCHS):
        batches = list(loader)
        epochs.append(torch.cat([batch["labels"] != -100 for batch in batches]))
        for labels in torch.cat([batch["labels"] for batch in batches]).tolist():
            ever.update(label for label in labels if label != -100)
    again = sum(torch.equal(epochs[0], epoch) for epoch in epochs[1:])
    return again, len(ever) / sum(len(text["input_ids"]) for text in texts)


def main():
    # Every token of the texts is another one, so that a label tells which one was masked.
    vocabulary = {**WORDS, **{f"t{number}": len(WORDS) + number for number in range(1024)}}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")), mask_token="[MASK]", pad_token="[PAD]", unk_token="[UNK]")
    texts = [{"input_ids": list(range(len(WORDS) + 64 * row, len(WORDS) + 64 * row + 64))} for row in range(16)]
    cases = {"no worker, seed 7": (0, 7), "2 workers, seed 7": (2, 7), "2 workers, no seed": (2, None), "2 persistent workers, seed 7": (2, 7, True), "2 workers, seed 7, shuffled": (2, 7, False, True)}
    seen = {name: masks(texts, tokenizer, *case) for name, case in cases.items()}
    for name, (again, share) in seen.items():
        print(f"{name}: {again} of {EPOCHS - 1} epochs have the masks of the first; {share:.0%} of the tokens are masked at least once")
    times = [again for again, _ in seen.values()]
    shares = [share for _, share in seen.values()]
    as_seen = times == [0, EPOCHS - 1, 0, 0, EPOCHS - 1] and shares[1] < 0.2 and min(shares[:1] + shares[2:]) > 0.6
    sys.exit(0 if as_seen else "the masks of a seed and of workers follow another rule now")


if __name__ == "__main__":
    main()
PYTHON
"$folder/venv/bin/python" "$folder/masks.py"
