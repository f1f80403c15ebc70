"""What gpu_report.py measures and the ratios that it makes of it: commands by name, rows with floor and aim.

A row that lacks one of its measurements has no value and says why; nothing is estimated.
"""
import dataclasses
import typing

UNIT = 16384           # tokens of the teacher's unit, in texts of 2,048
VOCABULARY = 128256    # of the Llama-3 shapes
JUDGE_AIM = 7500  # tokens/s, 70B, 2,048 in and 128 out on one H200, input and output counted: a round figure to compare with


class NotMeasured(Exception):
    """Why there is no number."""


@dataclasses.dataclass
class Measurement:
    name: str
    arguments: list       # of `magister bench`; {8b} and {70b} become folders. Other programs: see `runner`
    limit: int            # seconds that it may take
    runner: str = "bench"  # bench | hf | busy
    model: bool = True    # whether the folder belongs to the command


def bench(name, what, model, limit, *options):
    return Measurement(name, [what, model, *options], limit)


DECODE = ["--tokens", 128, "--sequences", 1]
WHOLE = ["--tokens", UNIT, "--sequences", UNIT // 2048, "--repeats", 5]
FOUR = ["--tokens", 4096, "--sequences", 2, "--repeats", 5]
# In the order of running: what most rows need first, what takes long last.
MEASUREMENTS = [
    Measurement("gemm", ["gemm", "--dtype", "bf16"], 40, model=False),
    Measurement("copy", ["copy"], 40, model=False),
    bench("prefill_bf16", "prefill", "{8b}", 60, "--dtype", "bf16", *WHOLE),
    bench("teacher_bf16", "teacher", "{8b}", 60, "--dtype", "bf16", *WHOLE, "--top-k", 64),
    bench("decode_bf16", "decode", "{8b}", 45, "--dtype", "bf16", *DECODE, "--graph", "on"),
    bench("decode_int8", "decode", "{8b}", 45, "--format", "int8", "--group", 128, *DECODE, "--graph", "on"),
    bench("decode_int4", "decode", "{8b}", 45, "--format", "int4", "--group", 128, *DECODE, "--graph", "on"),
    bench("decode_eager", "decode", "{8b}", 45, "--dtype", "bf16", *DECODE, "--graph", "off"),
    Measurement("hf_teacher", ["teacher", "{8b}", "--tokens", UNIT, "--sequences", UNIT // 2048, "--top-k", 64], 90, "hf"),
    bench("prefill_4k_bf16", "prefill", "{8b}", 45, "--dtype", "bf16", *FOUR),
    bench("prefill_4k_int8", "prefill", "{8b}", 45, "--format", "int8", "--group", 128, *FOUR),
    bench("prefill_4k_int4", "prefill", "{8b}", 45, "--format", "int4", "--group", 128, *FOUR),
    bench("prefill_fp8", "prefill", "{8b}", 60, "--dtype", "fp8", *WHOLE),
    Measurement("busy", ["{1b}"], 90, "busy"),
    bench("decode_70b_int8", "decode", "{70b}", 90, "--format", "int8", "--group", 128, "--tokens", 64, "--sequences", 1, "--graph", "on"),
    bench("decode_70b_int4", "decode", "{70b}", 90, "--format", "int4", "--group", 128, "--tokens", 64, "--sequences", 1, "--graph", "on"),
    bench("judge_70b_fp8", "judge", "{70b}", 120, "--dtype", "fp8", "--tokens", 2048, "--sequences", 32, "--repeats", 1),
    bench("judge_70b", "judge", "{70b}", 120, "--format", "int8", "--group", 128, "--tokens", 2048, "--sequences", 32, "--repeats", 1),
]


@dataclasses.dataclass
class Row:
    what: str
    floor: float
    aim: float
    value: typing.Callable  # of get(name) -> the measurement's numbers
    uses: tuple
    less_is_better: bool = False

    def verdict(self, value):
        def met(bound):
            return value <= bound if self.less_is_better else value >= bound
        return "aim met" if met(self.aim) else "floor met" if met(self.floor) else "below the floor"


def ratio(upper, lower, key="tokens_per_second"):
    return (lambda get: get(upper)[key] / get(lower)[key]), (upper, lower)


def over_copy(name):
    return (lambda get: get(name)["gbs"] / get("copy")["gbs"]), (name, "copy")


def row(what, floor, aim, value_and_uses, **options):
    return Row(what, floor, aim, value_and_uses[0], value_and_uses[1], **options)


ROWS = [
    row("teacher's unit of 16,384 tokens, 8B, bf16: prefill FLOP/s over an 8192^3 bf16 GEMM", 0.60, 0.75,
        ratio("prefill_bf16", "gemm", "tflops")),
    row("teacher over plain prefill, the head's FLOPs charged: FLOP/s", 0.93, 0.97, ratio("teacher_bf16", "prefill_bf16", "tflops")),
    row("teacher tokens/s over transformers (sdpa, bf16, topk of fp32 log_softmax)", 1.5, 2.0, ratio("teacher_bf16", "hf_teacher")),
    row("fp8 over bf16 prefill: tokens/s", 1.4, 1.6, ratio("prefill_fp8", "prefill_bf16")),
    row("extra memory for logits over rows x vocabulary x 4 bytes", 0.125, 0.03,
        ((lambda get: get("teacher_bf16")["head_bytes"] / (UNIT * VOCABULARY * 4)), ("teacher_bf16",)), less_is_better=True),
    row("decode of one sequence, 8B, bf16: bytes/s over the copy bandwidth", 0.75, 0.85, over_copy("decode_bf16")),
    row("decode of one sequence, 8B, int8: bytes/s over the copy bandwidth", 0.60, 0.72, over_copy("decode_int8")),
    row("decode of one sequence, 8B, int4: bytes/s over the copy bandwidth", 0.45, 0.60, over_copy("decode_int4")),
    row("CUDA graph over eager decoding, 8B, bf16: tokens/s", 1.1, 1.25, ratio("decode_bf16", "decode_eager")),
    row("70B on one GPU, int8: decode bytes/s over the copy bandwidth", 0.60, 0.75, over_copy("decode_70b_int8")),
    row("70B on one GPU, int4: decode bytes/s over the copy bandwidth", 0.45, 0.60, over_copy("decode_70b_int4")),
    row("70B judge (fp8), 2,048 in and 128 out: tokens/s over 7,500", 0.4, 0.7,
        ((lambda get: get("judge_70b_fp8")["tokens_per_second"] / JUDGE_AIM), ("judge_70b_fp8",))),
    row("70B judge (int8), 2,048 in and 128 out: tokens/s over 7,500", 0.4, 0.7,
        ((lambda get: get("judge_70b")["tokens_per_second"] / JUDGE_AIM), ("judge_70b",))),
    row("int8 over bf16 prefill of 4,096 tokens: tokens/s", 0.85, 0.95, ratio("prefill_4k_int8", "prefill_4k_bf16")),
    row("int4 over bf16 prefill of 4,096 tokens: tokens/s", 0.85, 0.95, ratio("prefill_4k_int4", "prefill_4k_bf16")),
    row("GPU busy share in a teacher run of a 1B model", 0.90, 0.97, ((lambda get: get("busy")["share"]), ("busy",))),
]


def rows_of(measured):
    """measured: {name: {"command", "values" or "reason"}} -> one dictionary a row."""
    def get(name):
        found = measured.get(name)
        if found is None:
            raise NotMeasured(f"{name}: not run")
        if "values" not in found:
            raise NotMeasured(f"{name}: {found['reason']}")
        return found["values"]

    for entry in ROWS:
        result = {"what": entry.what, "floor": entry.floor, "aim": entry.aim,
                  "commands": [measured[name]["command"] for name in entry.uses if name in measured]}
        try:
            value = entry.value(get)
            result.update(value=value, verdict=entry.verdict(value))
            sources = [measured[name]["values"]["from"] for name in entry.uses if "from" in measured[name]["values"]]
            if sources:
                result["verdict"] += f"; {' and '.join(sources)}"
        except NotMeasured as problem:
            result["reason"] = str(problem)
        except (KeyError, TypeError, ZeroDivisionError) as problem:
            result["reason"] = f"{' and '.join(entry.uses)}: a number is missing or zero ({problem!r})"
        yield result
