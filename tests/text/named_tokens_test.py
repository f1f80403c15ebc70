"""Tokens that the files beside a vocabulary name - tokenizer_config.json, special_tokens_map.json, added_tokens.json - get the ids, flags and
texts that AutoTokenizer of transformers gives them: named folders, one rule each, and random ones.
"""
import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import sentencepiece
import tokenizers
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import tokenization_utils_base

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/text/text_probe"
SENTENCES = ["a quick brown fox", "jumps over the lazy dog", "and im end start extra tokens are named", "Hello hello WORLD world ab abc x y"] * 8
TEXTS = ["a <|extra|> b", "<|extra|>", "a<|extra|>b", "a  <|extra|>\n <|extra|><|extra|> b", " <|x2|> <|X2|>c", "ab ab abx xab Ab", "<s>a</s> <pad>b", "x\u00a0<|extra|>\t<|x2|>", "abc<|boi|>b <|extra|", ""]


def byte_level(directory, normalizer=None, padding=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if normalizer: tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>", "<pad>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    if padding: tokenizer.enable_padding(pad_id=2, pad_token="<filler>")
    tokenizer.save(str(directory / "tokenizer.json"))


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True} | flags


def write_pieces(path):
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=trained, model_type="bpe", vocab_size=320, byte_fallback=True, unk_id=0, bos_id=1,
                                             eos_id=2, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False, minloglevel=2)
    path.write_bytes(trained.getvalue())


CONFIG = {"tokenizer_class": "TokenizersBackend", "bos_token": "<s>", "eos_token": "</s>"}
# The files of each folder.
FOLDERS = {
    "nothing beside": {},
    "added_tokens_decoder": {"tokenizer_config": {"added_tokens_decoder": {"330": token("<|extra|>")}}},
    "its ids are an order": {"tokenizer_config": {"added_tokens_decoder": {"700": token("<|x2|>"), "600": token("<|extra|>"), "1": token("<|boi|>")}}},
    "its flags rule": {"tokenizer_config": {"added_tokens_decoder": {"1": token("</s>", lstrip=True), "5": token("<pad>", rstrip=True, special=False), "6": token("<|extra|>", lstrip=True, rstrip=True), "7": token("ab", single_word=True, special=False)}}},
    "in normalised text": {"tokenizer_config": {"added_tokens_decoder": {"330": token("<|X2|>", normalized=True, special=False)}}},
    "additional_special_tokens": {"tokenizer_config": {"additional_special_tokens": ["<|extra|>", {"__type": "AddedToken"} | token("<|x2|>", lstrip=True)]}},
    "extra_special_tokens": {"tokenizer_config": {"extra_special_tokens": ["<|x2|>", "<|extra|>"]}},
    "extra before additional": {"tokenizer_config": {"extra_special_tokens": ["<|x2|>"], "additional_special_tokens": ["<|extra|>"]}},
    "extra tokens with names": {"tokenizer_config": {"extra_special_tokens": {"boi_token": "<|boi|>", "x_token": "<|x2|>"}, "image_token": "<|extra|>"}},
    "eos_token": {"tokenizer_config": {"eos_token": "<|extra|>"}},
    "a name in the vocabulary": {"tokenizer_config": {"unk_token": "ab", "mask_token": {"__type": "AddedToken"} | token("<|extra|>", lstrip=True, special=False)}},
    "added_tokens.json": {"added_tokens": {"<|x2|>": 331, "<|extra|>": 330}},
    "added_tokens.json is not read": {"tokenizer_config": {"added_tokens_decoder": {"330": token("<|extra|>")}}, "added_tokens": {"<|x2|>": 331}, "special_tokens_map": {"mask_token": "<|boi|>"}},
    "an id of tokenizer.json": {"added_tokens": {"<|x2|>": 331, "<|extra|>": 1}},
    "special_tokens_map.json": {"special_tokens_map": {"additional_special_tokens": ["<|extra|>"], "pad_token": token("<|x2|>", rstrip=True), "sep_token": "ab"}},
    "special_tokens_map.json over the config": {"tokenizer_config": {"pad_token": "<|boi|>", "extra_special_tokens": ["<|boi|>"]}, "special_tokens_map": {"extra_special_tokens": [{"content": "<|extra|>", "lstrip": True}], "pad_token": "<|x2|>"}},
    "special by the map": {"special_tokens_map": {"mask_token": token("<|x2|>", lstrip=True, normalized=True)}, "added_tokens": {"<|x2|>": 400, "<|extra|>": 401}},
}  # fmt: skip
PREFIX_CLASSES = ["GPT2Tokenizer", "GPT2TokenizerFast", "CodeGenTokenizer", "TokenizersBackend"]


def write(directory, files):
    files = {"tokenizer_config": {}} | files
    files["tokenizer_config"] = CONFIG | files["tokenizer_config"]
    for name, content in files.items(): (directory / f"{name}.json").write_text(json.dumps(content))
    (directory / "config.json").write_text('{"model_type": "llama"}')


def ours(directory, what, lines):
    done = subprocess.run([PROBE, "folder", directory, what], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    if done.returncode: raise ValueError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.splitlines()]


def theirs(directory):
    transformers.logging.set_verbosity_error()
    with contextlib.redirect_stderr(io.StringIO()): return transformers.AutoTokenizer.from_pretrained(str(directory))


class NamedTokens(unittest.TestCase):
    def compare(self, directory, skips=True):
        expected = theirs(directory)
        ids = [expected(text).input_ids for text in TEXTS]
        self.assertEqual(ours(directory, "encode", TEXTS), ids)
        texts = [[expected.decode(i), expected.decode(i, skip_special_tokens=True)] for i in ids]
        kept = 2 if skips else 1
        self.assertEqual([back[:kept] for back in ours(directory, "back", ids)], [text[:kept] for text in texts])
        return expected

    def folder(self, files, **of_vocabulary):
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        byte_level(directory, **of_vocabulary)
        write(directory, files)
        return directory

    def test_as_transformers(self):
        new = 0
        for name, files in FOLDERS.items():
            for normalizer in (None, normalizers.Lowercase()):
                with self.subTest(name, normalizer=normalizer):
                    new += len(self.compare(self.folder(files, normalizer=normalizer))) > 330
        self.assertGreater(new, 24)

    def test_a_padding_token_in_tokenizer_json(self):
        expected = self.compare(self.folder({}, padding=True))
        self.assertEqual((expected.pad_token, expected.pad_token_id), ("<filler>", 330))

    def test_random_folders(self):
        draw = random.Random(int(os.environ.get("MAGISTER_TEST_SEED", "39")))
        names = ["<|extra|>", "<|x2|>", "<|X2|>", "<|boi|>", "ab", "abc", "<s>", "</s>", "<pad>", "x"]
        flags = lambda: {key: draw.random() < 0.3 for key in ("lstrip", "rstrip", "normalized", "single_word", "special")}
        some = lambda most: draw.sample(names, draw.randint(0, most))
        text_or_object = lambda name: name if draw.random() < 0.5 else {"__type": "AddedToken"} | token(name, **flags())
        for number in range(int(os.environ.get("MAGISTER_TEST_FOLDERS", "40"))):
            config, files = {}, {}
            if draw.random() < 0.4: config["added_tokens_decoder"] = {str(draw.randint(0, 700)): token(name, **flags()) for name in some(4)}
            for key in draw.sample(["eos_token", "unk_token", "pad_token", "mask_token", "sep_token"], draw.randint(0, 3)): config[key] = text_or_object(draw.choice(names))
            if draw.random() < 0.3: config["additional_special_tokens"] = [text_or_object(name) for name in some(3)]
            if draw.random() < 0.3: config["extra_special_tokens"] = [text_or_object(name) for name in some(3)]
            if draw.random() < 0.2: config["image_token"] = draw.choice(names)
            if draw.random() < 0.5: files["added_tokens"] = {name: draw.randint(0, 700) for name in some(4)}
            if draw.random() < 0.4: files["special_tokens_map"] = {key: draw.choice(names) for key in draw.sample(["eos_token", "cls_token", "pad_token"], 2)}
            with self.subTest(number=number, config=config, files=files):
                # tokenizers 0.23.3 leaves a special token in the text where the normalizer has changed its letters.
                normalizer = draw.choice([None, normalizers.Lowercase()])
                self.compare(self.folder(files | {"tokenizer_config": config}, normalizer=normalizer), skips=normalizer is None)

    def test_the_prefix_space_is_the_class_s(self):
        for name in PREFIX_CLASSES:
            for value in (True, False):
                with self.subTest(name, value=value):
                    self.compare(self.folder({"tokenizer_config": {"tokenizer_class": name, "add_prefix_space": value}}))

    def test_ids_follow_from_the_order_in_tokenizer_json(self):
        for ids in ([340, 350], [331, 330]):
            with self.subTest(ids):
                directory = self.folder({})
                content = json.loads((directory / "tokenizer.json").read_text())
                for number, name in zip(ids, ("<|extra|>", "<|x2|>"), strict=True): content["added_tokens"].append({"id": number} | token(name))
                (directory / "tokenizer.json").write_text(json.dumps(content))
                self.compare(directory)

    def test_beside_a_sentencepiece_model(self):
        """Against transformers' class of Llama over the same pieces (it reads the file itself where protobuf is installed)."""
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        write_pieces(directory / "tokenizer.model")
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        vocabulary = {pieces.id_to_piece(i): i for i in range(len(pieces))}
        merges = tokenization_utils_base.generate_merges(vocabulary, {piece: pieces.get_score(i) for piece, i in vocabulary.items()})
        new = len(pieces)
        config = {"tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        for legacy in (False, True):
            for files in ({"added_tokens": {"<|x2|>": new + 1, "<|extra|>": new}},
                          {"tokenizer_config": {"added_tokens_decoder": {"0": token("<unk>"), "7000": token("<|extra|>"), str(new): token("<|x2|>", lstrip=True, special=False)}}},
                          {"tokenizer_config": {"pad_token": "<|extra|>"}, "special_tokens_map": {"additional_special_tokens": ["<|x2|>"]}}):
                with self.subTest(files, legacy=legacy):
                    files = {"tokenizer_config": {}} | files
                    for name in ("added_tokens", "special_tokens_map"): (directory / f"{name}.json").unlink(missing_ok=True)
                    write(directory, files | {"tokenizer_config": config | files["tokenizer_config"] | {"legacy": legacy}})
                    named = files["tokenizer_config"].get("added_tokens_decoder") or {str(number): token(name, special=False) for name, number in files.get("added_tokens", {}).items()}
                    given = {int(number): tokenizers.AddedToken(**one) for number, one in named.items()}
                    expected = transformers.LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=legacy, added_tokens_decoder=given, pad_token=files["tokenizer_config"].get("pad_token"),
                                                           extra_special_tokens=files.get("special_tokens_map", {}).get("additional_special_tokens"))
                    self.assertEqual(len(expected), new + 2)
                    texts = [text for text in TEXTS if text.isascii() and text] + ["a<unk>b", "  a <|x2|>  b", "a\n<|extra|>\nb"]
                    ids = [expected(text, add_special_tokens=False).input_ids for text in texts]
                    self.assertEqual([found[1:] for found in ours(directory, "encode", texts)], ids)
                    known = [i for i in ids if 0 not in i]  # SentencePiece writes the unknown piece as U+2047
                    self.assertEqual([back[0] for back in ours(directory, "back", known)], [expected.decode(i) for i in known])
        for config, added, words in ((config | {"added_tokens_decoder": {"270": token("<|extra|>")}}, {}, "token 270 .* by added_tokens_decoder of tokenizer_config.json"),
                                     (config, {"<|extra|>": 270}, "token 270 .* by added_tokens.json"), ({"pad_token": "<|extra|>"}, {}, "LlamaTokenizer")):
            write(directory, {"tokenizer_config": config, "added_tokens": added, "special_tokens_map": {}})
            with self.subTest(words), self.assertRaisesRegex(ValueError, words): ours(directory, "encode", ["a"])

    def test_refused(self):
        for config, words in (({"split_special_tokens": True}, "split_special_tokens"), ({"fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.0.json"]}, "tokenizer.4.0.0.json"),
                              ({"added_tokens_decoder": {"x": token("a")}}, "added_tokens_decoder"), ({"eos_token": ["</s>"]}, "eos_token")):
            with self.subTest(config), self.assertRaisesRegex(ValueError, words): ours(self.folder({"tokenizer_config": config}), "encode", ["a"])


if __name__ == "__main__":
    print("tokenizers", tokenizers.__version__, "transformers", transformers.__version__)
    unittest.main(verbosity=2)
