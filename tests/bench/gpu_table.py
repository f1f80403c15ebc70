"""The measurements of gpu_report.py and the ratios computed from them: commands by name, rows with floor and aim.

A row that lacks one of its measurements has no value and gives the reason; nothing is estimated.
"""
import dataclasses
import typing

import gpu_decoding
import gpu_jobs
import gpu_train

VOCABULARY = 128256    # of the Llama-3 shapes
# Generated tokens/s of an 8B model in bf16 with 256 texts on one GPU. A round figure for vLLM's class, not one of its
# authors: third parties report 12,500 for one H100 (morphllm.com/vllm-benchmarks, April 2026, Llama 3.1 8B, bf16), and
# an H200 reads 1.4 times as fast.
DECODE_AIM = 20000


class NotMeasured(LookupError):
    """The reason why there is no number."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Tokens and texts of the measurements. The unit is that of a teacher: 16,384 tokens in texts of 2,048."""
    unit: int = 16384
    text: int = 2048
    uneven: int = 15100  # tokens in texts of one to eight parts; not a multiple of tile sizes
    uneven_texts: int = 12
    long: int = 8192         # one text
    four: int = 4096
    cached: int = 1024  # tokens of each text before the pass, and in it
    written: int = 128
    few_written: int = 64
    prompt: int = 512  # before decoding of many texts
    many: tuple = (32, 64, 256)
    judge_prompt: int = 2048
    judges: int = 256
    judges_at_once: int = 80  # their pages are 53 GiB in bf16; twice as many in fp8
    top_k: int = 64
    layers: int = 4  # layers that `bench layer` makes; the whole model is computed from them
    repeats: int = 5


# Tests in seconds whether every command line works; with MAGISTER_GPU_CODE_ON_HOST=1 every thread is emulated.
TINY = Sizes(unit=16, text=8, uneven=24, uneven_texts=3, long=9, four=8, cached=4, written=1, few_written=1, prompt=3, many=(2, 3, 4),
             judge_prompt=4, judges=3, judges_at_once=2, top_k=4, layers=1, repeats=1)


def sizes_for(memory_gib):
    """A 70B model in 8 bits has 74 GB: next to it an H100 of 80 GB has memory for four prompts, not for 80."""
    return Sizes() if memory_gib is None or memory_gib > 100 else dataclasses.replace(Sizes(), judges=16, judges_at_once=4)


@dataclasses.dataclass
class Measurement:
    name: str
    arguments: list  # of `magister bench`; {8b} and {70b} become folders. Other programs: see `runner`
    limit: int  # most seconds that it may take
    runner: str = "bench"  # bench | hf | busy | chain | train | jobs
    part: str = "table"    # one of PARTS
    random: bool = True  # for bench: a model is made


INT8, INT4 = ["--format", "int8", "--group", 128], ["--format", "int4", "--group", 128]
MANY = ["--decoding", "throughput"]
BF16, FP8 = ["--dtype", "bf16"], ["--dtype", "fp8"]


def table_of(sizes):
    """The measurements in the order of running: first those that most rows need, long ones last, and the bounds
    again at the end."""
    def bench(name, what, model, limit, *options):
        return Measurement(name, [what, model, *options, "--repeats", sizes.repeats], limit)

    def limit_of(name, what):
        return Measurement(name, [what, "--dtype", "bf16", "--repeats", sizes.repeats], 100, random=False)

    def decode(name, model, kind, written=sizes.written, texts=1, limit=60, graph="on"):
        return bench(name, "decode", model, limit, *kind, "--tokens", written, "--sequences", texts, "--graph", graph,
                     *(["--past", sizes.prompt, *MANY] if texts > 1 else []))

    texts = sizes.unit // sizes.text
    whole = ["--tokens", sizes.unit, "--sequences", texts]
    four = ["--tokens", sizes.four, "--sequences", 2]
    yield limit_of("gemm", "gemm")
    yield limit_of("copy", "copy")
    yield limit_of("read", "read")
    yield bench("prefill_bf16", "prefill", "{8b}", 60, *BF16, *whole)
    yield bench("teacher_bf16", "teacher", "{8b}", 60, *BF16, *whole, "--top-k", sizes.top_k)
    yield bench("prefill_uneven", "prefill", "{8b}", 60, *BF16, "--tokens", sizes.uneven, "--sequences", sizes.uneven_texts,
                "--lengths", "uneven")
    yield decode("decode_bf16", "{8b}", BF16)
    yield decode("decode_int8", "{8b}", INT8)
    yield decode("decode_int4", "{8b}", INT4)
    yield decode("decode_eager", "{8b}", BF16, graph="off")
    for many in sizes.many:
        yield decode(f"decode_{('some', 'more', 'many')[sizes.many.index(many)]}", "{8b}", BF16, sizes.few_written, many, 60)
    yield decode("decode_pages", "{8b}", [*BF16, "--kv-cache", "fp8"], sizes.few_written, sizes.many[-1], 60)
    yield Measurement("hf_teacher", ["teacher", "{8b}", "--tokens", sizes.unit, "--sequences", texts, "--top-k", sizes.top_k], 120, "hf")
    yield bench("prefill_cached", "prefill", "{8b}", 60, *BF16, "--tokens", texts * sizes.cached, "--sequences", texts,
                "--past", sizes.cached)
    yield bench("prefill_plain", "prefill", "{8b}", 60, *BF16, "--tokens", texts * sizes.cached, "--sequences", texts)
    yield bench("prefill_fp8", "prefill", "{8b}", 60, *FP8, *whole)
    yield bench("prefill_4k_bf16", "prefill", "{8b}", 45, *BF16, *four)
    yield bench("prefill_4k_int8", "prefill", "{8b}", 45, *INT8, *four)
    yield bench("prefill_4k_int4", "prefill", "{8b}", 45, *INT4, *four)
    yield bench("prefill_long", "prefill", "{8b}", 60, *BF16, "--tokens", sizes.long, "--sequences", 1)
    yield bench("prefill_long_cudnn", "prefill", "{8b}", 60, *BF16, "--tokens", sizes.long, "--sequences", 1, "--attention", "cudnn")
    yield Measurement("gemm_after", ["gemm", "--dtype", "bf16", "--repeats", sizes.repeats], 40, random=False)
    yield Measurement("busy", ["{1b}"], 90, "busy")
    yield decode("decode_70b_int8", "{70b}", INT8, sizes.few_written, limit=90)
    yield decode("decode_70b_int4", "{70b}", INT4, sizes.few_written, limit=90)


def layers_of(sizes):
    def layer(name, model, *options):
        options = [*options, "--layers", sizes.layers, "--repeats", sizes.repeats]
        return Measurement(name, ["layer", model, *options], 60, part="layer")

    texts = sizes.unit // sizes.text
    whole = ["--tokens", sizes.unit, "--sequences", texts, "--top-k", sizes.top_k]
    four = ["--tokens", sizes.four, "--sequences", 2]
    few = ["--past", sizes.prompt]
    # The bounds to compare parts with. The first start on a machine reads gigabytes of libraries from its disk.
    for name in ("gemm", "copy"):
        yield Measurement(f"{name}_of_layers", [name, "--dtype", "bf16", "--repeats", sizes.repeats], 100, part="layer", random=False)
    yield layer("layer_bf16", "{8b}", *BF16, *whole)
    yield layer("layer_decode_bf16", "{8b}", *BF16, "--rows", 1, *few)
    yield layer("layer_fp8", "{8b}", *FP8, *whole)
    yield layer("layer_uneven", "{8b}", *BF16, "--tokens", sizes.uneven, "--sequences", sizes.uneven_texts, "--lengths", "uneven")
    yield layer("layer_decode_many", "{8b}", *BF16, "--rows", sizes.many[-1], *few, *MANY)
    yield layer("layer_decode_more", "{8b}", *BF16, "--rows", sizes.many[-2], *few, *MANY)
    yield layer("layer_cached", "{8b}", *BF16, "--tokens", texts * sizes.cached, "--sequences", texts, "--past", sizes.cached)
    yield layer("layer_long", "{8b}", *BF16, "--tokens", sizes.long, "--sequences", 1)
    yield layer("layer_long_cudnn", "{8b}", *BF16, "--tokens", sizes.long, "--sequences", 1, "--attention", "cudnn")
    yield layer("layer_decode_int8", "{8b}", *INT8, "--rows", 1, *few)
    yield layer("layer_decode_int4", "{8b}", *INT4, "--rows", 1, *few)
    yield layer("layer_int8", "{8b}", *INT8, *four)
    yield layer("layer_int4", "{8b}", *INT4, *four)
    yield layer("layer_70b_decode_int8", "{70b}", *INT8, "--rows", 1, *few)
    yield layer("layer_70b_decode_int4", "{70b}", *INT4, "--rows", 1, *few)
    yield layer("layer_70b_fp8", "{70b}", *FP8, "--tokens", sizes.four, "--sequences", 2)
    yield layer("layer_1b", "{1b}", *BF16, *whole)


def trainings_of(_):
    for name, limit in gpu_train.measurements():
        yield Measurement(name, [], limit, "train", "train")


def jobs_of(sizes):
    for name, limit in gpu_jobs.measurements():
        yield Measurement(name, [], limit, "jobs", "jobs")
    yield Measurement("job_prefill_8b", ["prefill", "{8b}", *BF16, "--tokens", sizes.unit, "--sequences", sizes.unit // sizes.text, "--repeats", sizes.repeats],
                      60, part="jobs")


def decoding_of(part, make):
    def measurements_of(sizes):
        yield from make(sizes, lambda name, words, limit: Measurement(name, words, limit, part=part, random=words[0] != "copy"))
    return measurements_of


def caches_of(_):
    for name, limit in gpu_decoding.CACHES:
        yield Measurement(name, [], limit, "jobs", "kv_cache")


PARTS = {"table": table_of, "layer": layers_of, "train": trainings_of, "jobs": jobs_of, "decoding": decoding_of("decoding", gpu_decoding.measurements),
         "judge": decoding_of("judge", gpu_decoding.judge_fp8), "judge_int8": decoding_of("judge_int8", gpu_decoding.judge_int8), "kv_cache": caches_of}


def measurements(part, sizes):
    return list(PARTS[part](sizes))


@dataclasses.dataclass
class Row:
    what: str
    floor: float | None
    aim: float | None
    value: typing.Callable  # get(name) -> the measurement's numbers
    uses: tuple
    less_is_better: bool = False
    layer: str = ""  # the part-by-part measurement that explains it

    def verdict(self, value):
        if self.floor is None:
            return "no floor: a figure beside the others"

        def met(bound):
            return value <= bound if self.less_is_better else value >= bound
        return "aim met" if met(self.aim) else "floor met" if met(self.floor) else "below the floor"


def ratio(upper, lower, key="tokens_per_second"):
    return (lambda get: get(upper)[key] / get(lower)[key]), (upper, lower)


def gemm_rate(get):
    """The mean of the rates before and after, since the clock may fall under load; if one is missing, the other."""
    try:
        before = get("gemm")["tflops"]
    except NotMeasured:
        return get("gemm_after")["tflops"]
    try:
        return (before + get("gemm_after")["tflops"]) / 2
    except NotMeasured:
        return before


def over_gemm(name):
    return (lambda get: get(name)["tflops"] / gemm_rate(get)), (name, "gemm", "gemm_after")


def over(name, bound):
    return (lambda get: get(name)["gbs"] / get(bound)["gbs"]), (name, bound)


def over_figure(name, figure):
    return (lambda get: get(name)["tokens_per_second"] / figure), (name,)


def row(what, floor, aim, value_and_uses, layer="", **options):
    return Row(what, floor, aim, value_and_uses[0], value_and_uses[1], layer=layer, **options)


def over_transformers(get):
    """The ratio to the faster of the peer's two ways: all logits at once, or in chunks of rows."""
    hf = get("hf_teacher")
    return get("teacher_bf16")["tokens_per_second"] / max(hf["tokens_per_second"], hf["chunked_tokens_per_second"])


def kept_memory(sizes):
    return lambda get: get("teacher_bf16")["head_bytes"] / (sizes.unit * VOCABULARY * 4)


def rows(sizes):
    bf16 = "decode of one sequence, 8B, bf16"
    some, more, many = sizes.many
    return [
        row("teacher's unit of 16,384 tokens, 8B, bf16: prefill FLOP/s over an 8192^3 bf16 GEMM", 0.60, 0.75,
            over_gemm("prefill_bf16"), "layer_bf16"),
        row("teacher over plain prefill, the head's FLOPs charged: FLOP/s", 0.93, 0.97, ratio("teacher_bf16", "prefill_bf16", "tflops"),
            "layer_bf16"),
        row("teacher tokens/s over the faster of transformers whole and in chunks of rows (sdpa, bf16, topk of fp32 log_softmax)", 1.5, 2.0,
            (over_transformers, ("teacher_bf16", "hf_teacher")), "layer_bf16"),
        row("uneven lengths (15,100 tokens in 12 texts) over even ones: prefill FLOP/s", 0.93, 0.98,
            ratio("prefill_uneven", "prefill_bf16", "tflops"), "layer_uneven"),
        row("prefill behind a cached prefix (8 texts, 1,024 tokens cached, 1,024 new) over the same without: FLOP/s", 0.85, 0.95,
            ratio("prefill_cached", "prefill_plain", "tflops"), "layer_cached"),
        row("one text of 8,192 tokens, 8B, bf16: prefill FLOP/s over the GEMM", None, None, over_gemm("prefill_long"), "layer_long"),
        row("the same with cuDNN's attention over flash attention: tokens/s", None, None, ratio("prefill_long_cudnn", "prefill_long"), "layer_long_cudnn"),
        row("fp8 over bf16 prefill: tokens/s", 1.4, 1.6, ratio("prefill_fp8", "prefill_bf16"), "layer_fp8"),
        row("extra memory for logits over rows x vocabulary x 4 bytes", 0.125, 0.03, (kept_memory(sizes), ("teacher_bf16",)),
            less_is_better=True),
        row(f"{bf16}: bytes/s over the copy bandwidth", 0.75, 0.85, over("decode_bf16", "copy"), "layer_decode_bf16"),
        row("decode of one sequence, 8B, int8: bytes/s over the copy bandwidth", 0.60, 0.72, over("decode_int8", "copy"), "layer_decode_int8"),
        row("decode of one sequence, 8B, int4: bytes/s over the copy bandwidth", 0.50, 0.60, over("decode_int4", "copy"), "layer_decode_int4"),
        row(f"{bf16}: bytes/s over what the GPU reads when it only reads", None, None, over("decode_bf16", "read"), "layer_decode_bf16"),
        row("CUDA graph over eager decoding, 8B, bf16: tokens/s", 1.1, 1.25, ratio("decode_bf16", "decode_eager"), "layer_decode_bf16"),
        row(f"decode of {many} sequences, 8B, bf16, for throughput: tokens/s over 20,000 (vLLM's class)", 0.925, 1.05, over_figure("decode_many", DECODE_AIM),
            "layer_decode_many"),
        row("the same with pages of 8-bit floats over bf16 pages: tokens/s", None, None, ratio("decode_pages", "decode_many"), "layer_decode_many"),
        row(f"decode of {more} sequences, 8B, bf16, for throughput: tokens/s over one sequence's", None, None, ratio("decode_more", "decode_bf16"),
            "layer_decode_more"),
        row(f"decode of {some} sequences, 8B, bf16, for throughput: tokens/s over one sequence's", None, None, ratio("decode_some", "decode_bf16"),
            "layer_decode_more"),
        row("70B on one GPU, int8: decode bytes/s over the copy bandwidth", 0.60, 0.75, over("decode_70b_int8", "copy"),
            "layer_70b_decode_int8"),
        row("70B on one GPU, int4: decode bytes/s over the copy bandwidth", 0.45, 0.60, over("decode_70b_int4", "copy"),
            "layer_70b_decode_int4"),
        row("int8 over bf16 prefill of 4,096 tokens: tokens/s", 0.85, 0.95, ratio("prefill_4k_int8", "prefill_4k_bf16"), "layer_int8"),
        row("int4 over bf16 prefill of 4,096 tokens: tokens/s", 0.85, 0.95, ratio("prefill_4k_int4", "prefill_4k_bf16"), "layer_int4"),
        row("share of a 1B teacher run in which some kernel ran", 0.90, 0.97, ((lambda get: get("busy")["share"]), ("busy",)), "layer_1b"),
        row("the GEMM after the table over the GEMM before", None, None, ratio("gemm_after", "gemm", "tflops")),
    ]


def rows_of_parts(measured, sizes):
    """The rows of the measured parts: those whose names have a prefix may be reported alone, without the table."""
    alone = {"train_": gpu_train.rows, "job_": gpu_jobs.rows, "decoding_": lambda make: gpu_decoding.rows(make, sizes),
             "judge_": lambda make: gpu_decoding.judge_rows(make, sizes, measured), "cache_": gpu_decoding.cache_rows}
    of_rows = [name for name in measured if not name.startswith("layer_")]
    found = [] if of_rows and all(name.startswith(tuple(alone)) for name in of_rows) else rows(sizes)
    for prefix, make in alone.items():
        found += make(row) if any(name.startswith(prefix) for name in measured) else []
    return found


def rows_of(measured, sizes=Sizes()):
    """measured: {name: {"command", "values" or "reason"}} -> one dictionary per row."""
    def get(name):
        found = measured.get(name)
        if found is None:
            raise NotMeasured(f"{name}: not run")
        if "values" not in found:
            raise NotMeasured(f"{name}: {found['reason']}")
        return found["values"]

    for entry in rows_of_parts(measured, sizes):
        result = {"what": entry.what, "floor": entry.floor, "aim": entry.aim, "layer": entry.layer,
                  "commands": [measured[name]["command"] for name in entry.uses if name in measured]}
        try:
            value = entry.value(get)
            result.update(value=value, verdict=entry.verdict(value))
            sources = [measured[name]["values"]["from"] for name in entry.uses if "from" in measured.get(name, {}).get("values", {})]
            if sources:
                result["verdict"] += f"; {' and '.join(sources)}"
            for missing, alone in (("gemm", "after"), ("gemm_after", "before")):
                if missing in entry.uses and "values" not in measured.get(missing, {}):
                    result["verdict"] += f"; the GEMM {alone} the table alone"
        except NotMeasured as problem:
            result["reason"] = str(problem)
        except (KeyError, TypeError, ZeroDivisionError) as problem:
            result["reason"] = f"{' and '.join(entry.uses)}: a number is missing or zero ({problem!r})"
        yield result
