"""Whole jobs on a GPU against transformers + torch, for gpu_report.py --part jobs: the same model folder and data,
in turn, one process each.

"whole" is the time from the start of the command to its end (for the peer: imports, loading, computing and writing).
"computing" leaves out the time before the first token: for magister the phases "load" and "measure the memory" and
everything before them. The weights are in the page cache, since they were written just before.
"""
import dataclasses
import json
import random
import time

import gpu_busy
from gpu_peer import Peer
from gpu_watch import Run, Samples


@dataclasses.dataclass(frozen=True)
class JobSizes:
    teacher_texts: int = 1000
    length: int = 1024
    big_texts: int = 192  # of 2,048 tokens, by 8B
    big_length: int = 2048
    unit: int = 16384
    prompts: int = 512
    prompt: int = 128
    new: int = 256
    at_once: int = 256  # texts of the peer's batch
    judged: int = 1500
    words: int = 230


TINY = JobSizes(teacher_texts=3, length=8, big_texts=2, big_length=12, unit=16, prompts=4, prompt=4, new=2, at_once=2, judged=4, words=3)
ORDER = (("job_teacher_1b", 40), ("job_peer_teacher_1b", 50), ("job_judge_1b", 40), ("job_peer_judge_1b", 45), ("job_generate_8b", 70),
         ("job_peer_generate_8b", 70), ("job_teacher_8b", 70))


class JobsRunner:
    def __init__(self, program, root, work, shapes, tiny):
        self.program, self.root, self.shapes, self.tiny = program, root, shapes, tiny
        self.work, self.sizes, self.peer = work / "jobs", TINY if tiny else JobSizes(), None

    def token_ids(self, name, texts, length, vocabulary):
        path, draw = self.work / f"{name}.jsonl", random.Random(name)
        if not path.exists():
            with open(path, "w", encoding="utf-8") as file:
                for _ in range(texts):
                    file.write(json.dumps({"ids": draw.choices(range(1, vocabulary), k=length)}) + "\n")
        return path

    def prepare(self, size):
        """-> (model folder, size of its vocabulary); writes the folder on first use."""
        if self.peer is None:
            self.work.mkdir(parents=True, exist_ok=True)
            first = Peer()  # reads the libraries from the disk; the imports of the second peer count
            first.ready()
            first.close()
            self.peer = Peer()
            self.peer.ready()
        import gpu_weights  # imports numpy, which a report does not need
        folder = self.work / f"model-{size}"
        gpu_weights.write(folder, self.shapes[f"{{{size}}}"], self.root)
        return folder, json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]

    def job(self, what, size):
        """-> (magister's task, the peer's request, data)."""
        sizes = self.sizes
        folder, vocabulary = self.prepare(size.split("-")[0])
        if what == "teacher":
            texts, length = (sizes.teacher_texts, sizes.length) if size == "1b" else (sizes.big_texts, sizes.big_length)
            data = self.token_ids(f"{what}-{size}", texts, length, vocabulary)
            task = {"task": "teacher_logits", "dataset": {"path": str(data), "tokens": "ids"}, "max_length": length, "top_k": 64,
                    "unit_tokens": sizes.unit, "logprob_dtype": "f16"}
            request = {"top_k": 64}
        elif what == "generate":
            data = self.token_ids(what, sizes.prompts, sizes.prompt, vocabulary)
            task = {"task": "generate", "dataset": {"path": str(data), "tokens": "ids"}, "max_new_tokens": sizes.new, "temperature": 0, "ignore_eos": True}
            request = {"new": sizes.new, "at_once": sizes.at_once}
        else:
            data = self.work / "judge.jsonl"
            gpu_busy.write_data(data, sizes.judged, 4 * sizes.words, answer="perhaps")
            task = {"task": "judge", "dataset": {"path": str(data)}, "mode": "simpleqa", "prompt": {"user": "{{ text }} {{ answer }}"}}
            request = {}
        return task, {**request, "model": str(folder), "data": str(data), "device": "cpu" if self.tiny else "cuda"}, folder

    def ours(self, what, size, limit):
        task, _, folder = self.job(what, size)
        model = {"path": str(folder), "dtype": "fp8" if "-fp8" in size else "bf16"}
        if size.endswith("-kv"):
            model["kv_cache"] = "fp8"
        if what == "generate" and not self.tiny:  # the host has no counterpart of cuBLASLt's products
            model["decoding"] = "throughput"
        with Samples() as samples:
            run = Run(self.program, self.work, {"name": f"{what}-{size}", "seed": 5, "model": model, "layout": {"devices": "cpu" if self.tiny else "auto"},
                                                "tasks": [{"name": "job", **task}]})
            in_time = run.wait(limit)
        if not in_time or run.process.returncode != 0 or not run.events("phases"):
            return f"{'after ' + format(limit, '.0f') + ' s: ' if not in_time else ''}{run.why()}"
        return self.numbers(what, run, samples)

    def numbers(self, what, run, samples):
        event = run.events("phases")[-1]
        before = sum(phase["max"] for phase in event["phases"] if phase["phase"] in ("load", "measure the memory"))
        computing = event["wall_seconds"] - before
        tokens = event["written_tokens"] if what == "generate" else event["tokens"]
        found = {"tokens_per_second": tokens / computing, "whole_tokens_per_second": tokens / run.seconds, "tokens": tokens, "whole_seconds": run.seconds,
                 "computing_seconds": computing, "load_seconds": before, "first_unit_seconds": run.first_unit, "parts": run.phases()}
        if what == "judge":
            found["records_per_second"], found["whole_records_per_second"] = self.sizes.judged / computing, self.sizes.judged / run.seconds
        if (peak := samples.peak()) is not None:
            found["peak_on_device"] = peak
        if (busy := samples.busy(run.began, run.began + run.seconds)) is not None:
            found["busy"] = round(busy, 3)
        return found

    def peers(self, what, size, limit):
        _, request, _ = self.job(what, size)
        found = self.peer.ask(what, limit, **request)
        if isinstance(found, str):
            return found
        whole = self.peer.import_seconds + found["load_seconds"] + found["computing_seconds"]
        return {**found, "import_seconds": self.peer.import_seconds, "whole_seconds": whole, "whole_tokens_per_second": found["tokens"] / whole}

    def measure(self, name, limit):
        *side, what, size = name.split("_")[1:]
        begin = time.time()
        self.job(what, size)  # prepares data and model outside of the limit
        limit -= time.time() - begin
        return self.peers(what, size, limit) if side else self.ours(what, size, limit)

    def close(self):
        if self.peer is not None:
            self.peer.close()


def measurements():
    return list(ORDER)


def over_peer(name, ours, theirs=None):
    return (lambda get: get(f"job_{name}")[ours] / get(f"job_peer_{name}")[theirs or ours]), (f"job_{name}", f"job_peer_{name}")


def figure(name, key):
    return (lambda get: get(name)[key]), (name,)


def over_prefill(get):
    return get("job_teacher_8b")["tokens_per_second"] / get("job_prefill_8b")["tokens_per_second"]


def rows(row):
    """The rows with the floors and aims of whole jobs on a GPU. `row` is gpu_table's."""
    words = {"teacher_1b": "teacher, 1B, top 64, 1.02 M tokens", "generate_8b": "generate, 8B, 512 texts of 256 new tokens", "judge_1b": "judge, 1B, 1,500 distinct prompts"}
    computing, whole = "tokens_per_second", "whole_tokens_per_second"
    teacher, generate, judge = words.values()
    return [
        row(f"{teacher}: tokens/s computing", 230000, 300000, figure("job_teacher_1b", computing), "job_teacher_1b"),
        row(f"{teacher}: computing over transformers", None, None, over_peer("teacher_1b", computing), "job_teacher_1b"),
        row(f"{teacher}: whole job over transformers", None, None, over_peer("teacher_1b", whole), "job_teacher_1b"),
        row(f"{judge}: computing over transformers, records/s", None, None, over_peer("judge_1b", "records_per_second"), "job_judge_1b"),
        row(f"{judge}: whole job over transformers", None, None, over_peer("judge_1b", whole), "job_judge_1b"),
        row(f"{generate}: whole job over transformers", 2.2, 3.0, over_peer("generate_8b", whole), "job_generate_8b"),
        row(f"{generate}: computing over transformers", None, None, over_peer("generate_8b", computing), "job_generate_8b"),
        row(f"{generate}: computing over transformers after its first batch", None, None,
            over_peer("generate_8b", computing, "after_first_tokens_per_second"), "job_generate_8b"),
        row(f"{generate}: written tokens/s computing", None, None, figure("job_generate_8b", computing), "job_generate_8b"),
        row("teacher, 8B, page cache warm: seconds from the command to the first unit", 6, 4, figure("job_teacher_8b", "first_unit_seconds"), "job_teacher_8b",
            less_is_better=True),
        row("teacher, 8B, as a job: tokens/s computing over plain prefill", 0.93, 0.97, (over_prefill, ("job_teacher_8b", "job_prefill_8b")), "job_teacher_8b"),
    ]
