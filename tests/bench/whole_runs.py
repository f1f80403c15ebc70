"""Figures of whole runs, from their run.jsonl: two ranks over one, the cost of writing, start-up, and resuming a
million samples. Ranks are pinned: one rank to the first core, two ranks to the first two.
"""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Copies of the quickstart's texts: 22,000 tokens, a minute or two on one core.
COPIES = 2


MODEL = ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def children_of(process):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def shared_memory_of(process):
    """-> bytes of a process, of what it shares with others its part."""
    try:
        lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.cores = sorted(os.sched_getaffinity(0))
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, name, ranks, *settings, stops=False):
        """-> (seconds of the whole command, the last "phases" event, {phase: slowest rank's seconds})."""
        cores = ",".join(str(core) for core in self.cores[:ranks])
        command = ["taskset", "-c", cores, "mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), str(self.program), "run",
                   "configs/quickstart.yaml", f"name={name}", f"output.directory={self.folder}", *settings]
        begin = time.perf_counter()
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=self.environment)
        seconds = time.perf_counter() - begin
        if result.returncode != (75 if stops else 0):
            raise RuntimeError(f"{command}: {result.returncode}\n{result.stderr[-2000:]}")
        events = [json.loads(line) for line in (self.folder / name / "run.jsonl").read_text().splitlines()]
        event = [event for event in events if event["event"] == "phases"][-1]
        return seconds, event, {phase["phase"]: phase["max"] for phase in event["phases"]}

    def most_memory(self, name, ranks, *settings):
        """-> the most bytes that the ranks have together; what they share counts once (Pss of smaps_rollup, fifty times a second)."""
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(ranks), str(self.program), "run", "configs/quickstart.yaml",
                   f"name={name}", f"output.directory={self.folder}", *settings]
        most = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=self.environment) as run:
            while run.poll() is None:
                most = max(most, sum(shared_memory_of(child) for child in children_of(run.pid)))
                time.sleep(0.02)
        if run.returncode != 0:
            raise RuntimeError(f"{command}: {run.returncode}")
        return most

    def weight_bytes(self):
        command = [str(self.program), "bench", "prefill", str(ROOT / MODEL), "--dtype", "f32", "--tokens", "16", "--repeats", "1", "--json"]
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment).stdout
        return json.loads(output.splitlines()[-1])["weight_bytes"]

    def many_texts(self):
        path = self.folder / "texts.jsonl"
        text = (ROOT / "configs/data/quickstart.jsonl").read_text(encoding="utf-8")
        path.write_text(text * COPIES, encoding="utf-8")
        return f"tasks.0.dataset.path={path}"

    def million_samples(self):
        path = self.folder / "million.jsonl"
        path.write_text('{"id": "x", "ids": [1]}\n' * 1_000_000)
        return [f"tasks.0.dataset.path={path}", "tasks.0.dataset.tokens=ids", "tasks.0.top_k=1"]


    def judged_pairs(self):
        """Every question with its own reference as answer, and with that of another question: 24 records with
        labels, four times."""
        records = [json.loads(line) for line in (ROOT / "configs/data/questions.jsonl").read_text(encoding="utf-8").splitlines()]
        path = self.folder / "judged.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for shift in (1, 3, 5, 7):
                for index, record in enumerate(records):
                    for answer, label in ((record["references"][0], "yes"), (records[(index + shift) % len(records)]["references"][0], "no")):
                        line = {"question": record["question"], "references": record["references"], "answer": answer, "label": label}
                        file.write(json.dumps(line) + "\n")
        return path

    def judge(self, name, data, **keys):
        """-> (records per second of computing, share of agreeing labels)."""
        task = {"task": "judge", "dataset": {"path": str(data)}, "mode": "reference", "label": "label", "low_mass": 0, **keys}
        experiment = self.folder / f"{name}.yaml"
        experiment.write_text(json.dumps({"name": name, "output": {"directory": str(self.folder)}, "layout": {"devices": "cpu"}, "tasks": [task],
                                          "model": {"path": str(ROOT / MODEL), "dtype": "f32"}}))
        command = ["taskset", "-c", str(self.cores[0]), str(self.program), "run", str(experiment)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=self.environment)
        events = [json.loads(line) for line in (self.folder / name / "run.jsonl").read_text().splitlines()]
        phases = {phase["phase"]: phase["max"] for phase in [event for event in events if event["event"] == "phases"][-1]["phases"]}
        summary = json.loads((self.folder / name / "verdicts.summary.json").read_text())
        share = summary.get("labels", {}).get("agrees", {}).get("share") or 0.0
        return summary["rows"] / phases["compute"], share


def judge_ratios(runs, rounds):
    data = runs.judged_pairs()
    over = {"word": [], "score": []}
    shares = {}
    for index in range(rounds):
        rate, shares["prefill"] = runs.judge(f"prefill-{index}", data)
        for read in over:
            other, shares[read] = runs.judge(f"{read}-{index}", data, method="decode", read=read, max_new_tokens=48, max_prompt_length=1024)
            over[read].append(rate / other)
    words = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    return [(f"judge by one prefill over a written reply, records/s (labels met: {words})", 3.0, 5.0, spread(over["word"])),
            ("judge by one prefill over reasoning of at most 48 tokens, records/s", 3.0, 5.0, spread(over["score"]))]


def spread(values):
    return statistics.median(values), min(values), max(values)


RANKS = "two ranks on two cores over one rank on one: tokens/s"
WRITING = "wall time of a run over its computing alone (reading, writing, committing included)"
START = "seconds of a whole command for one short record (MPI, model, self-test, one unit)"
MEMORY = "two ranks on one host: their memory together over the weights' bytes"
JUDGE = "judge by one prefill over decoding: records/s"
RESUME = "seconds to resume a run of 1,000,000 samples (model and data hashed anew)"


def rank_lines(runs, rounds):
    texts = runs.many_texts()
    two_over_one, writing = [], []
    for index in range(rounds):
        rates = {}
        for ranks in (1, 2):
            _, event, phases = runs.run(f"ranks-{ranks}-{index}", ranks, texts)
            working = event["wall_seconds"] - phases["load"]
            rates[ranks] = event["tokens"] / working
            if ranks == 1:
                writing.append(working / sum(seconds for phase, seconds in phases.items() if phase.startswith("compute")))
        two_over_one.append(rates[2] / rates[1])
    return [(RANKS, 1.85, 1.95, spread(two_over_one)), (WRITING, 1.05, 1.02, spread(writing))]


def start_lines(runs, rounds):
    return [(START, 1.0, 0.6, spread([runs.run(f"start-{index}", 1, "tasks.0.dataset.limit=1")[0] for index in range(rounds)]))]


def memory_lines(runs, rounds):
    weights = runs.weight_bytes()
    most = [runs.most_memory(f"memory-{index}", 2, "tasks.0.dataset.limit=20") / weights for index in range(rounds)]
    return [(MEMORY, 1.5, 1.3, spread(most))]


def resume_lines(runs, rounds):
    # The quickstart names its text field; a copy without it reads ids.
    million = runs.million_samples()
    ids = runs.folder / "ids.yaml"
    ids.write_text((ROOT / "configs/quickstart.yaml").read_text().replace("      text: text ", "      # text: "))
    planned = resume_seconds(runs, ids, million, (20, 60, 180))
    if planned is None:
        raise RuntimeError("no run of at most 180 s had planned its samples")
    seconds = [resume_seconds(runs, ids, million, (2, 5, 20, 60)) for _ in range(rounds)]
    if None in seconds:
        raise RuntimeError("no resumed run of at most 60 s came to its first unit")
    return [(RESUME, 2.0, None, spread(seconds))]


PARTS = [([RANKS, WRITING], rank_lines), ([START], start_lines), ([MEMORY], memory_lines), ([JUDGE], judge_ratios), ([RESUME], resume_lines)]


def measure(program, rounds):
    """Yields lines of (name, floor, aim, (median, least, most)) part by part; instead of the figures a text, if the part failed."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(program, folder)
        for names, lines in PARTS:
            try:
                yield lines(runs, rounds)
            except Exception as error:  # whatever a part dies of, the others are measured
                yield [(name, None, None, " ".join(str(error).split())[:200] or type(error).__name__) for name in names]


def resume_seconds(runs, experiment, settings, walls):
    """Runs until the wall time and gives the seconds before the first unit. A slow machine needs more than the first of `walls` to come
    to its first unit, so the next one is tried; None: all were too short."""
    for wall in walls:
        command = ["taskset", "-c", str(runs.cores[0]), str(runs.program), "run", str(experiment), "name=million",
                   f"output.directory={runs.folder}", *settings, "--max-wall", f"00:{wall // 60:02}:{wall % 60:02}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=runs.environment)
        if result.returncode != 75:
            raise RuntimeError(f"{command}: {result.returncode}\n{result.stderr[-2000:]}")
        events = [json.loads(line) for line in (runs.folder / "million/run.jsonl").read_text().splitlines()]
        phases = [event for event in events if event["event"] == "phases"]
        found = [phase["max"] for phase in phases[-1]["phases"] if phase["phase"] == "prepare"] if phases else []
        if found:
            return found[0]
    return None
