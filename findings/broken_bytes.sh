#!/usr/bin/env bash
# Believed: with tokens for bytes (SentencePiece's byte fallback) decode(a + b) begins with decode(a) wherever decode(a) ends with a whole character, so a completion's
# text is that of prompt and completion behind as many characters as the prompt's has.
# Seen with tokenizers 0.23.3: ByteFallback decodes a run of byte tokens as a whole. One byte too many behind a whole character - a completion that begins with the
# first byte of another one, or is cut there - turns all characters of the run into U+FFFD, one a byte, those of the prompt as well:
#   <0xC3> <0xA9>: 'é'; <0xC3> <0xA9> <0xE2>: '\ufffd\ufffd\ufffd'; a prompt that ends with the line end <0x0A> loses it in the same way
# Cut at the prompt's length, the texts are '\ufffd\ufffd' and '\ufffd' for the same byte that was written. (The package's ByteLevel decoder replaces the bad byte alone: 'é\ufffd'.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

names = [f"<0x{byte:02X}>" for byte in range(256)]
fallback = Tokenizer(models.BPE({name: byte for byte, name in enumerate(names)}, [], byte_fallback=True))
fallback.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
level = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
level.pre_tokenizer, level.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
half = level.encode("€").ids[:1]  # the byte E2
seen = [fallback.decode([0xC3, 0xA9]), fallback.decode([0xC3, 0xA9, 0xE2]), fallback.decode([0x0A]), fallback.decode([0x0A, 0xE2]), level.decode(level.encode("é").ids + half)]
print(seen)
if seen != ["é", "\ufffd\ufffd\ufffd", "\n", "\ufffd\ufffd", "é\ufffd"]:
    sys.exit("the behaviour has changed")
PYTHON
