"""Tokenizer files as original checkpoints have them: SentencePiece's tokenizer.model, tiktoken lists, tekken.json. They are written here
from llama.cpp's vocabularies, beside which the ids stand that the models' own tokenizers gave; then each is broken in many ways.
"""
import base64
import functools
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / name) for name in ("oracle", "support")]
from gguf_reading import read_gguf  # noqa: E402
from probe_cases import run_case  # noqa: E402

VOCABULARIES = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / ".deps/vocabularies"
PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/runtime/vocabulary_probe"
LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The byte that each stand-in of byte-level vocabularies means.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [b for b in range(256) if b not in PRINTABLE]
BYTE_OF = {chr(b): b for b in PRINTABLE} | {chr(256 + i): b for i, b in enumerate(OTHERS)}


def listed(name):
    """Texts and the ids that stand beside them."""
    path = VOCABULARIES / f"ggml-vocab-{name}.gguf.inp"
    texts = path.read_text(encoding="utf-8").removesuffix("\n__ggml_vocab_test__\n").split("\n__ggml_vocab_test__\n")
    return texts, [[int(word) for word in line.split()] for line in path.with_suffix(".out").read_text().split("\n")[:len(texts)]]


@functools.cache  # seconds each
def fields(name):
    reader = read_gguf(VOCABULARIES / f"ggml-vocab-{name}.gguf")
    return functools.cache(lambda key: reader.fields["tokenizer.ggml." + key].contents())


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, float): return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int): return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece(get, model_type=2):
    pieces = zip(get("tokens"), get("scores"), get("token_type"), strict=True)
    model = b"".join(field(1, field(1, text.encode()) + field(2, float(score)) + field(3, int(kind))) for text, score, kind in pieces)
    return model + field(2, field(3, model_type) + field(35, 1)) + field(3, field(3, 1) + field(4, 0) + field(5, 1))


def token_bytes(name, count):
    return [bytes(BYTE_OF[c] for c in text) for text in fields(name)("tokens")[:count]]


def tiktoken(tokens):
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def tekken(tokens, special):
    vocab = [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for i, token in enumerate(tokens)]
    config = {"pattern": LLAMA_3, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + special, "default_num_special_tokens": special, "version": "v3"}
    return {"config": config, "vocab": vocab}


class CheckpointTokenizers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_probe(self, name, content, texts, *options):
        path = self.folder / name
        path.write_bytes(content)
        return run_case([PROBE, path, *options], input="".join(json.dumps(text) + "\n" for text in texts), text=True)

    def same(self, name, content, texts, want, *options):
        done = self.run_probe(name, content, texts, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        for text, line, ids in zip(texts, done.stdout.splitlines(), want, strict=True):
            self.assertEqual(json.loads(line), ids, text)

    def refused(self, name, content, *expected):
        done = self.run_probe(name, content, ["a"])
        self.assertEqual(done.returncode, 65, f"{name}: {done.returncode} {done.stderr[:300]}")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(name, done.stderr)
        self.assertIn("; ", done.stderr)
        for part in expected: self.assertIn(part, done.stderr)

    def test_sentencepiece(self):
        texts, ids = listed("llama-spm")
        model = sentencepiece(fields("llama-spm"))
        self.same("tokenizer.model", model, texts, ids, "plain")
        self.same("tokenizer.model", model, ["Hello", "</s>x"], [[1, 15043], [1, 2, 921]])
        decoded = [text.replace("▁", " ") for text in texts]
        self.same("tokenizer.model", model, ids, decoded, "decode")
        (self.folder / "tokenizer_config.json").write_text('{"add_bos_token": false, "add_eos_token": true}')
        self.same("tokenizer.model", model, ["Hello"], [[15043, 2]])

    def test_tiktoken(self):
        texts, ids = listed("llama-bpe")
        tokens = token_bytes("llama-bpe", 128000)
        self.same("tokenizer.model", tiktoken(tokens), texts, ids, "plain")
        self.same("tokenizer.model", tiktoken(tokens), ["Hello<|eot_id|>"], [[128000, 9906, 128009]])
        self.same("tokenizer.model", tiktoken(tokens), ids, texts, "decode")
        texts, ids = listed("qwen2")
        self.same("qwen.tiktoken", tiktoken(token_bytes("qwen2", 151643)), texts, ids, "plain")

    def test_tekken(self):
        texts, ids = listed("llama-bpe")
        content = json.dumps(tekken(token_bytes("llama-bpe", 128000), 1000)).encode()
        self.same("tekken.json", content, texts, [[i + 1000 for i in one] for one in ids], "plain")
        self.same("tekken.json", content, ["Hello[/INST]"], [[1, 10906, 4]])

    def test_a_folder_is_searched_for_them(self):
        (self.folder / "tokenizer.model").write_bytes(sentencepiece(fields("llama-spm")))
        for found in (True, False):
            done = run_case([PROBE, self.folder, "plain"], input='"Hello"\n', text=True)
            self.assertEqual((done.returncode, done.stdout), (0, "[15043]\n") if found else (65, ""), done.stderr)
            (self.folder / "tokenizer.model").unlink(missing_ok=True)
        self.assertIn("tokenizer.json", done.stderr)

    def test_broken_sentencepiece(self):
        good = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("a", -1.0, 1), ("b", -2.0, 1), ("ab", -3.0, 1)]
        piece = lambda text, score, kind: field(1, field(1, text.encode() if isinstance(text, str) else text) + field(2, score) + field(3, kind))
        body = b"".join(piece(*one) for one in good)
        trainer = field(2, field(3, 2))
        self.same("tokenizer.model", body + trainer, ["ab"], [[1, 0, 4]])
        characters = field(2, field(3, 4))  # every character by itself, longer pieces that users defined whole, unknown ones together
        letters = b"".join(piece(*one) for one in good[:4]) + piece("▁", -4.0, 1) + piece("ab", 0.0, 4)
        self.same("tokenizer.model", letters + characters, ["ba ab", "xxa"], [[4, 3, 2, 4, 5], [4, 0, 2]], "plain")
        cases = {
            '"ab" is a piece of a model of characters': body + characters,
            "no pieces": trainer, "no unknown piece": b"".join(piece(*one) for one in good[1:]) + trainer, "twice": body + piece("a", 0.0, 1) + trainer,
            "type 7": body + piece("c", 0.0, 7) + trainer, "empty or not UTF-8": body + piece(b"\xff", 0.0, 1) + trainer, "is no number": body + piece("c", float("nan"), 1) + trainer,
            "model type is 3": body + field(2, field(3, 3)), "no byte piece": body + field(2, field(3, 2) + field(35, 1)), "unused piece": body + piece("c", 0.0, 5) + trainer,
            "denormalizer": body + trainer + field(5, field(2, b"abc")), "wire type 3": body + b"\x0b", "the number 0": body + b"\x00", "ten bytes": body + b"\x80" * 12,
            "cut off": body + varint(1 << 3 | 2) + varint(1 << 40), "charsmap": body + trainer + field(3, field(2, b"\xff\xff\xff\xff1234")),
            "does not end with a zero": body + trainer + field(3, field(2, struct.pack("<I", 4) + b"abcdefg")), "wire type 0": body + field(1, 3),
        }
        for expected, content in cases.items():
            with self.subTest(expected):
                self.refused("tokenizer.model", content, expected)
        for size in range(1, len(body)):
            done = self.run_probe("tokenizer.model", body[:size], ["a"])  # whole pieces may be left
            self.assertIn(done.returncode, (0, 65), done.stderr)

    def test_broken_lists(self):
        tokens = [bytes([b]) for b in range(256)]
        good = tiktoken(tokens)
        for expected, content in {
            "256 tokens": good, "is not a token in base64": good + b"!!!! 256\n", "rank is 300": good + b"YWI= 300\n", ":257: \"YWI=\"": good + b"YWI=\n", "99999999999": good + b"YWI= 99999999999\n",
            "its rank": good + b"YWI= -1\n", " 0 tokens": b"\n",
        }.items():
            with self.subTest(expected):
                self.refused("a.tiktoken", content, expected)
        everything = tekken(tokens, 10)
        self.same("tekken.json", json.dumps(everything).encode(), ["ab"], [[1, 107, 108]])

        def changed(path, value):
            copy = json.loads(json.dumps(everything))
            at = copy
            for step in path[:-1]: at = at[step]
            if value is None: del at[path[-1]]
            else: at[path[-1]] = value
            return json.dumps(copy).encode()

        for path, value, expected in (
            (["config"], None, "config"), (["config", "pattern"], None, "pattern"), (["config", "pattern"], 7, "text"), (["config", "pattern"], "(", "cannot be compiled"),
            (["config", "default_vocab_size"], -1, "-1"), (["config", "default_vocab_size"], 10**12, "1000000000000"), (["config", "default_vocab_size"], 5, "5 tokens"),
            (["config", "default_vocab_size"], 300, "300 tokens"), (["config", "default_num_special_tokens"], 0, "special"), (["vocab"], {}, "list"), (["vocab", 3, "rank"], 4, "vocab[3].rank"),
            (["vocab", 3, "token_bytes"], "***", "base64"), (["vocab", 3, "token_bytes"], None, "token_bytes"), (["vocab", 3, "token_bytes"], "AA==", "bytes of another"),
            (["special_tokens"], [{"rank": 10, "token_str": "x"}], "10"), (["special_tokens"], [{"rank": 1}], "token_str"), (["special_tokens"], 3, "list"),
        ):
            with self.subTest(path=path, value=value):
                self.refused("tekken.json", changed(path, value), expected)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
