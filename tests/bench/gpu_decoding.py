"""The parts `decoding`, `kv_cache`, `judge` and `judge_int8` of gpu_table.py: what texts cost by each way of decoding, whole
jobs of gpu_jobs.py with keys and values in 8-bit floats and without, and a 70B judge as a job. Each is measured alone
within four minutes.

A judge's prompts queue for the memory of those that are computed at once; no beginning is shared between them.
"""
BF16, FP8 = ["--dtype", "bf16"], ["--dtype", "fp8"]
CODES = {"int8": ["--format", "int8", "--group", 128], "int4": ["--format", "int4", "--group", 128]}
THROUGHPUT, CODED_PAGES = ["--decoding", "throughput"], ["--kv-cache", "fp8"]
# Tokens/s of 70B in fp8 with 2,048 in and 128 out on one H200, input and output counted: 442 output tokens/s of
# TensorRT-LLM's docs/source/performance/perf-overview.md (v1.0), times 17.
JUDGE_AIM = 7514
CACHES = (("cache_generate_8b-fp8", 80), ("cache_generate_8b-fp8-kv", 80))


def measurements(sizes, bench):
    """-> those of the part `decoding`; bench(name, words, limit) makes one."""
    one = ["--tokens", sizes.written, "--sequences", 1]
    many = ["--tokens", sizes.few_written, "--sequences", sizes.many[-1], "--past", sizes.prompt]
    yield bench("decoding_copy", ["copy", *BF16, "--repeats", sizes.repeats], 60)
    for name, kind in (("bf16", BF16), ("int8", CODES["int8"]), ("int4", CODES["int4"])):
        yield bench(f"decoding_{name}", ["decode", "{8b}", *kind, *one], 40)
    yield bench("decoding_many_bf16", ["decode", "{8b}", *BF16, *many, *THROUGHPUT], 40)
    yield bench("decoding_many_fp8", ["decode", "{8b}", *FP8, *many, *THROUGHPUT], 40)
    yield bench("decoding_many_fp8_kv", ["decode", "{8b}", *FP8, *many, *THROUGHPUT, *CODED_PAGES], 40)
    yield bench("decoding_many_fp8_tile", ["decode", "{8b}", *FP8, *many], 40)
    experts = ["decode", "{moe}", "--format", "int4", "--group", 32, "--layers", sizes.layers, "--tokens", sizes.few_written, "--sequences", sizes.many[0]]
    for state in ("on", "off"):
        yield bench(f"decoding_experts_{state}", [*experts, "--graph", state], 40)
    yield bench("layer_decode_many_fp8", ["layer", "{8b}", *FP8, "--rows", sizes.many[-1], "--past", sizes.prompt, *THROUGHPUT, *CODED_PAGES,
                                       "--layers", sizes.layers, "--repeats", sizes.repeats], 40)


def judge(name, kind, sizes, bench):
    """Pages of codes hold twice the prompts: the more a decoding pass has, the fewer of them read the weights."""
    words = ["judge", "{70b}", *kind, *THROUGHPUT, *CODED_PAGES, "--tokens", sizes.judge_prompt, "--sequences", sizes.judges,
             "--at-once", 2 * sizes.judges_at_once]
    return bench(name, words, 230)


def judge_fp8(sizes, bench):
    yield judge("judge_70b_fp8", FP8, sizes, bench)


def judge_int8(sizes, bench):
    yield judge("judge_70b", CODES["int8"], sizes, bench)


def over_copy(name):
    return (lambda get: get(name)["gbs"] / get("decoding_copy")["gbs"]), (name, "decoding_copy")


def over_other(name, other):
    return (lambda get: get(name)["tokens_per_second"] / get(other)["tokens_per_second"]), (name, other)


def figure(name, over=1):
    return (lambda get: get(name)["tokens_per_second"] / over), (name,)


def rows(row, sizes):
    many, some = sizes.many[-1], sizes.many[0]
    return [
        row("one text, 8B, bf16: bytes/s over the copy bandwidth", 0.75, 0.85, over_copy("decoding_bf16")),
        row("one text, 8B, int8: bytes/s over the copy bandwidth", 0.60, 0.72, over_copy("decoding_int8")),
        row("one text, 8B, int4: bytes/s over the copy bandwidth", 0.50, 0.60, over_copy("decoding_int4")),
        row(f"{many} texts, 8B, bf16, for throughput: tokens/s", 18500, 21000, figure("decoding_many_bf16")),
        row(f"{many} texts, 8B, fp8, for throughput: tokens/s", None, None, figure("decoding_many_fp8")),
        row(f"{many} texts, 8B, fp8 with keys and values in fp8, for throughput: tokens/s", 24000, 28000, figure("decoding_many_fp8_kv"),
            "layer_decode_many_fp8"),
        row(f"{many} texts, 8B, fp8: throughput over latency, tokens/s", None, None, over_other("decoding_many_fp8", "decoding_many_fp8_tile")),
        row(f"{many} texts, 8B: fp8 over bf16, tokens/s", None, None, over_other("decoding_many_fp8", "decoding_many_bf16")),
        row(f"{some} texts, {sizes.layers} layers of gpt-oss-120b, int4: graphs over kernels one by one, tokens/s", None, None,
            over_other("decoding_experts_on", "decoding_experts_off")),
    ]


def cache_rows(row):
    what = "generate, 8B, fp8 for throughput, 512 texts of 256 new tokens"
    without, with_codes = (name for name, _ in CACHES)
    return [row(f"{what}, keys and values in fp8: tokens/s computing", 24000, 28000, figure(with_codes), with_codes),
            row(f"{what}: keys and values in fp8 over bf16", None, None, over_other(with_codes, without), with_codes)]


def judge_rows(row, sizes, measured):
    """Those of the parts that were measured: each takes minutes, so they are reported alone."""
    what = f"of {sizes.judges} prompts, 2,048 in and 128 out: tokens/s over TensorRT-LLM's {JUDGE_AIM:,}"
    return [row(f"70B judge ({kind}) {what}", floor, 1.0, figure(name, JUDGE_AIM))
            for kind, floor, name in (("fp8", 0.7, "judge_70b_fp8"), ("int8", 0.6, "judge_70b")) if name in measured]
