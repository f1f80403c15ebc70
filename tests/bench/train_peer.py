"""transformers + torch as a peer in training: the same weights, texts and batches on the pinned core.

As a command: `prepare GGUF FOLDER TEXTS` writes FOLDER/model (f32, Hugging Face) and FOLDER/texts.jsonl; `run FOLDER
STEPS [teacher]` trains, with some steps before the measured ones, and prints one JSON object. The teacher has the same
weights and runs in the same process without gradient; the loss is then the whole forward KL.
"""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

BATCH, LENGTH = 4, 256
# Steps that are not measured, since memory is allocated for the first time.
WARM_UP = 3
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Peer:
    @staticmethod
    def run(folder, core, steps, teacher=False):
        """-> (tokens a second, largest resident set in bytes)."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = ["taskset", "-c", str(core), sys.executable, __file__, "run", str(folder), str(steps), *(["teacher"] if teacher else [])]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()[-1])
        return found["tokens_per_second"], found["peak"]


def prepare(gguf, folder, texts):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    gguf = pathlib.Path(gguf)
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    # save_pretrained would treat a model that was read from GGUF as quantised.
    tokenizer.save_pretrained(folder / "model")
    config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    (folder / "model/config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}, default=str))
    save_file({name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}, folder / "model/model.safetensors",
              {"format": "pt"})
    words = "".join(json.loads(line)["text"] + "\n" for line in (ROOT / "configs/data/quickstart.jsonl").read_text(encoding="utf-8").splitlines())
    ids = tokenizer(words)["input_ids"]
    with open(folder / "texts.jsonl", "w", encoding="utf-8") as file:
        for index in range(texts):
            begin = index * LENGTH % (len(ids) - LENGTH)
            file.write(json.dumps({"ids": ids[begin:begin + LENGTH]}) + "\n")


def run(folder, steps, with_teacher):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    load = lambda: AutoModelForCausalLM.from_pretrained(str(folder / "model"), dtype=torch.float32, attn_implementation="sdpa")
    model, teacher = load().train(), load().eval() if with_teacher else None
    texts = torch.tensor([json.loads(line)["ids"] for line in (folder / "texts.jsonl").read_text().splitlines()])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
    seconds = []
    for step in range(WARM_UP + steps):
        begin = time.perf_counter()
        batch = texts[[(step * BATCH + i) % len(texts) for i in range(BATCH)]]
        if teacher is None:
            loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        else:
            with torch.no_grad():
                target = torch.log_softmax(teacher(input_ids=batch, use_cache=False).logits, -1)
            learnt = torch.log_softmax(model(input_ids=batch, use_cache=False).logits, -1)
            loss = torch.nn.functional.kl_div(learnt.flatten(0, 1), target.flatten(0, 1), log_target=True, reduction="batchmean")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    # The last token of each text has no label.
    print(json.dumps({"tokens_per_second": BATCH * (LENGTH - 1) / statistics.median(seconds[WARM_UP:]),
                      "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))
    else:
        run(pathlib.Path(sys.argv[2]), int(sys.argv[3]), "teacher" in sys.argv[4:])
