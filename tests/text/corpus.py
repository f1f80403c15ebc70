"""Lines for comparing tokenizers: words of many scripts, random code points, hard cases, and real text from files."""
import collections
import gettext
import gzip
import itertools
import pathlib
import random
import sys
import unicodedata

WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they which you "
         "were her all she there would their we him been has when who will more no if out so said what up its about into than "
         "Straße Größe naïve façade œuvre ¿qué? señor ação Ελλάδα κόσμος ΣΊΣΥΦΟΣ İstanbul Москва привет мир שלום עולם مرحبا بالعالم नमस्ते दुनिया "
         "你好 世界 こんにちは カタカナ 안녕하세요 세계 ไทย 😀 👩‍👩‍👧 🇩🇪 e\u0301 a\u030a ﬁ ½ ² ³ Ⅷ ١٢٣ १२३ ㍿ ｈａｌｆ ﾊﾝｶｸ int main() { return x[i] += 3; } "
         "def f(x): lambda y: y**2 == 'don't' I'LL we'Ve they'd it'ſ <|im_start|> <|im_end|> <s> </s> <unk> [MASK] [CLS] <0x41> ▁ ▁▁a ##ing "
         "http://a.b/c?d=e&f=g 3.14159 1e-9 0x1F 12345678 2024-01-31 $99.99 — … “quoted” ‘x’ \u00a0 \u2003 \u3000 \u200b \u200d \u180e \ufeff \x00 \x07 \x85 \ufffd").split(" ")
SPACES = [" ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003", ""]
HARD = [" <tool>x [MASK] y 世界 世界a<|im_end|>", "", " ", "  ", "a  ", "  a", "\n \n", "'", "'s", "x'S", "١٢٣٤", "▁", "▁▁", " ▁ ", "a▁b", "\r\n", "\r\n\r\n",
        "\u0301", "e\u0301\u0301", "\u1100\u1161\u11a8", "\uac00\u11a8", "\U0001F1E9\U0001F1EA\U0001F1E9", "क्षि", "ﷺ", "ﬃ", "Å", "\u2126", "<s>", "<s> a", "a</s>b"]


def random_text(rng):
    """Any code points, assigned or not."""
    ranges = ((0, 0x10F7FF), (1, 0x7F), (0x80, 0x3000), (0x300, 0x36F), (0x3000, 0xA000))
    points = (rng.randint(*rng.choice(ranges)) for _ in range(rng.randint(1, 30)))
    return "".join(chr(c if c < 0xD800 else c + 0x800) for c in points)


def made(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        if i % 4 == 0:
            yield random_text(rng)
        else:
            yield "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(0, 30)))


def runs(length):
    """One character, or two, again and again."""
    return [c * length for c in ("a", " ", "1", "\n", "ab ", "é", "世", "\u0301", "▁", ".")]


def catalogue(path):
    with open(path, "rb") as file:
        try: return [text for text in gettext.GNUTranslations(file)._catalog.values() if isinstance(text, str)]
        except (OSError, LookupError, ValueError): return []  # a charset or a plural rule that Python does not know


def manual(path):
    with gzip.open(path, "rt", encoding="utf-8", errors="ignore") as file: return file.read().split("\n")


def source(path): return path.read_text(encoding="utf-8", errors="ignore").split("\n")


def every_character():
    """All that Unicode assigns, 24 to a line in their order, and one line each of a letter that carries the marks of a block."""
    points = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    marks = [c for c in points if unicodedata.combining(c)]
    for begin in range(0, len(points), 24): yield "".join(points[begin:begin + 24])
    for begin in range(0, len(marks), 6): yield "e" + "".join(marks[begin:begin + 6]) + " " + "".join("क" + c for c in marks[begin:begin + 6])


SUFFIXES = ("py", "c", "h", "cpp", "hpp", "js", "ts", "go", "pl", "php", "cs", "sh", "f90", "css", "html", "sql", "cmake", "cu", "md", "json")


def installed():
    """What installed packages have, by group: a language's catalogues, a language's manuals, a programming language."""
    groups = collections.defaultdict(list)
    for path in sorted(pathlib.Path("/usr").rglob("LC_MESSAGES/*.mo")): groups["catalogue " + path.parent.parent.name.split(".")[0]].append((catalogue, path))
    for path in sorted(pathlib.Path("/usr/share/man").glob("*/man*/*.gz")): groups["manual " + path.parent.parent.name].append((manual, path))
    for folder in (pathlib.Path("/usr"), pathlib.Path(sys.prefix)):
        for path in sorted(folder.rglob("*")):
            if path.suffix[1:] in SUFFIXES and path.is_file() and path.stat().st_size < 10**6: groups["code " + path.suffix[1:]].append((source, path))
    for name, files in groups.items(): random.Random(name).shuffle(files)
    return groups


def wide(limit, seed=13):
    """`limit` lines, each once: in turn one of every group of `installed()`, 8 with random code points, and 25 with what Unicode
    assigns; then runs of 100,000 and the hard cases. Prints what there is."""
    groups = {name: itertools.chain.from_iterable(read(path) for read, path in files) for name, files in installed().items()}
    kinds = collections.Counter(name.split(" ")[0] for name in groups)
    characters = list(every_character())
    for i in range(25): groups[f"characters {i}"] = iter(characters[i::25])
    for i in range(8): groups[f"random {i}"] = made(limit // 100, seed + i)
    lines = {}
    while groups and len(lines) < limit:
        for name, group in list(groups.items()):
            line = next((line for line in group if line and len(line) < 4000 and line not in lines), None)
            if line is None: del groups[name]
            elif len(lines) < limit: lines[line] = name
    counts = collections.Counter(name.split(" ")[0] for name in lines.values())
    print(", ".join(f"{count} lines of {name}" + (f" ({kinds[name]} groups)" if kinds[name] else "") for name, count in counts.items()))
    return [*lines, *HARD, *runs(100000)]


def real(folders, limit):
    """Lines of every text file below the folders, and the translations in catalogues, each once."""
    seen = set()
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if not path.is_file() or path.suffix not in (".mo", ".py", ".h", ".c", ".cpp", ".js", ".md", ".txt", ".rst", ".pl", ".pm", ".sh", ".json", ".html", ".css", ".rs", ".java", ".cmake", ".inp"):
                continue
            if path.suffix == ".mo":
                with open(path, "rb") as file:
                    lines = [text for text in gettext.GNUTranslations(file)._catalog.values() if isinstance(text, str)]
            else:
                lines = path.read_text(encoding="utf-8", errors="ignore").split("\n")[:400]
            for line in lines:
                if line and len(line) < 4000 and line not in seen:
                    seen.add(line)
                    yield line
                    if len(seen) >= limit:
                        return
