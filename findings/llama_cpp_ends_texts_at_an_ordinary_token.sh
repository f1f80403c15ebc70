#!/usr/bin/env bash
# Believed: in llama.cpp a text ends with the tokens that the GGUF file names (eos, eot, eom) and with control tokens of chat formats; a token of
# type NORMAL is text.
# Seen: llama_vocab_is_eog goes by the token's text alone, whatever its type and whatever eos_token_id says. "</s>" of type NORMAL ends a text:
# in the vocabulary of Qwen2 (128247, a piece of HTML: the end tag of struck-out text) a model that writes HTML stops there, where transformers writes on.
# xllamacpp 2026.10.11549 (its one library exports llama.cpp's C functions), gguf 0.19.0. Output that was seen:
#   ends by llama.cpp: [1, 4] of 0 <unk>, 1 <s>, 2 a, 3 <b>, 4 </s>; types NORMAL for 2 to 4, eos_token_id 1
# Exit code 0: as seen; 1: another behaviour.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps xllamacpp==2026.10.11549 gguf==0.19.0 "numpy<3" pyyaml tqdm requests
cat > "$folder/ask.py" <<'PYTHON'
import ctypes
import glob
import sys

import gguf

folder = sys.argv[1]
tokens = [("<unk>", 2), ("<s>", 3), ("a", 1), ("<b>", 1), ("</s>", 1)]
writer = gguf.GGUFWriter(f"{folder}/vocabulary.gguf", "llama")
writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("llama")
writer.add_token_list([text for text, _ in tokens])
writer.add_token_scores([-float(i) for i in range(len(tokens))])
writer.add_token_types([kind for _, kind in tokens])
writer.add_eos_token_id(1)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()

library = ctypes.CDLL(glob.glob(f"{folder}/venv/lib/python3*/site-packages/xllamacpp/*.so")[0])


class Parameters(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


library.llama_model_default_params.restype = Parameters
library.llama_model_load_from_file.restype, library.llama_model_load_from_file.argtypes = ctypes.c_void_p, [ctypes.c_char_p, Parameters]
library.llama_model_get_vocab.restype, library.llama_model_get_vocab.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
library.llama_vocab_is_eog.restype, library.llama_vocab_is_eog.argtypes = ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int]
parameters = library.llama_model_default_params()
parameters.bytes[72] = 1  # vocab_only, in this version's layout
vocabulary = library.llama_model_get_vocab(library.llama_model_load_from_file(f"{folder}/vocabulary.gguf".encode(), parameters))
ends = [i for i in range(len(tokens)) if library.llama_vocab_is_eog(vocabulary, i)]
print(f"ends by llama.cpp: {ends} of " + ", ".join(f"{i} {text}" for i, (text, _) in enumerate(tokens)) + "; types NORMAL for 2 to 4, eos_token_id 1")
sys.exit(0 if ends == [1, 4] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/ask.py" "$folder" 2>"$folder/log" || { echo "another behaviour than was seen"; tail -3 "$folder/log"; exit 1; }
