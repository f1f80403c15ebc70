"""The share of time in which a kernel ran in a whole teacher run: from the run's own report if it has a line for it,
else sampled by nvidia-smi (which gives the share of its last sample period) between the first and the last busy
sample.
"""
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_clocks import Sampler

WORDS = "a teacher tells its student what else could have followed, and how likely each of these tokens was before the next one"
RECORDS, LENGTH = 1600, 2000  # about 1.5 million tokens: a 1B model takes ten seconds or more

EXPERIMENT = """name: busy
output: {{directory: {folder}}}
model: {{path: {model}, dtype: bf16}}
layout: {{devices: {devices}}}
tasks:
  - task: teacher_logits
    dataset: {{path: {folder}/data.jsonl}}
    max_length: 2048
    top_k: 64
    unit_tokens: 16384
    logprob_dtype: f16
"""


def write_data(path, records=RECORDS, length=LENGTH, **fields):
    """Writes different texts of about `length` letters: equal beginnings would be computed once and falsify the
    rate."""
    words = WORDS.split()
    with open(path, "w", encoding="utf-8") as file:
        for record in range(records):
            text = " ".join([str(record), *random.Random(record).choices(words, k=length // 4)])
            file.write(json.dumps({"text": text, **fields}) + "\n")


def share_in(text):
    """-> the share that a line of the report names ("GPU busy 97.1 %"), or None."""
    found = re.search(r"\bbusy\b[^\n%]*?(\d+(?:\.\d+)?) ?%", text)
    return float(found.group(1)) / 100 if found else None


def share_of(samples):
    """samples: per cent, in order -> the mean between the first and the last busy one without these two half-filled
    periods."""
    busy = [i for i, sample in enumerate(samples) if sample > 0]
    inner = samples[busy[0] + 1:busy[-1]] if busy else []
    return sum(inner) / len(inner) / 100 if len(inner) >= 10 else None


def tokenizer_in(root):
    """A small tokenizer: that of the bundle's tiny model, or one made as the tests make it."""
    if not (root / "tiny/model/tokenizer.json").exists():
        sys.path.insert(0, str(root / "tests/end_to_end"))
        import tiny_world
        root = pathlib.Path(tempfile.mkdtemp())
        tiny_world.make_model(root / "tiny/model")
    return root / "tiny/model/tokenizer.json"


def model_in(folder, shape, root, limit, device="cuda"):
    """Makes a model of random weights in `folder` if there is none. -> None, or the reason why none was made."""
    if (folder / "tokenizer.json").exists():
        return None
    peer = pathlib.Path(__file__).with_name("hf_gpu.py")
    save = [sys.executable, peer, "save", shape, folder, "--root", root, "--device", device]
    saved = subprocess.run(list(map(str, save)), capture_output=True, text=True, check=False, timeout=limit)
    return None if saved.returncode == 0 else f"no model was made: {(saved.stderr.strip().splitlines() or ['?'])[-1][:300]}"


def measure(program, model, limit, devices="auto", records=RECORDS, length=LENGTH):
    """-> numbers, or a text with the reason why there are none."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_data(folder / "data.jsonl", records, length)
        (folder / "busy.yaml").write_text(EXPERIMENT.format(folder=folder, model=model, devices=devices))
        with Sampler(["utilization.gpu"]) as sampler:
            run = subprocess.run([str(program), "run", str(folder / "busy.yaml")], capture_output=True, text=True, check=False,
                                 timeout=limit)
    said = run.stdout + run.stderr
    if run.returncode != 0:
        return f"the run ended with {run.returncode}: {(said.strip().splitlines() or ['?'])[-1][:300]}"
    tokens = re.search(r"tokens in [\d.]+ s: ([\d.]+) tokens/s", said)
    numbers = {"tokens_per_second": float(tokens.group(1))} if tokens else {}
    if (share := share_in(said)) is not None:
        return {**numbers, "share": share, "from": "the run's own report line"}
    samples = [int(values["utilization.gpu"]) for _, values in sampler.samples]
    if (share := share_of(samples)) is None:
        return f"too few samples of nvidia-smi ({len(samples)}), and the run's report names no share"
    return {**numbers, "share": share, "from": f"{len(samples)} samples of nvidia-smi"}
