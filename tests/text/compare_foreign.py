#!/usr/bin/env python3
"""The long comparison with `sentencepiece`, `tiktoken` and llama.cpp on the vocabularies that `mistral_common` and llama.cpp carry. Not
part of CI, but for the short one of foreign_test.py: it needs `mistral_common` (a venv of its own), and a program that prints llama.cpp's ids.

usage: compare_foreign.py [--lines N] [--corpus FOLDER ...] [--wide N] [--oracle PROGRAM --vocabularies FOLDER [--only-llama-cpp]] [--only-tiktoken]
PROGRAM FILE.gguf 0 TEXTS: llama_vocab::tokenize for texts with "\\n__ggml_vocab_test__\\n" between, a line of ids each, without special
tokens. MAGISTER_BUILD_DIR is needed; the table is in tests/README.md.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import normalizers

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import corpus  # noqa: E402
from probe_cases import run_case  # noqa: E402

BUILD = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"])
NFC = normalizers.NFC()  # Qwen's, which knows fewer marks than Python's unicodedata
SEPARATOR = "\n__ggml_vocab_test__\n"


def probe(path, lines, what):
    done = run_case([BUILD / "tests/runtime/vocabulary_probe", path, what], input="".join(json.dumps(line) + "\n" for line in lines), text=True)
    if done.returncode: sys.exit(f"FAILS {path}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def report(name, lines, want, path, decode=None):
    """decode: of a package that takes special tokens written in a text for text."""
    got = probe(path, lines, "text" if decode else "plain")
    bad = [i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b]
    for i in bad[:3]:
        at = next((k for k, (a, b) in enumerate(zip(got[i], want[i])) if a != b), min(len(got[i]), len(want[i])))
        print(f"FAILS {name}: {lines[i][:60]!r} at {at}: {got[i][at:at + 6]}, not {want[i][at:at + 6]}")
    wrong = 0
    if decode:
        texts = [decode(ids) for ids in want]
        different = [(a, b) for a, b in zip(probe(path, want, "decode"), texts, strict=True) if a != b]
        wrong = len(different)
        for a, b in different[:3]: print(f"FAILS {name} decodes {a[:60]!r}, not {b[:60]!r}")
    print(f"| {name} | {len(lines)} | {len(bad)} | {wrong if decode else ''} |", flush=True)
    return len(bad) + wrong


def sentencepiece_models(lines):
    import mistral_common
    import sentencepiece
    failures = 0
    folder = pathlib.Path(mistral_common.__file__).parent / "data"
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(folder.glob("*.model*")):
            model = sentencepiece.SentencePieceProcessor(model_file=str(path))
            copy = pathlib.Path(work) / (path.name.replace(".model", "-") + ".model")
            copy.write_bytes(path.read_bytes())
            failures += report(f"sentencepiece {path.name}", lines, model.encode(lines), copy, model.decode)
    return failures


def trained_models(lines):
    """SentencePiece models of each kind, trained here."""
    import sentencepiece
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        text = pathlib.Path(work) / "text"
        text.write_text("\n".join(line.replace("\n", " ").replace("\x00", "") for line in corpus.made(2000, 11)), encoding="utf-8")
        for name, options in (("unigram", {}), ("unigram bytes", {"byte_fallback": True}), ("bpe", {"model_type": "bpe"}), ("char", {"model_type": "char"}), ("char bytes, user-defined", {"model_type": "char", "byte_fallback": True, "user_defined_symbols": ["ing", "世界"]}), ("unigram user-defined", {"user_defined_symbols": ["ing ", "世界", "the"]}),
                              ("bpe user-defined, spaces kept", {"model_type": "bpe", "user_defined_symbols": ["ing", "世界"], "remove_extra_whitespaces": False, "byte_fallback": True}),
                              ("unigram identity", {"normalization_rule_name": "identity", "add_dummy_prefix": False}), ("unigram suffix", {"treat_whitespace_as_suffix": True})):
            prefix = pathlib.Path(work) / "trained"
            sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(prefix), vocab_size=3500, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, **options)
            model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
            failures += report(f"sentencepiece {name}", lines, model.encode(lines), f"{prefix}.model", model.decode)
    return failures


def tekken_files(lines):
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    failures = 0
    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob("tekken*.json")):
        model = Tekkenizer.from_file(path)
        want = [model.encode(line, bos=False, eos=False) for line in lines]
        failures += report(f"tiktoken {path.name}", lines, want, path, model.decode)
    return failures


def tiktoken_lists(lines):
    """Lists of ranks as original checkpoints have them, of llama.cpp's vocabularies: Llama 3's tokens, whose first 100256 are cl100k's, Qwen's, and
    for o200k as many as there are of all."""
    import tiktoken
    import tiktoken_ext.openai_public as openai
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime"))
    os.environ.setdefault("MAGISTER_SOURCE_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
    from checkpoint_tokenizers_test import BYTE_OF, LLAMA_3, fields, token_bytes, tiktoken as written
    plain = lambda name: [bytes(BYTE_OF[c] for c in text) for text in fields(name)("tokens") if all(c in BYTE_OF for c in text)]
    llama, qwen = token_bytes("llama-bpe", 128000), token_bytes("qwen2", 151643)
    ranks = lambda tokens: {token: rank for rank, token in enumerate(tokens)}
    many = list(dict.fromkeys([*llama, *qwen, *plain("command-r"), *plain("qwen35")]))[:199998]
    given = {"cl100k": llama[:100256], "o200k": many}
    openai.load_tiktoken_bpe = lambda url, **_: ranks(given["cl100k" if "cl100k" in url else "o200k"])
    own = {"cl100k": openai.cl100k_base(), "o200k": openai.o200k_base()}
    cases = [("Llama 3", llama, LLAMA_3, lines), ("Qwen", qwen, LLAMA_3.replace("{1,3}", ""), [NFC.normalize_str(line) for line in lines]),
             *((name, given[name], own[name]["pat_str"], lines) for name in given)]
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        for name, tokens, pattern, texts in cases:
            model = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks(tokens), special_tokens=own[name]["special_tokens"] if name in own else {})
            path = pathlib.Path(work) / "made.tiktoken"
            path.write_bytes(written(tokens))
            want = [model.encode_ordinary(text) for text in texts]
            failures += report(f"tiktoken {name}", lines, want, path, model.decode)
    return failures


def unassigned(line): return any(unicodedata.category(c) in ("Cn", "Co") for c in line)
def hangul(line): return re.search("[\uac00-\ud7a3]", line)
def end_mark(line): return "</s>" in line
def mark_before_space(line): return re.search(r"(</s>|<\|[a-z]+\|>)[ \n\r\t]*[^\S \n\r\t]", line)


# Where llama.cpp is not the model's own tokenizer, which is followed: code points that its tables do not know belong to no class of a
# pattern; its NFD leaves Hangul whole; "</s>", which is plain text to Qwen, is a token that ends texts whatever its type; only ASCII spaces
# go with a token that takes what follows it. bert-bge is compared with `tokenizers` in families_test.py.
OWN_WAYS = {"starcoder": unassigned, "refact": unassigned, "falcon": unassigned, "nomic-bert-moe": hangul, "qwen2": end_mark, "qwen35": end_mark,
            "phi-3": mark_before_space, "bert-bge": lambda line: not line.isascii()}


def llama_cpp_ids(oracle, path, lines, work):
    """None: llama.cpp crashed."""
    composed = [NFC.normalize_str(line) for line in lines] if path.stem.endswith("-qwen2") else lines
    (pathlib.Path(work) / "texts").write_text(SEPARATOR.join(composed), encoding="utf-8", newline="")
    done = subprocess.run([oracle, path, "0", pathlib.Path(work) / "texts"], capture_output=True, text=True, check=False)
    return None if done.returncode else [[int(word) for word in line.split()] for line in done.stdout.split("\n")[:len(lines)]]


def vocabularies(folder, oracle, lines):
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(pathlib.Path(folder).glob("*.gguf")):
            name = path.stem.removeprefix("ggml-vocab-")
            whole = [line for line in lines if line and not (name in OWN_WAYS and OWN_WAYS[name](line))]
            want = llama_cpp_ids(oracle, path, whole, work)
            if want is None:  # some of its patterns are std::regex, which overflows the stack on a run of 100,000
                whole = [line for line in whole if len(line) < 4000]
                want = llama_cpp_ids(oracle, path, whole, work)
            if want is None:
                sys.exit(f"FAILS {oracle} ends on {path}")
            failures += report(f"llama.cpp {path.name}", whole, want, path)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("--wide", type=int, default=0)
    parser.add_argument("--limit", type=int, default=10**6)
    parser.add_argument("--oracle", default="")
    parser.add_argument("--vocabularies", default="")
    parser.add_argument("--only-llama-cpp", action="store_true")
    parser.add_argument("--only-tiktoken", action="store_true")
    arguments = parser.parse_args()
    lines = corpus.wide(arguments.wide) if arguments.wide else [*corpus.made(arguments.lines, 11), *corpus.HARD, *corpus.runs(2000), *corpus.real(arguments.corpus, arguments.limit)]
    print("| with | lines | ids differ | texts differ |\n|---|---|---|---|")
    if arguments.only_tiktoken: sys.exit(1 if tiktoken_lists(lines) else 0)
    failures = vocabularies(arguments.vocabularies, arguments.oracle, lines) if arguments.oracle else 0
    if not arguments.only_llama_cpp: failures += tiktoken_lists(lines) + tekken_files(lines) + sentencepiece_models(lines) + trained_models(lines)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
