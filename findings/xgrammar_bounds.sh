#!/usr/bin/env bash
# Believed: a JSON schema's bound takes away the values that break it and no others, so a text with a maxLength may hold all that a text
# without one may, and a number with a minimum may be written as any number.
# Package: xgrammar 0.2.8 from PyPI (with apache-tvm-ffi 0.1.15.post2, pydantic and numpy; its masks need torch and transformers, its grammars do
# not, and empty modules stand in for these two).
# Behaviour: with minLength or maxLength a text can hold no quote, no backslash and no line end, for the library repeats a class of plain
# characters and leaves JSON's escapes out, while it lets raw control characters through, which JSON forbids; with a minimum a number has no
# exponent and at most six decimals; and a name that two patternProperties match is held to one of their schemas, where JSON Schema asks for
# both. None of it is said: no warning, no error. Seen 2026-11-28, "library" is what the grammar takes, "schema" what is right:
#   {"type": "string"}                          "a\"b"     library True   schema True
#   {"type": "string", "maxLength": 9}          "a\"b"     library False  schema True
#   {"type": "string", "maxLength": 9}          "a\\b"     library False  schema True
#   {"type": "string", "maxLength": 9}          "a\nb"     library False  schema True
#   {"type": "string", "minLength": 1}          "a\nb"     library False  schema True
#   {"type": "string", "maxLength": 9}          a raw tab  library True   schema False (no JSON)
#   {"type": "number"}                          1.5e-07    library True   schema True
#   {"type": "number", "minimum": 0}            1.5e-07    library False  schema True
#   {"type": "number", "minimum": 0}            0.1234567  library False  schema True
#   two patterns, "ab" matches both             {"ab": "x"}  library True   schema False
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pydantic==2.12.5 numpy==2.3.5 typing-extensions==4.15.0
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2
cat >"$work/try.py" <<'PYTHON'
import json
import sys
import types

import tvm_ffi  # noqa: F401, before torch seems to be there


class Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


sys.modules["torch"], sys.modules["transformers"] = Absent("torch"), Absent("transformers")
import xgrammar  # noqa: E402

tokens = [bytes([byte]) for byte in range(256)] + [b""]
info = xgrammar.TokenizerInfo(tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256])


def takes(schema, text):
    grammar = xgrammar.Grammar.from_json_schema(json.dumps(schema), any_whitespace=False)
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(info).compile_grammar(grammar))
    return matcher.accept_string(text) and matcher.accept_token(256)


free, long, some = {"type": "string"}, {"type": "string", "maxLength": 9}, {"type": "string", "minLength": 1}
number, positive = {"type": "number"}, {"type": "number", "minimum": 0}
two = {"type": "object", "patternProperties": {"^a.*$": {"type": "string", "maxLength": 3}, "^.*b$": {"type": "string", "minLength": 2}}, "additionalProperties": False}
seen = [(free, r'"a\"b"', True), (long, r'"a\"b"', False), (long, r'"a\\b"', False), (long, r'"a\nb"', False), (some, r'"a\nb"', False), (long, '"a\tb"', True),
        (number, "1.5e-07", True), (positive, "1.5e-07", False), (positive, "0.1234567", False), (positive, "0.123456", True), (two, '{"ab": "x"}', True)]
changed = [(schema, text) for schema, text, was in seen if takes(schema, text) != was]
for schema, text, was in seen:
    print(f"{json.dumps(schema)[:60]:60}  {text!r:14}  library {takes(schema, text)}")
for schema, text in changed:
    print(f"changed: {json.dumps(schema)} and {text!r}")
sys.exit(1 if changed else 0)
PYTHON
"$work/venv/bin/python" "$work/try.py"
