#!/usr/bin/env python3
"""Writes src/text/unicode_tables.inc: the code points that the reference tokenizer calls letters, numbers and
digits.

usage: make_unicode_tables.py [OUTPUT]
The reference is the Python package `tokenizers` itself, queried for every code point, so that both use the same version
of Unicode. Run it again when scripts/requirements/test.in moves to another version.
"""
import ctypes, os, sys, unicodedata
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

def matched_by(pattern):
    remove, found = pre_tokenizers.Split(Regex(pattern), "removed"), set()
    for begin in range(0, len(POINTS), 4096):
        block = POINTS[begin:begin + 4096]
        kept = {c for piece, _ in remove.pre_tokenize_str("".join(map(chr, block))) for c in piece}
        found |= {c for c in block if chr(c) not in kept}
    return found

def digits():
    split = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in POINTS if len(split.pre_tokenize_str("a" + chr(c) + "a")) == 3}

def word_characters():
    """The characters of \\w, which keep an adjacent single_word added token from matching."""
    tokenizer = Tokenizer(models.BPE(vocab={"x": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("@", single_word=True, normalized=False)])
    at = tokenizer.token_to_id("@")
    found = tokenizer.encode_batch([chr(c) + "@" for c in POINTS])
    return {c for c, encoding in zip(POINTS, found) if at not in encoding.ids and c != ord("@")}

def unknown_to_nfc():
    """Marks and compositions that utf8proc knows but the reference's older normaliser leaves unchanged."""
    nfc = normalizers.NFC().normalize_str
    library = ctypes.CDLL("libutf8proc.so.2")
    library.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_int16 * 2)  # category, combining class, ...
    found = set()
    for c in POINTS:
        if library.utf8proc_get_property(c).contents[1] != 0:
            # classes 1 and 230: a known mark changes its place
            low, high = "a" + chr(c) + "\u0334", "a\u0300" + chr(c)
            mark = chr(c)
            if nfc(low) == low and nfc("b\u0345" + mark) == "b\u0345" + mark and unicodedata.combining(mark) != 1: found.add(c)
        parts = unicodedata.decomposition(chr(c))
        if parts and "<" not in parts:
            pair = unicodedata.normalize("NFD", chr(c))
            if nfc(pair) != unicodedata.normalize("NFC", pair): found |= {c, ord(pair[-1])}
    return found

def removed_by(normalizer):
    """Code points that the normalizer removes."""
    return {c for c in POINTS if normalizer.normalize_str(chr(c)) == ""}

def bert(**options):
    return normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **options})

def punctuation():
    split = pre_tokenizers.Punctuation("isolated")
    return {c for c in POINTS if len(split.pre_tokenize_str("a" + chr(c) + "a")) == 3}

def unknown_to_nfkd(unknown_to_nfc):
    """Compatibility decompositions that utf8proc has but the reference's older normaliser lacks."""
    library = ctypes.CDLL("libutf8proc.so.2")
    library.utf8proc_NFKD.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    nfkd, found = normalizers.NFKD().normalize_str, set()
    for c in POINTS[1:]:
        place = library.utf8proc_NFKD(chr(c).encode())
        if ctypes.string_at(place).decode() != nfkd(chr(c)): found.add(c)
        free(place)
    return found - unknown_to_nfc

def lower_cases():
    """Code points whose lower case differs from utf8proc's; the only one with two code points is handled in
    unicode.cpp."""
    library, lower = ctypes.CDLL("libutf8proc.so.2"), normalizers.Lowercase().normalize_str
    pairs = [(c, lower(chr(c))) for c in POINTS if lower(chr(c)) != chr(library.utf8proc_tolower(c))]
    assert [c for c, text in pairs if len(text) != 1] == [0x130]
    lines = [f"// Lower cases that utf8proc does not have: {len(pairs)}.", "constexpr LowerCase kLowerCases[] = {"]
    texts = [f"{{0x{c:X}, 0x{ord(text[0]):X}}}" for c, text in pairs]
    return lines + ["    " + ", ".join(texts[i:i + 6]) + "," for i in range(0, len(texts), 6)] + ["};", ""]

def newer(name):
    """Code points of a category that Unicode 14 (PCRE2 10.42, Python 3.11) lacks, as a part of a PCRE2 class."""
    known = {c for c in POINTS if unicodedata.category(chr(c)).startswith(name)}
    return "".join(f"\\\\x{{{a:X}}}" if a == b else f"\\\\x{{{a:X}}}-\\\\x{{{b:X}}}" for a, b in ranges(matched_by(rf"\p{{{name}}}") - known))

def newer_table():
    assert unicodedata.unidata_version == "14.0.0", "run this with Python 3.11"
    lines = ["// Additions to the categories of PCRE2 10.42.", "constexpr NewerCategory kNewerCategories[] = {"]
    for name in ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "N", "Nd", "Nl", "No", "M", "Mn", "Mc", "Me", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                 "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp"):
        lines += [f'    {{"{name}",', f'     "{newer(name)}"}},']
    return lines + ["};", ""]

def ranges(points):
    out = []
    for c in sorted(points):
        if out and c == out[-1][1] + 1: out[-1][1] = c
        else: out.append([c, c])
    return out

def table(name, points, comment):
    pairs = [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(points)]
    lines = [f"// {comment}: {len(points)} code points.", f"constexpr CodePointRange {name}[] = {{"]
    for i in range(0, len(pairs), 6): lines.append("    " + ", ".join(pairs[i:i + 6]) + ",")
    return lines + ["};", ""]

def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "src", "text", "unicode_tables.inc")
    lines = [f"// Made by scripts/make_unicode_tables.py from the Python package tokenizers {tokenizers.__version__}.", ""]
    lines += table("kLetterRanges", matched_by(r"\p{L}"), r"\p{L}")
    lines += table("kNumberRanges", matched_by(r"\p{N}"), r"\p{N}")
    lines += table("kDigitRanges", digits(), "split off by the Digits pre-tokenizer")
    lines += table("kSpaceRanges", matched_by(r"\s"), r"\s")
    lines += table("kWordRanges", word_characters(), r"\w next to a single_word token")
    unknown = unknown_to_nfc()
    lines += table("kUnknownToNfcRanges", unknown, "left alone by the reference's NFC")
    lines += table("kUnknownToNfkdRanges", unknown_to_nfkd(unknown), "left alone by the reference's NFKC and NFKD as well")
    lines += table("kMarkRanges", removed_by(normalizers.StripAccents()), "removed by StripAccents")
    lines += table("kNonspacingMarkRanges", removed_by(bert(strip_accents=True)), "removed as accents by the Bert normalizer")
    lines += table("kBertControlRanges", removed_by(bert(clean_text=True)), "removed as control characters by the Bert normalizer")
    lines += table("kPunctuationRanges", punctuation(), "split off by the Punctuation pre-tokenizer")
    lines += lower_cases()
    with open(os.path.join(os.path.dirname(path), "pattern_tables.inc"), "w") as file:
        file.write("\n".join([lines[0], ""] + newer_table()))
    with open(path, "w") as file: file.write("\n".join(lines))

if __name__ == "__main__": main()
