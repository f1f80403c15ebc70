"""Two tokenizer.json files are one tokenizer where they do the same, however they are written: of every pair the package tokenizers says whether the ids of
texts are equal, and the digest of the rules must say the same.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/text/text_probe"
SENTENCES = ["A quick brown fox", "jumps over the lazy dog", "and some more words are named HERE", "Hello hello WORLD world ab abc x y 12 345"] * 8
TEXTS = [*SENTENCES[:4], "<|end|> a<|end|>b", "and <|end|>", " two  blanks", "Übung é ﬁ", "x\ny\t12345", "ab abx HELLO", "some   words, here!"]


def made(kind):
    model, trainer = {"byte": (models.BPE(), trainers.BpeTrainer), "metaspace": (models.BPE(unk_token="<unk>", byte_fallback=True), trainers.BpeTrainer),
                      "unigram": (models.Unigram(), trainers.UnigramTrainer), "words": (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer)}[kind]
    tokenizer = Tokenizer(model)
    special, more = ["<unk>", "<s>", "<|end|>"], {}
    if kind == "byte":
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        more = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    elif kind == "words":
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    else:
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Sequence([normalizers.NFKC()]), pre_tokenizers.Metaspace()
        more = {"unk_token": "<unk>"} if kind == "unigram" else {}
    tokenizer.train_from_iterator(SENTENCES, trainer(vocab_size=330, special_tokens=special, show_progress=False, **more))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def shuffled(value, source):
    if isinstance(value, dict):
        names = source.sample(list(value), len(value))
        return {name: shuffled(value[name], source) for name in names}
    return [shuffled(one, source) for one in value] if isinstance(value, list) else value


class Rules(unittest.TestCase):
    def digest(self, path):
        return subprocess.run([PROBE, "folder" if path.is_dir() else "json", path, "rules"], input="", capture_output=True, text=True, check=True).stdout

    def of(self, text):
        path = self.folder / "one.json"
        path.write_text(text, encoding="utf-8")
        return self.digest(path)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def ids(self, text):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return [tokenizer.encode(one, add_special_tokens=False).ids for one in TEXTS]

    def test_how_a_file_is_written_says_nothing(self):
        source = random.Random(1)
        for kind in ("byte", "metaspace", "unigram", "words"):
            tokenizer = made(kind)
            text = tokenizer.to_str()
            plain = json.loads(text)
            forms = {"indent": json.dumps(plain, indent=3), "escapes": json.dumps(plain, ensure_ascii=True), "order": json.dumps(shuffled(plain, source))}
            cut = Tokenizer.from_str(text)
            cut.enable_truncation(7)
            cut.enable_padding(length=9, pad_token="<unk>")  # another one would be a token more, as in transformers
            forms["truncation"] = cut.to_str()
            bare = copy.deepcopy(plain)
            bare["post_processor"] = None
            bare["model"] = {key: value for key, value in bare["model"].items() if value is not None and value is not False}
            bare["normalizer"] = {"type": "Sequence", "normalizers": [bare["normalizer"]] if bare["normalizer"] else []}
            bare["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [bare["pre_tokenizer"]]}]}
            if "merges" in bare["model"]:
                bare["model"]["merges"] = [" ".join(pair) for pair in bare["model"]["merges"]]
            forms["bare"] = json.dumps(bare)
            PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(self.folder / kind)
            want, ids = self.of(text), self.ids(text)
            for name, form in forms.items():
                with self.subTest(kind, form=name):
                    self.assertEqual(self.ids(form), ids)
                    self.assertEqual(self.of(form), want)
            self.assertEqual(self.digest(self.folder / kind), want)

    def test_what_changes_ids_is_another_tokenizer(self):
        known = set()
        for kind in ("byte", "metaspace", "unigram", "words"):
            plain = json.loads(made(kind).to_str())
            known.add(self.of(json.dumps(plain)))
            changes = {}
            change = lambda name: changes.setdefault(name, copy.deepcopy(plain))  # noqa: B023
            vocab = plain["model"]["vocab"]
            if kind == "unigram":
                scored = change("scores")["model"]["vocab"]
                scored[3:] = [[text, score - 50 * (len(text) > 1)] for text, score in scored[3:]]
                swapped = change("swapped")["model"]["vocab"]
                swapped[5], swapped[6] = swapped[6], swapped[5]
            else:
                first, second = (next(text for text in vocab if text.strip("Ġ▁") == letter) for letter in ("a", "o"))
                swapped = change("swapped")["model"]["vocab"]
                swapped[first], swapped[second] = swapped[second], swapped[first]
            if "merges" in plain["model"]:
                del change("merges")["model"]["merges"][3:]
            change("normalizer")["normalizer"] = {"type": "Sequence", "normalizers": [*filter(None, [plain["normalizer"]]), {"type": "Replace", "pattern": {"String": "o"}, "content": "a"}]}
            change("pre-tokenizer")["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                        *filter(None, [{"type": "Split", "pattern": {"String": "e"}, "behavior": "Isolated", "invert": False}, plain["pre_tokenizer"]])]}
            change("added")["added_tokens"].append({**plain["added_tokens"][2], "id": Tokenizer.from_str(json.dumps(plain)).get_vocab_size(), "content": "uick br"})
            if kind != "words":  # whose pre-tokenizer drops the blanks anyway
                change("flags")["added_tokens"][2]["lstrip"] = True
            for name, form in changes.items():
                with self.subTest(kind, change=name):
                    self.assertNotEqual(self.ids(json.dumps(form)), self.ids(json.dumps(plain)), "the change would show nothing")
                    digest = self.of(json.dumps(form))
                    self.assertNotIn(digest, known)
                    known.add(digest)


if __name__ == "__main__":
    unittest.main(verbosity=2)
