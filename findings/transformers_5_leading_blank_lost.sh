#!/usr/bin/env bash
# What becomes of a blank at the beginning of a text, in transformers' conversion of a SentencePiece model.
#
# Believed: LlamaTokenizer of transformers gives the ids that sentencepiece gives on the tokenizer.model it was made from, so that a word with a
#   blank before it and one without are told apart, as in byte-level vocabularies (where both are spellings of a verdict of its own).
# Version: transformers 5.23.0 with tokenizers 0.23.3, against sentencepiece 0.2.2; no torch.
# Behaviour: sentencepiece puts its blank before every text, also before one that begins with a blank, which then has two. The converted tokenizer
#   puts one only where none stands: "5" and " 5" have the same ids, and a text that begins with n blanks has those of n - 1 for sentencepiece.
#   Inside a text (behind a line end) both agree, and there the word without a blank is another token than at the beginning.
# Seen (2026-11): "5" and " 5" are the same ids in transformers, " 5" is one id more in sentencepiece; "a\n5" and "a\n 5" are equal in both.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q install --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3 sentencepiece==0.2.2 protobuf
cd "$work"
venv/bin/python - <<'PYTHON'
import io, sys
import sentencepiece
from transformers import LlamaTokenizer

model = io.BytesIO()
texts = iter(["the number 5 and 6 of 7", "yes or no", "Yes it is 5", "No it is 6"] * 50)
sentencepiece.SentencePieceTrainer.train(sentence_iterator=texts, model_writer=model, vocab_size=320, model_type="bpe", byte_fallback=True,
                                         normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
with open("tokenizer.model", "wb") as file:
    file.write(model.getvalue())
reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
converted = LlamaTokenizer.from_pretrained(".")
ids = {}
for text in ("5", " 5", "  5", "a\n5", "a\n 5"):
    ids[text] = reference.encode(text), converted.encode(text, add_special_tokens=False)
    print(f"{text!r}: sentencepiece {ids[text][0]}, transformers {ids[text][1]}")
seen = (ids["5"][0] == ids["5"][1] == ids[" 5"][1] and len(ids[" 5"][0]) == len(ids["5"][0]) + 1 and ids["  5"][1] == ids[" 5"][0]
        and all(ids[text][0] == ids[text][1] for text in ("a\n5", "a\n 5")))
if not seen:
    sys.exit("the behaviour has changed")
PYTHON
echo "as seen: a blank at the beginning of a text is lost"
