#!/usr/bin/env python3
"""Every kind of tokenizer.json against the Python package `tokenizers`: the families of models (Llama 2, Mistral, Gemma, T5, BERT,
RoBERTa, CLIP ...), and every normalizer, pre-tokenizer, decoder and post-processor by itself. Ids, texts decoded back, and the text of
a line's last tokens behind its first ones must be equal on every line.

usage: families_test.py [--lines N] [--corpus FOLDER ...] [--wide N] [--only NAME]    without arguments: what CI runs
--wide N: N lines of what installed packages have, instead (tests/README.md has the table of 100,000).
"""
import argparse
import base64
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import corpus  # noqa: E402
from gguf_reading import read_gguf  # noqa: E402

PROBE = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests", "text", "text_probe")
TRAINING = list(corpus.made(1500, 1))
BYTES = [f"<0x{b:02X}>" for b in range(256)]
SPACE = "▁"


def train_bpe(normalizer=None, pre_tokenizer=None, **options):
    """A BPE with bytes to fall back on, whose merges cross every border that no pre-tokenizer sets."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, **options))
    if normalizer: tokenizer.normalizer = normalizer
    if pre_tokenizer: tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=3000, limit_alphabet=300, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False, max_token_length=12)
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def sentencepiece_decoder(strip=True):
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] if strip else steps)


def ends(tokenizer, single="<s> $A", extra=()):
    names = [n for n in ("<s>", "</s>", *extra) if tokenizer.token_to_id(n) is not None]
    return processors.TemplateProcessing(single=single, pair=None, special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])


def llama_2():
    legacy = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer = train_bpe(pre_tokenizer=pre_tokenizers.Metaspace(), fuse_unk=True)
    tokenizer.pre_tokenizer, tokenizer.normalizer = None, legacy
    tokenizer.decoder, tokenizer.post_processor = sentencepiece_decoder(), ends(tokenizer)
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("世界", single_word=True, normalized=True), AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False)])
    return tokenizer


def mistral():
    tokenizer = train_bpe(pre_tokenizer=pre_tokenizers.Metaspace(), fuse_unk=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder, tokenizer.post_processor = sentencepiece_decoder(), ends(tokenizer)
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", normalized=False)])
    return tokenizer


def gemma():
    tokenizer = train_bpe(normalizer=normalizers.Replace(" ", SPACE), pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"), fuse_unk=True)
    tokenizer.decoder, tokenizer.post_processor = sentencepiece_decoder(False), ends(tokenizer, "<s> $A </s>")
    return tokenizer


def without_bytes(fuse):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=1500, limit_alphabet=120, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def clip():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder()
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=2000, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def prefixed():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece(cleanup=False)
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=2000, continuing_subword_prefix="##", special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def roberta():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<mask>"], show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


# gpt-oss's rule (o200k), with English endings in any case.
O200K = "|".join((r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"))


def gpt_oss():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder, tokenizer.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", normalized=False) for name in ("startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call")])
    return tokenizer


def bert(**options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TRAINING, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


@functools.cache
def charsmap():
    """The precompiled charsmap (nmt_nfkc) of a real vocabulary, in base64."""
    path = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / ".deps/vocabularies/ggml-vocab-nomic-bert-moe.gguf"
    return base64.b64encode(bytes(read_gguf(path).fields["tokenizer.ggml.precompiled_charsmap"].contents())).decode()


def unigram(pre_tokenizer, precompiled, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.Metaspace()
    training = [line.replace("<unk>", "").replace("<s>", "").replace("</s>", "").replace("<0x41>", "") for line in TRAINING[1::2] + TRAINING[2::4]]
    tokenizer.train_from_iterator(training, trainers.UnigramTrainer(vocab_size=1500, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"] + (BYTES if byte_fallback else []), show_progress=False))
    state = json.loads(tokenizer.to_str())
    state["model"]["byte_fallback"] = byte_fallback
    if precompiled:
        state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap()},
                               {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = ends(tokenizer, "$A </s>")
    return tokenizer


def words():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(TRAINING, trainers.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


FAMILIES = {
    "llama-2": llama_2, "mistral": mistral, "gemma": gemma, "no-bytes": lambda: without_bytes(False), "no-bytes-fused": lambda: without_bytes(True),
    "clip": clip, "prefixed": prefixed, "roberta": roberta, "gpt-oss": gpt_oss, "bert": bert, "bert-cased": lambda: bert(lowercase=False, clean_text=False, handle_chinese_chars=False),
    "t5": lambda: unigram(pre_tokenizers.Metaspace(), True), "xlm-r": lambda: unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), True),
    "unigram-bytes": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="never"), False, True), "words": words,
}

NORMALIZERS = {
    "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "Lowercase": normalizers.Lowercase(),
    "Strip": normalizers.Strip(), "Strip-left": normalizers.Strip(right=False), "StripAccents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "Nmt": normalizers.Nmt(), "Bert": normalizers.BertNormalizer(), "Replace-regex": normalizers.Replace(Regex(r"\s+"), "_"), "ByteLevel": normalizers.ByteLevel(),
    "Prepend": normalizers.Prepend("_"),
}
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS = {
    **{f"Split-{b}": pre_tokenizers.Split(Regex(r"\p{L}+|\d"), b) for b in BEHAVIORS},
    **{f"Split-inverted-{b}": pre_tokenizers.Split(Regex(r"\p{L}+|\s"), b, invert=True) for b in BEHAVIORS},
    **{f"Punctuation-{b}": pre_tokenizers.Punctuation(b) for b in BEHAVIORS},
    "Split-text": pre_tokenizers.Split("th", "isolated"), "cased": pre_tokenizers.Split(Regex(CASED), "isolated"), "lines": pre_tokenizers.Split(Regex(r"\s+$|^.|\w+"), "isolated"),
    "categories": pre_tokenizers.Split(Regex(r"[\p{P}\p{S}]+|[^\p{M}\p{Z}\w]+"), "isolated"), "dot": pre_tokenizers.Split(Regex(r"a.b?|\D{3}"), "isolated"),
    "Digits": pre_tokenizers.Digits(), "Digits-individual": pre_tokenizers.Digits(individual_digits=True), "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(), "Bert": pre_tokenizers.BertPreTokenizer(), "CharDelimiterSplit": pre_tokenizers.CharDelimiterSplit("e"),
    "FixedLength": pre_tokenizers.FixedLength(length=3), "Metaspace-always": pre_tokenizers.Metaspace(), "Metaspace-whole": pre_tokenizers.Metaspace(split=False),
    "Metaspace-never": pre_tokenizers.Metaspace(prepend_scheme="never"), "Metaspace-first": pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Metaspace(prepend_scheme="first")]),
}


def parts():
    """One component each, in front of merges that cross every border but the component's."""
    base = train_bpe().to_str()
    for name, normalizer in NORMALIZERS.items():
        tokenizer = Tokenizer.from_str(base)
        tokenizer.normalizer = normalizer
        tokenizer.add_tokens([AddedToken("ST", normalized=True), AddedToken("ﬁ", normalized=True)])
        yield "normalizer " + name, tokenizer
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        tokenizer = Tokenizer.from_str(base)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteFallback()
        yield "pre-tokenizer " + name, tokenizer


def probe(path, lines, what):
    done = subprocess.run([PROBE, "json", path, what], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True, check=False)
    if done.returncode: sys.exit(f"FAILS {path}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def behind(tokenizer, before, ids, skip):
    """The text of the whole, less that of what stands before; None where bytes of a whole character became none by those that follow."""
    def decode(some):
        return tokenizer.decode(some, skip_special_tokens=skip)
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        return decode(ids)
    start, whole = decode(before), decode(before + ids)
    if whole.startswith(start):
        return whole[len(start):]
    return whole[len(os.path.commonprefix([start, whole])):] if start.endswith("\ufffd") else None


def compare_behind(name, tokenizer, lines, path):
    """Each line cut at three places."""
    pairs = [(ids[:cut], ids[cut:]) for ids in lines for cut in sorted({1, len(ids) // 2, len(ids) - 1}) if 0 < cut < len(ids)]
    wrong = poisoned = moved = 0
    for (before, ids), got in zip(pairs, probe(path, pairs, "behind"), strict=True):
        want = [behind(tokenizer, before, ids, skip) for skip in (False, True)]
        poisoned += want[0] is None
        moved += want[0] != tokenizer.decode(ids, skip_special_tokens=False)
        if any(b is not None and a != b for a, b in zip(got, want)):
            wrong += 1
            if wrong < 4: print(f"FAILS {name} behind: {got[0][:60]!r}, {got[1][:60]!r}, not {(want[0] or '')[:60]!r}, {(want[1] or '')[:60]!r} behind {tokenizer.decode(before)[-30:]!r}")
    return wrong, f"{len(pairs)} texts stand behind others, {moved} otherwise than alone, {poisoned} beside broken bytes"


def borders(folder):
    """Characters of bytes on the border: half of one before, and a whole one that a byte behind it would break."""
    state = json.loads(llama_2().to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]  # as real files have them: no special ones
    tokenizer = Tokenizer.from_str(json.dumps(state))
    path = os.path.join(folder, "borders.json")
    tokenizer.save(path)
    word, byte = tokenizer.encode("word", add_special_tokens=False).ids, [tokenizer.token_to_id(name) for name in BYTES]
    blank = [tokenizer.token_to_id(SPACE + "there")]
    end = tokenizer.token_to_id("<|im_end|>")
    cases = [(word + [byte[0xE2], byte[0x82]], [byte[0xAC], *blank], "€ " + tokenizer.decode(blank)), (word + [byte[0xC3], byte[0xA9]], [byte[0xE2], *blank], "\ufffd " + tokenizer.decode(blank)),
             (word + [byte[0x0A]], [byte[0xF0]], "\ufffd"), (word + [byte[0x0A]], blank, " " + tokenizer.decode(blank)), (word + [end, byte[0x0A]], blank, " " + tokenizer.decode(blank)),
             (word + [end], blank, " " + tokenizer.decode(blank)), ([end], blank, tokenizer.decode(blank)), ([], blank, tokenizer.decode(blank)), (word, [], "")]
    bad = 0
    for (before, ids, want), (_, got) in zip(cases, probe(path, [case[:2] for case in cases], "behind"), strict=True):
        if got != want:
            bad += 1
            print(f"FAILS borders: {got!r}, not {want!r}")
    return bad


def compare(name, tokenizer, lines, folder):
    path = os.path.join(folder, "tokenizer.json")
    tokenizer.save(path)
    want = [e.ids for e in tokenizer.encode_batch_fast(lines)]
    bad = [i for i, (a, b) in enumerate(zip(probe(path, lines, "encode"), want, strict=True)) if a != b]
    for i in bad[:3]:
        got = probe(path, [lines[i]], "encode")[0]
        at = next((k for k, (a, b) in enumerate(zip(got, want[i])) if a != b), min(len(got), len(want[i])))
        print(f"FAILS {name}: {lines[i][:80]!r}\n  at {at}: got {[tokenizer.id_to_token(t) for t in got[at:at + 8]]}\n  want {[tokenizer.id_to_token(t) for t in want[i][at:at + 8]]}")
    wrong = 0
    texts, skipped = (tokenizer.decode_batch(want, skip_special_tokens=skip) for skip in (False, True))
    for (got, without, parts), text, shorter in zip(probe(path, want, "back"), texts, skipped, strict=True):
        halves = [part for part in parts[:-1] if part.endswith("\ufffd")]  # a character that is not whole yet
        if (got, without, "".join(parts)) != (text, shorter, text) or halves:
            wrong += 1
            if wrong < 4: print(f"FAILS {name} decoding: {got[:60]!r}, {without[:60]!r}, {parts[:8]}, not {text[:60]!r}, {shorter[:60]!r}")
    wrong_behind, note = compare_behind(name, tokenizer, want, path)
    return len(bad), wrong + wrong_behind, note


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=250)
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("--wide", type=int, default=0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    lines = corpus.wide(arguments.wide) if arguments.wide else [*corpus.made(arguments.lines, 7), *corpus.HARD, *corpus.runs(2000), *corpus.real(arguments.corpus, 10**6)]
    print(f"{len(lines)} lines, {sum(len(line.encode()) for line in lines)} bytes")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = [*((name, make()) for name, make in FAMILIES.items() if arguments.only in name), *((name, t) for name, t in parts() if arguments.only in name)]
        for name, tokenizer in cases:
            bad, wrong, note = compare(name, tokenizer, lines, folder)
            failures += bad + wrong
            print(f"{name}: {bad} lines encode differently, {wrong} decode differently; {note}", flush=True)
        failures += borders(folder)
    print(f"{len(cases)} tokenizers")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
