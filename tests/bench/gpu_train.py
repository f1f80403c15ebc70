"""Training on a GPU against transformers + torch, for gpu_report.py --part train: the same model folder, texts and
batches, in turn, one process each.

Magister's side is `magister run` of a train task; its speed is the median of the steps after the first ones, and it is
ended when it has taken them. "memory" is the largest use of the whole device by nvidia-smi during the run, and for the
peer torch's own max_memory_allocated, which is the smaller of its figures.
"""
import dataclasses
import json
import pathlib
import random
import statistics
import time

import gpu_profile
from gpu_peer import Peer
from gpu_watch import Run, Samples, moment_of


@dataclasses.dataclass(frozen=True)
class TrainSizes:
    batch: int = 8
    big: int = 64
    length: int = 1024
    texts: int = 128
    warm_up: int = 3
    steps: int = 10
    few: int = 3  # steps of slow ways
    seconds: float = 30  # most seconds for the steps of one run


TINY = TrainSizes(batch=2, big=4, length=8, texts=8, warm_up=1, steps=2, few=1)

# The ways of training: keys of the task, and the peer's keys for the same.
WAYS = {"bf16": ({}, {}), "big": ({}, {}), "f32": ({"precision": "f32"}, {"precision": "f32"}),
        "lora": ({"adapter": {"rank": 8, "alpha": 16}}, {"lora_rank": 8}), "distill": ({}, {"distill": True}),
        "checkpointing": ({"gradient_checkpointing": True}, {"checkpointing": True})}
NAMES = {"bf16": "1B, bf16, 8 x 1,024 tokens a step", "big": "1B, bf16, 64 x 1,024 (8 micro-batches)", "f32": "1B, f32, 8 x 1,024",
         "lora": "1B, LoRA rank 8, bf16, 8 x 1,024", "distill": "1B, distill from a stored file over torch with the rows in memory, 8 x 1,024"}
BOUNDS = {"bf16": (0.8, 1.15), "big": (0.9, 1.2), "f32": (0.9, 1.1), "lora": (0.9, 1.2), "distill": (0.9, 1.3)}


class TrainRunner:
    """Measures by name: train_WAY or train_peer_WAY, with _again appended in the second round. Makes model, texts
    and teacher's rows on first use."""

    def __init__(self, program, root, work, shape, tiny):
        self.program, self.root, self.shape, self.tiny = program, root, shape, tiny
        self.work, self.sizes = work / "train", TINY if tiny else TrainSizes()
        self.peer, self.rows = None, None

    def prepare(self):
        if self.peer is not None:
            return
        import gpu_weights  # imports numpy, which a report does not need
        self.peer = Peer()
        self.work.mkdir(parents=True, exist_ok=True)
        gpu_weights.write(self.work / "model", self.shape, self.root)
        vocabulary = json.loads((self.work / "model/config.json").read_text(encoding="utf-8"))["vocab_size"]
        draw = random.Random(3)
        with open(self.work / "texts.jsonl", "w", encoding="utf-8") as file:
            for _ in range(self.sizes.texts):
                file.write(json.dumps({"ids": [draw.randrange(1, vocabulary) for _ in range(self.sizes.length)]}) + "\n")
        self.peer.ready()

    def experiment(self, name, task):
        layout = {"devices": "cpu" if self.tiny else "auto"}
        return {"name": name, "model": {"path": str(self.work / "model")}, "layout": layout, "tasks": [{"name": "student", **task}]}

    def teacher(self, limit):
        """-> the file of the teacher's rows, or the reason why there is none."""
        if self.rows is None:
            task = {"task": "teacher_logits", "dataset": self.dataset(), "max_length": self.sizes.length, "top_k": 64, "logprob_dtype": "f16"}
            run = Run(self.program, self.work, self.experiment("teacher", task))
            in_time = run.wait(limit)
            if not in_time or run.process.returncode != 0:
                return run.why()
            self.rows = run.folder / "student.h5"
        return self.rows

    def dataset(self):
        return {"path": str(self.work / "texts.jsonl"), "tokens": "ids"}

    def steps_of(self, way):
        few = self.sizes.few if way in ("big", "f32") else self.sizes.steps
        return (1 if few == self.sizes.few else self.sizes.warm_up), few

    def ours(self, way, limit, environment=None, steps=None):
        """-> (the run after its steps, samples), or a text."""
        task = {"task": "train", "dataset": self.dataset()}
        if way == "distill":
            rows = self.teacher(limit / 2)
            if not isinstance(rows, pathlib.Path):
                return f"no teacher's rows: {rows}"
            task = {"task": "train", "objective": "distill", "teacher": {"results": str(rows)}}
        warm_up, some = self.steps_of(way)
        wanted = steps or warm_up + some
        batch = self.sizes.big if way == "big" else self.sizes.batch
        task["train"] = {"steps": 100000, "global_batch": batch, "micro_batch": self.sizes.batch, "max_length": self.sizes.length, "shuffle": False,
                         "save_every": 100000, "precision": "bf16", "optimizer": {"lr": 1e-5, "schedule": "constant", "clip": 1.0}, **WAYS[way][0]}
        with Samples() as samples:
            run = Run(self.program, self.work, self.experiment(f"train-{way}", task), environment)

            def enough(run):
                found = run.events("step")
                return len(found) >= wanted or (len(found) >= warm_up + 2 and moment_of(found[-1]) - moment_of(found[0]) > self.sizes.seconds)
            run.wait(limit, enough)
        return (run, samples) if len(run.events("step")) > warm_up else f"too few steps in {run.seconds:.0f} s: {run.why()}"

    def numbers(self, way, run, samples):
        warm_up, _ = self.steps_of(way)
        steps = run.events("step")
        counted = steps[warm_up:]
        found = {"tokens_per_second": statistics.median(step["tokens_per_second"] for step in counted), "steps": len(counted),
                 "to_first_step_seconds": moment_of(steps[0]) - run.began, "first_loss": steps[0]["loss"], "first_norm": steps[0]["grad_norm"],
                 "first_step_tokens_per_second": steps[0]["tokens_per_second"]}
        found["plan"] = "; ".join(line.split(": ", 1)[1] for line in run.said if "checkpointing: " in line or "memory allowed" in line)[:200]
        if (peak := samples.peak()) is not None:
            found["peak_on_device"] = peak
        if (busy := samples.busy(moment_of(steps[warm_up - 1]), moment_of(steps[-1]))) is not None:
            found["busy"] = round(busy, 3)
        return found

    def peers(self, way, limit):
        warm_up, some = self.steps_of(way)
        batch = self.sizes.big if way == "big" else self.sizes.batch
        request = {"model": str(self.work / "model"), "texts": str(self.work / "texts.jsonl"), "device": "cpu" if self.tiny else "cuda", "batch": batch,
                   "micro": self.sizes.batch, "precision": "bf16", "warm_up": warm_up, "steps": some, "seconds": self.sizes.seconds, **WAYS[way][1]}
        with Samples() as samples:
            found = self.peer.ask("train", limit, **request)
        if isinstance(found, dict) and samples.peak() is not None:
            found["peak_on_device"] = samples.peak()
        return found

    def measure(self, name, limit):
        """-> numbers, or a text with the reason why there are none."""
        begin = time.time()
        self.prepare()
        limit -= time.time() - begin
        name = name.removesuffix("_again")
        if name.startswith("train_peer_"):
            return self.peers(name.removeprefix("train_peer_"), limit)
        if name == "train_profile":
            return self.profile(limit)
        way = name.removeprefix("train_")
        found = self.ours(way, limit)
        return found if isinstance(found, str) else self.numbers(way, *found)

    def profile(self, limit):
        """A run with the recorder, which slows it down; so its rate is shown in addition to that of the run without."""
        recorder, path = gpu_profile.build(self.work), self.work / "profile.tsv"
        if isinstance(recorder, str):
            return recorder
        environment = gpu_profile.environment(recorder, path)
        found = self.ours("bf16", limit, environment)
        if isinstance(found, str):
            return found
        run, warm_up = found[0], self.steps_of("bf16")[0]
        steps = [moment_of(step) for step in run.events("step")][warm_up - 1:]
        if self.tiny:
            gpu_profile.try_it(recorder, environment, steps[0], steps[1])
        profile = gpu_profile.numbers(path, steps[0], steps[-1], len(steps) - 1)
        return profile if isinstance(profile, str) else {"tokens_per_second": self.numbers("bf16", *found)["tokens_per_second"], **profile}

    def close(self):
        if self.peer is not None:
            self.peer.close()


# Name, most seconds on a GPU; one round of each pair, then some pairs again.
ORDER = (("bf16", 60), ("big", 50), ("lora", 40), ("distill", 60), ("f32", 45), ("checkpointing", 40))


def measurements():
    """-> [(name, seconds)]."""
    found = []
    for way, limit in ORDER:
        found += [(f"train_{way}", limit), (f"train_peer_{way}", limit)]
        if way == "bf16":
            found.append(("train_profile", limit))
    return found + [(f"train_{side}bf16_again", 40) for side in ("", "peer_")] + [(f"train_{side}big_again", 50) for side in ("", "peer_")]


def rates_over(way):
    """The ratios of every round that has both figures; the value is their mean."""
    def value(get):
        ratios = [get(f"train_{way}")["tokens_per_second"] / get(f"train_peer_{way}")["tokens_per_second"]]
        try:
            ratios.append(get(f"train_{way}_again")["tokens_per_second"] / get(f"train_peer_{way}_again")["tokens_per_second"])
        except LookupError:
            pass
        return statistics.mean(ratios)
    return value, tuple(f"train_{side}{way}{again}" for again in ("", "_again") for side in ("", "peer_"))


def memory_over(way):
    return (lambda get: get(f"train_{way}")["peak_on_device"] / get(f"train_peer_{way}")["peak_allocated"]), (f"train_{way}", f"train_peer_{way}")


def loss_apart(get):
    ours, theirs = get("train_bf16")["first_loss"], get("train_peer_bf16")["first_loss"]
    return abs(ours - theirs) / theirs


def rows(row):
    """The rows with the floors and aims of training on a GPU. `row` is gpu_table's."""
    found = [row(f"train, {NAMES[way]}: tokens/s of a step over torch's", *BOUNDS[way], rates_over(way), "train_profile") for way in BOUNDS]
    for way, words, floor, aim in (("bf16", "without", 0.6, 0.45), ("checkpointing", "with", 0.7, 0.6)):
        found.append(row(f"train, 1B, bf16, 8 x 1,024, {words} checkpointing: memory of the whole device by nvidia-smi over torch's max_memory_allocated", floor, aim,
                         memory_over(way), less_is_better=True))
    found.append(row("train, 1B, bf16: seconds from the command to the first step, page cache warm", 5, 3,
                     ((lambda get: get("train_bf16")["to_first_step_seconds"]), ("train_bf16",)), less_is_better=True))
    found.append(row("train, 1B, bf16: loss of the first step beside torch's, the difference over it", 2e-3, 5e-4, (loss_apart, ("train_bf16", "train_peer_bf16")),
                     less_is_better=True))
    return found
