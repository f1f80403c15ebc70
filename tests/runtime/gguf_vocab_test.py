"""GGUF vocabularies against llama.cpp, on the real vocabularies that its source carries (scripts/setup.sh takes them out of the
source of llama-cpp-python): the ids that stand beside them, and those of files in which keys are missing, as llama.cpp gave them
(llama_cpp_ids.json).
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import small_vocabulary

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from probe_cases import run_case  # noqa: E402

HERE = pathlib.Path(__file__).parent
VOCABULARIES = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / ".deps/vocabularies"
PROGRAM = os.environ["MAGISTER"]
PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/runtime/vocabulary_probe"
# Those whose .inp and .out list texts and ids: all that llama.cpp has.
LISTED = ["llama-bpe", "gpt-2", "qwen2", "qwen35", "starcoder", "refact", "command-r", "mpt", "falcon", "deepseek-llm", "deepseek-coder", "llama-spm", "phi-3", "gemma-4", "bert-bge"]
NAMELESS = ("aquila", "gpt-neox")  # BPE by merges without the name of a pre-tokenizer
BY_SCORE = ("llama-spm", "phi-3", "baichuan", "gemma-4", "bert-bge", "nomic-bert-moe")  # no pre-tokenizer is needed
EXPECTED = json.loads((HERE / "llama_cpp_ids.json").read_text(encoding="utf-8"))
ENDS = json.loads((HERE / "llama_cpp_ends.json").read_text(encoding="utf-8"))


def text(value):
    return len(value).to_bytes(8, "little") + value.encode()


def vocabulary(name):
    return (VOCABULARIES / f"ggml-vocab-{name}.gguf").read_bytes()


def without(data, key):
    """The file with the key renamed to one that nobody reads."""
    assert data.count(text(key)) == 1, key
    return data.replace(text(key), text(key)[:-1] + b"_")


def with_key(data, key, kind, value):
    """The file with one more key, before the others; its type is 8 for a text, 7 for a truth value."""
    number = int.from_bytes(data[16:24], "little") + 1
    return data[:16] + number.to_bytes(8, "little") + text(key) + kind.to_bytes(4, "little") + value + data[24:]


class GgufVocabularies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "model.gguf"

    def ids(self, data, texts, *options):
        self.path.write_bytes(data)
        done = run_case([PROBE, self.path, *options], input="".join(json.dumps(text) + "\n" for text in texts), text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def same(self, texts, got, want):
        for one, ours, theirs in zip(texts, got, want, strict=True):
            self.assertEqual(ours, theirs, one)

    def test_ids_are_those_that_llama_cpp_lists(self):
        for name in LISTED:
            with self.subTest(name=name):
                listed = VOCABULARIES / f"ggml-vocab-{name}.gguf.inp"
                texts = listed.read_text(encoding="utf-8").removesuffix("\n__ggml_vocab_test__\n").split("\n__ggml_vocab_test__\n")
                want = [[int(word) for word in line.split()] for line in listed.with_suffix(".out").read_text().split("\n")[:len(texts)]]
                self.assertGreaterEqual(len(want), 40)
                self.same(texts, self.ids(vocabulary(name), texts, "plain")[0], want)

    def test_missing_keys_mean_what_they_mean_in_llama_cpp(self):
        self.assertGreaterEqual(len(EXPECTED["cases"]), 55)
        for case in EXPECTED["cases"]:
            with self.subTest(vocabulary=case["vocabulary"], without=case["without"], pre=case.get("pre")):
                data = vocabulary(case["vocabulary"])
                if "pre" in case:
                    data = data.replace(text("llama-bpe"), text(case["pre"]))
                for key in case["without"]:
                    data = without(data, key)
                got, said = self.ids(data, EXPECTED["texts"])
                # llama.cpp's NFD leaves Hangul syllables whole, that of the model's own tokenizer does not: the model's is followed.
                alike = [not (case["vocabulary"] in ("bert-bge", "nomic-bert-moe") and re.search("[\uac00-\ud7a3]", one)) for one in EXPECTED["texts"]]
                self.assertGreaterEqual(sum(alike), len(alike) - 1)
                self.same(*(list(itertools.compress(of, alike)) for of in (EXPECTED["texts"], got, case["ids"])))
                nameless = case["vocabulary"] in NAMELESS or ("tokenizer.ggml.pre" in case["without"] and case["vocabulary"] not in BY_SCORE)
                self.assertEqual(said.count("NO PRE-TOKENIZER IS NAMED"), 1 if nameless else 0, said)

    def test_what_ends_a_text_is_what_llama_cpp_ends_it_with(self):
        """Whatever eos_token_id says, and in small vocabularies whatever the types of the tokens are."""
        def ends(paths):
            done = run_case([PROBE, "ends"], input="".join(f"{path}\n" for path in paths), text=True, check=True)
            return [json.loads(line) for line in done.stdout.splitlines()]
        self.assertGreaterEqual(len(ENDS["vocabularies"]), 19)
        found = ends(VOCABULARIES / f"ggml-vocab-{name}.gguf" for name in ENDS["vocabularies"])
        for (name, expected), got in zip(ENDS["vocabularies"].items(), found, strict=True):
            self.assertEqual(sorted(got), expected, name)
        self.assertGreaterEqual(len(ENDS["made"]), 290)
        paths = [self.path.with_name(f"{i}.gguf") for i in range(len(ENDS["made"]))]
        for path, case in zip(paths, ENDS["made"]):
            small_vocabulary.write(path, case["tokens"], case["keys"])
        for case, got in zip(ENDS["made"], ends(paths), strict=True):
            with self.subTest(tokens=case["tokens"], keys=case["keys"]):
                self.assertEqual(sorted(got), case["ends"])
                if case["keys"].get("eos_token_id") in got:
                    self.assertEqual(got[0], case["keys"]["eos_token_id"])

    def test_a_token_that_ends_texts_is_none_of_a_text_whatever_its_type(self):
        """As llama.cpp: a file that calls <|im_end|> an ordinary token means the control token."""
        for kind in (1, 3, 4):
            small_vocabulary.write(self.path, [("<|im_end|>", kind), ("<|im_on|>", kind)], {"eos_token_id": 1, "unknown_token_id": 0})
            for written, options in (("<|im_end|>", ("plain",)), ("<|im_on|>", ("plain",))):
                done = run_case([PROBE, self.path, *options], input=json.dumps(written) + "\n", text=True, check=True)
                self.assertEqual(json.loads(done.stdout)[-1:] == [3 if written == "<|im_end|>" else 4], kind != 1 or written == "<|im_end|>", (kind, written))

    def test_texts_come_back(self):
        for name in LISTED:
            if name == "bert-bge":  # lower case, and spaces between words
                continue
            with self.subTest(name=name):
                self.path.write_bytes(vocabulary(name))
                ids = self.ids(vocabulary(name), EXPECTED["texts"], "plain")[0]
                done = run_case([PROBE, self.path, "decode"], input="".join(json.dumps(one) + "\n" for one in ids), text=True, check=True)
                want = [unicodedata.normalize("NFC", one) if name == "qwen2" else one for one in EXPECTED["texts"]]
                self.same(want, [json.loads(line) for line in done.stdout.splitlines()], want)

    def test_llama_3_begins_with_bos_unless_told_otherwise(self):
        data = vocabulary("llama-bpe")
        self.assertNotIn(b"add_bos_token", data)
        for name in ("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"):
            renamed = data.replace(text("llama-bpe"), text(name))
            self.assertEqual(self.ids(renamed, ["Hello"])[0], [[128000, 9906]], name)
            for given, ids in ((b"\1", [128000, 9906]), (b"\0", [9906])):
                told = with_key(renamed, "tokenizer.ggml.add_bos_token", 7, given)
                self.assertEqual(self.ids(told, ["Hello"])[0], [ids], name)
        # Other names ask for none, and an EOS token is added where the file says so.
        self.assertEqual(self.ids(data.replace(text("llama-bpe"), text("smaug-bpe")), ["Hello"])[0], [[9906]])
        self.assertEqual(self.ids(with_key(data, "tokenizer.ggml.add_eos_token", 7, b"\1"), ["Hello"])[0], [[128000, 9906, 128001]])

    def test_the_name_default_is_no_other_rule_than_no_name(self):
        want = next(case["ids"] for case in EXPECTED["cases"] if case["vocabulary"] == "gpt-neox")
        got, said = self.ids(with_key(vocabulary("gpt-neox"), "tokenizer.ggml.pre", 8, text("default")), EXPECTED["texts"])
        self.same(EXPECTED["texts"], got, want)
        self.assertEqual(said, "")

    def test_the_program_warns_once_for_all_ranks(self):
        done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2", PROGRAM, "tokenize", VOCABULARIES / "ggml-vocab-gpt-neox.gguf"],
                              input="Hello, world\n", capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, [12092, 13, 1533]), done.stderr)
        self.assertEqual(done.stderr.count("NO PRE-TOKENIZER IS NAMED"), 1, done.stderr)

    def test_an_unknown_name_is_refused_with_those_that_are_known(self):
        self.path.write_bytes(vocabulary("qwen2").replace(text("qwen2"), text("qwen9")))
        done = run_case([PROBE, self.path], input="", text=True)
        self.assertEqual(done.returncode, 65)
        self.assertIn('"qwen9" is not known here', done.stderr)
        self.assertIn("llama-bpe", done.stderr)

    def test_a_name_that_changes_ids_changes_the_digest(self):
        """Phi-3's tokens take the white space behind them, whatever the kind of vocabulary; any other name decides nothing."""
        for name in ("qwen2", "llama-spm"):
            data = without(vocabulary(name), "general.name")
            digests = []
            for called in ("a", "b", "Phi-3 mini"):
                self.path.write_bytes(with_key(data, "general.name", 8, text(called)))
                digests.append(run_case([PROBE, self.path, "digest"], text=True, check=True).stdout)
            self.assertEqual(digests[0], digests[1], name)
            self.assertNotEqual(digests[0], digests[2], name)

    def test_an_unknown_token_that_is_none_is_refused(self):
        for name in ("llama-spm", "bert-bge"):
            data = vocabulary(name)
            key = text("tokenizer.ggml.unknown_token_id")
            self.assertEqual(data.count(key), 1, name)
            at = data.index(key) + len(key) + 4  # behind the type, u32
            self.path.write_bytes(data[:at] + (2**31).to_bytes(4, "little") + data[at + 4:])
            done = run_case([PROBE, self.path], input="", text=True)
            self.assertEqual(done.returncode, 65, name)
            self.assertIn("an unknown token is asked for, but its id is 2147483648 of", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
