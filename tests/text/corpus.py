"""Lines for comparing tokenizers: words of many scripts, random code points, hard cases, and real text from files."""
import gettext
import pathlib
import random

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
