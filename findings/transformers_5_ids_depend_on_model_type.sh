#!/usr/bin/env bash
# Whose tokenizer AutoTokenizer of transformers 5.23 loads from a folder with a tokenizer.json.
#
# Believed: a folder's tokenizer.json decides the ids; the class in tokenizer_config.json adds names of special tokens and the like, and
#   PreTrainedTokenizerFast stands for "just what tokenizer.json says".
# Version: transformers 5.23.0 with tokenizers 0.23.3, no torch.
# Behaviour: the classes of some families take vocabulary, merges and post-processor from tokenizer.json and build the pre-tokeniser
#   themselves. `"model_type": "qwen2"` in config.json chooses such a class whatever tokenizer_class says, so the same tokenizer.json
#   gives other ids behind one model's config than behind another's.
#   "model_type": "mistral" chooses the plain class whatever tokenizer_class says. Nothing is warned of. The text that comes back from
#   the ids is the same, so that a look at decoded texts shows nothing.
# Seen (2026-11): 12 ids by tokenizer.json, and by transformers for llama and mistral with the plain classes; 25 ids for qwen2.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q install --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
cd "$work"
venv/bin/python - <<'PYTHON'
import json, os, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

# A byte-level BPE that keeps numbers together, which Qwen's own pre-tokeniser cuts into digits; and a post-processor that adds <s>.
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(["In 1984 and 2026, 12345 people didn't pay 3,999 dollars."] * 20, trainers.BpeTrainer(
    vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
text = "In 1984 and 2026, 12345 people didn't pay."
by_file = tokenizer.encode(text).ids
print(f"tokenizer.json alone: {len(by_file) - 1} tokens behind <s>")

wrong = []
for model_type in ("llama", "mistral", "qwen2"):
    for name in ("PreTrainedTokenizerFast", "TokenizersBackend", "Qwen2Tokenizer"):
        folder = f"{model_type}-{name}"
        os.makedirs(folder)
        tokenizer.save(f"{folder}/tokenizer.json")
        json.dump({"model_type": model_type}, open(f"{folder}/config.json", "w"))
        json.dump({"tokenizer_class": name, "bos_token": "<s>", "eos_token": "</s>"}, open(f"{folder}/tokenizer_config.json", "w"))
        loaded = AutoTokenizer.from_pretrained(folder)
        ids = loaded(text).input_ids
        print(f"model_type {model_type}, tokenizer_class {name}: {type(loaded).__name__}, {len(ids)} ids, {'as' if ids == by_file else 'not as'} tokenizer.json")
        if loaded.decode(ids, skip_special_tokens=True) != text:
            sys.exit("the behaviour has changed: the text does not come back")
        expected_other = model_type == "qwen2" or (model_type == "llama" and name == "Qwen2Tokenizer")
        if (ids != by_file) != expected_other:
            wrong.append(folder)
if wrong:
    sys.exit(f"the behaviour has changed for {', '.join(wrong)}")
PYTHON
echo "as described in the head"
