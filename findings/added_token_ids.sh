#!/usr/bin/env bash
# Believed: a file that writes an id beside an added token says which id the token has - "id" in tokenizer.json's added_tokens, the keys
#   of added_tokens_decoder in tokenizer_config.json, the numbers in added_tokens.json.
# Packages: tokenizers 0.23.3, transformers 5.23.0 (PyPI).
# Behaviour: none of these numbers is used as an id. Tokens that the vocabulary does not have are counted on behind its last one: those of
#   tokenizer.json in the order of the list, then the others in the order of their numbers. And where tokenizer_config.json has the key
#   added_tokens_decoder, were it empty, added_tokens.json and special_tokens_map.json beside it are not read.
# Seen: tokenizer.json says <x> is 20, and it is 4; the config says <y> is 700 and <z> is 900, and they are 5 and 6; <w> of
#   added_tokens.json is 7 without added_tokens_decoder, and no token with it.
# Matters: who trusts the numbers gives a model embeddings of other tokens, without an error on either side.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tokenizers==0.23.3 transformers==5.23.0
cd "$folder"
TOKENIZERS_PARALLELISM=false "$folder/venv/bin/python" - <<'PYTHON'
import json, os, sys
from tokenizers import AddedToken, Tokenizer, models
from transformers import AutoTokenizer

def token(content, **more):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} | more

content = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2, "d": 3}, unk_token="a")).to_str())
content["added_tokens"] = [token("<x>", id=20)]

def ids(name, config, added):
    os.makedirs(name)
    for file, text in (("tokenizer", content), ("tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast"} | config), ("added_tokens", added), ("config", {"model_type": "llama"})):
        with open(f"{name}/{file}.json", "w") as out: json.dump(text, out)
    known = AutoTokenizer.from_pretrained(name).get_vocab()
    return {word: known.get(word) for word in ("<x>", "<y>", "<z>", "<w>")}

decoder = {"added_tokens_decoder": {"900": token("<z>"), "700": token("<y>")}}
seen = [ids("with", decoder, {"<w>": 31}), ids("without", {}, {"<w>": 31, "<y>": 30}), ids("empty", {"added_tokens_decoder": {}}, {"<w>": 31})]
expected = [{"<x>": 4, "<y>": 5, "<z>": 6, "<w>": None}, {"<x>": 4, "<y>": 5, "<z>": None, "<w>": 6}, {"<x>": 4, "<y>": None, "<z>": None, "<w>": None}]
for one in seen: print(one)
if seen != expected: sys.exit(f"another behaviour than {expected}")
PYTHON
echo "as seen before"
