#!/usr/bin/env bash
# Believed: what lm-eval's model "hf" tells of a request, the log-probability of a continuation behind a context, depends on the two and the model, not on the
#   other requests of a run.
# Packages: lm-eval 0.4.13, transformers 5.24.0, torch 2.15.0 (PyPI), with lm-eval's default logits_cache=True.
# Behaviour: requests whose tokens are equal but for the last one are computed once, also where they are cut into context and continuation at other places. The
#   logits that are kept are those of the longest continuation, and a shorter one is scored with the first of them instead of the last: its tokens get the
#   probabilities of places further to the left. The second number of an answer, whether the continuation is the greedy one, is taken from the right end, so a
#   greedy continuation has a log-probability of -12. The requests of all tasks of a run are pooled, so a task's score depends on the tasks beside it. Nothing
#   is said. With logits_cache=False all is right.
# Seen, a small Llama that has learnt 40 answers "Q: w3 Answer: (B)", as two tasks of four choices, cut before or behind the bracket; accuracies:
#     task                                      alone    with the other task    with the other task and logits_cache=False
#     "Q: w3 Answer:" and " (A)", " (B)" ...    1.00     1.00                   1.00
#     "Q: w3 Answer: (" and "A)", "B)" ...      1.00     0.25                   1.00
#   and the last 1 to 5 tokens of one such text in one call: by hand 0.00, -0.01, -0.02, -0.02, -3.71; told -11.91, -20.16, -28.25, -29.98, -3.71, of which the
#   first four are greedy.
# Matters: two prompts compared in one run, words scored with more and less before them, and pairs of sentences as in Winogrande get wrong scores without a
#   sign of it. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps lm-eval==0.4.13 sacrebleu==2.6.0 portalocker==4.4.2 tabulate==0.10.0 \
  colorama==0.4.6 lxml==6.1.3 scipy==1.17.1 zstandard==0.25.0 accelerate==1.15.0 psutil==7.2.2 torch==2.15.0 nvidia-cublas==13.4.1.3 \
  nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 \
  nvidia-cufile==1.17.1.22 nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 \
  nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 \
  mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 \
  huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 \
  mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 charset-normalizer==3.5.3 urllib3==2.8.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 \
  python-dateutil==2.9.0.post0 six==1.17.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 \
  attrs==26.1.0 frozenlist==1.8.0 multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
cd "$folder"
HF_HOME="$folder/hub" HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' | grep "^seen " || { cat "$folder/log"; exit 1; }
import json
import pathlib
import sys

import torch
import transformers
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

torch.set_num_threads(1)
torch.manual_seed(0)
WORDS = ["<pad>", "<eos>", "Answer:", "Q:", "(", ")", "A", "B", "C", "D", *(f"w{number}" for number in range(40))]
plain = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<pad>"))
plain.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[()]"), "isolated")])
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                                                max_position_embeddings=64))
GOLD = [7 * number % 4 for number in range(40)]
TEXTS = torch.tensor(tokenizer([f"Q: w{number} Answer: ({'ABCD'[gold]})" for number, gold in enumerate(GOLD)])["input_ids"])
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
for _ in range(150):
    model(TEXTS, labels=TEXTS).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()

LINES = [json.dumps({"question": f"Q: w{number}", "gold": gold}) + "\n" for number, gold in enumerate(GOLD)]
pathlib.Path("questions.jsonl").write_text("".join(LINES))
SHARED = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "questions.jsonl"}}, "test_split": "test", "output_type": "multiple_choice",
          "doc_to_target": "gold", "metric_list": [{"metric": "acc"}]}
BEFORE = {**SHARED, "task": "before", "doc_to_text": "{{question}} Answer:", "target_delimiter": " ", "doc_to_choice": ["(A)", "(B)", "(C)", "(D)"]}
BEHIND = {**SHARED, "task": "behind", "doc_to_text": "{{question}} Answer: (", "target_delimiter": "", "doc_to_choice": ["A)", "B)", "C)", "D)"]}


def scores(tasks, **settings):
    machine = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, **settings)
    found = simple_evaluate(machine, tasks=tasks, bootstrap_iters=0, log_samples=False)["results"]
    return {name: found[name]["acc,none"] for name in sorted(found)}


alone, together, without = scores([BEFORE]) | scores([BEHIND]), scores([BEFORE, BEHIND]), scores([BEFORE, BEHIND], logits_cache=False)
print(f"seen accuracy of the tasks alone {alone}, together {together}, together without the cache {without}")
as_seen = alone == without == {"before": 1, "behind": 1} and together == {"before": 1, "behind": 0.25}

text = TEXTS[5].tolist()
words = [WORDS[token] for token in text]
with torch.no_grad():
    steps = model(TEXTS[5:6]).logits[0, :-1].log_softmax(1)
by_hand = [sum(steps[place - 1, text[place]].item() for place in range(len(text) - count, len(text))) for count in range(1, 6)]
pairs = [(" ".join(words[:-count]), " " + " ".join(words[-count:])) for count in range(1, 6)]
requests = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(pairs)]
machine = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4)
single, pooled = [machine.loglikelihood([request])[0] for request in requests], machine.loglikelihood(requests)
plainly = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, logits_cache=False).loglikelihood(requests)
print("seen the last 1 to 5 tokens of a text by hand " + ", ".join(f"{value:.2f}" for value in by_hand))
for name, answers in (("one request a call", single), ("all in one call", pooled)):
    print(f"seen {name} " + ", ".join(f"{value:.2f} {greedy}" for value, greedy in answers))
near = [[abs(answer[0] - value) < 1e-3 for answer, value in zip(answers, by_hand)] for answers in (single, plainly, pooled)]
as_seen = as_seen and near == [[True] * 5, [True] * 5, [False] * 4 + [True]]
as_seen = as_seen and all(greedy for _, greedy in pooled[:4]) and all(value < -5 for value, _ in pooled[:4])
sys.exit(0 if as_seen else "requests of the same tokens are scored in another way now")
PYTHON
