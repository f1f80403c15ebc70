#!/usr/bin/env bash
# Believed: decode(ids, skip_special_tokens=True) leaves out every token whose flag `special` is true; its flag `normalized` says only
#   whether the token is looked for in the text before or behind the normalizer.
# Package: tokenizers 0.23.3 (PyPI).
# Behaviour: where `normalized` is true and the normalizer changes the token's letters, decode writes the changed letters, and does not take
#   the token for a special one any more: it stays in texts from which special tokens are to be left out. added_tokens_decoder still says
#   special=True. Tokenizers of the Llama kind that were converted in 2023 have such tokens ("<s>", normalized, and a normalizer that
#   puts U+2581 in front).
# Seen: "<End>" under Lowercase: 'a <end> b' with skip_special_tokens=True; 'a b' where normalized is false. "<s>" under Prepend("_"): 'a _<s> b'.
# Matters: end tokens appear in written texts, and rewards or comparisons of texts count them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps tokenizers==0.23.3
"$folder/venv/bin/pip" install --quiet huggingface_hub
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from tokenizers import AddedToken, Tokenizer, models, normalizers

def decoded(normalizer, text, normalized):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=normalized)])
    assert tokenizer.get_added_tokens_decoder()[2].special
    return tokenizer.decode([0, 2, 1], skip_special_tokens=True)

seen = [decoded(normalizers.Lowercase(), "<End>", True), decoded(normalizers.Lowercase(), "<End>", False), decoded(normalizers.Prepend("_"), "<s>", True)]
print(seen)
if seen != ["a <end> b", "a b", "a _<s> b"]: sys.exit("another behaviour than the one described")
PYTHON
echo "as seen before"
