#!/usr/bin/env bash
# Believed: return_assistant_tokens_mask of apply_chat_template() marks the tokens of what a template writes between {% generation %} and {% endgeneration %}, wherever that stands.
# Packages: transformers 5.24.0, tokenizers 0.23.3, jinja2 3.1.6 (PyPI).
# Behaviour: the place of such a block is taken to be the length of what the template has put out before. What is written inside a macro, {% set %}, {% filter %} or a recursive loop is put
#   out at its end only, so what stands there before the block is not counted and the mask is too far to the left by that. The text and its tokens are right. Nothing is said.
# Seen, templates that all write "[user]Hi there#[assistant]Hello friend#[user]And?#[assistant]Bye now#" with the content of each answer in a block; what the mask marks:
#     blocks in a loop                              "Hello friend" and "Bye now"
#     a macro that writes the answer alone          "Hello friend" and "Bye now"
#     a macro, {% set %} or {% filter %} of a turn  "[assistant]H" and "[assist"
#     such an answer added to other strings         "[assistant]H" and "[assist"
#     a recursive loop, or a text gathered first    "[user]Hi the", both
# Matters: training on answers only (assistant_only_loss of TRL, among others) learns headers and questions and leaves the ends of answers, the end token with them, out. Published
#   templates have macros, into which people put such blocks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.15 pyyaml==6.0.3 packaging==26.3 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.18 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.2 urllib3==2.8.0 numpy==2.4.6 jinja2==3.1.6 markupsafe==3.0.4 typing-extensions==4.16.0 filelock==4.2.11 fsspec==2026.9.0
"$folder/venv/bin/python" - <<'PYTHON'
import itertools
import sys

import transformers
from tokenizers import Tokenizer, decoders, models

CHAT = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello friend"}, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Bye now"}]
ANSWER = "{% generation %}{{ m.content }}{% endgeneration %}"
TURN = "[{{ m.role }}]{% if m.role == 'assistant' %}" + ANSWER + "{% else %}{{ m.content }}{% endif %}#"
SHORT = "{% macro answer(m) %}" + ANSWER + "{% endmacro %}"
ADDED = "'[' + m.role + ']' + (answer(m) if m.role == 'assistant' else m.content) + '#'"
RIGHT, LEFT, FIRST = ["Hello friend", "Bye now"], ["[assistant]H", "[assist"], ["[user]Hi the"]
TEMPLATES = {
    "blocks in a loop": ("{% for m in messages %}" + TURN + "{% endfor %}", RIGHT),
    "macro of an answer": (SHORT + "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{{ answer(m) }}{% else %}{{ m.content }}{% endif %}#{% endfor %}", RIGHT),
    "macro of a turn": ("{% macro turn(m) %}" + TURN + "{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}", LEFT),
    "set": ("{% for m in messages %}{% set turn %}" + TURN + "{% endset %}{{ turn }}{% endfor %}", LEFT),
    "filter": ("{% for m in messages %}{% filter trim %}" + TURN + "{% endfilter %}{% endfor %}", LEFT),
    "added strings": (SHORT + "{% for m in messages %}{{ " + ADDED + " }}{% endfor %}", LEFT),
    "recursive loop": ("{% for m in messages recursive %}" + TURN + "{% endfor %}", FIRST),
    "gathered first": (SHORT + "{% set all = namespace(text='') %}{% for m in messages %}{% set all.text = all.text + " + ADDED + " %}{% endfor %}{{ all.text }}", FIRST),
}
TEXT = "".join(f"[{turn['role']}]{turn['content']}#" for turn in CHAT)
# Every character is a token.
plain = Tokenizer(models.BPE({chr(code): code - 32 for code in range(32, 127)}, []))
plain.decoder = decoders.Fuse()
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain)
as_seen = True
for name, (template, expected) in TEMPLATES.items():
    made = tokenizer.apply_chat_template(CHAT, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    text = tokenizer.decode(made["input_ids"])
    marked = ["".join(text[place] for place, _ in run) for mask, run in itertools.groupby(enumerate(made["assistant_masks"]), key=lambda pair: pair[1]) if mask]
    print(f"{name}: the mask is of {marked}")
    as_seen = as_seen and text == TEXT and marked == expected
sys.exit(0 if as_seen else "the masks of blocks inside macros are at other places now")
PYTHON
