"""Whole jobs of transformers + torch on a GPU, for gpu_peer.py: bf16, sdpa, greedy, sorted by length, without a
padding mask (shorter texts of a batch are padded after their end, where no token before can see it), results in one
HDF5 file at the end. "computing" leaves out imports and loading.
"""
import json
import pathlib
import tempfile
import time

import h5py
import torch
from tokenizers import Tokenizer
# LlamaForCausalLM is imported here so that children have it.
from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401

UNIT = 16384  # tokens at once, as in magister's unit
CHUNK = 1024  # rows of the head at once, in the faster of its two ways


class Job:
    """with Job(request) as job: holds the model, the texts' ids, and the clock."""

    def __init__(self, request):
        self.request, self.device = request, request["device"]
        begin = time.perf_counter()
        model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.bfloat16, attn_implementation="sdpa")
        self.model = model.to(self.device).eval()
        self.wait()
        self.load_seconds, self.begin = time.perf_counter() - begin, time.perf_counter()

    def wait(self):
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def ids(self):
        with open(self.request["data"], encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        if "ids" in records[0]:
            return [record["ids"] for record in records]
        tokenizer = Tokenizer.from_file(self.request["model"] + "/tokenizer.json")
        return [encoded.ids for encoded in tokenizer.encode_batch([f"{record['text']} {record['answer']}" for record in records])]

    def batches(self, ids):
        """-> [(indices of the texts, [texts, longest] on the device, lengths)]; each batch has texts of similar
        length."""
        order = sorted(range(len(ids)), key=lambda text: -len(ids[text]))
        while order:
            some = max(1, min(len(order), UNIT // len(ids[order[0]])))
            chosen, order = order[:some], order[some:]
            batch = torch.zeros(some, len(ids[chosen[0]]), dtype=torch.long)
            for place, text in enumerate(chosen):
                batch[place, :len(ids[text])] = torch.tensor(ids[text])
            yield chosen, batch.to(self.device), torch.tensor([len(ids[text]) for text in chosen], device=self.device)

    def write(self, **columns):
        with tempfile.TemporaryDirectory() as folder, h5py.File(pathlib.Path(folder) / "results.h5", "w") as file:
            for name, values in columns.items():
                file.create_dataset(name, data=torch.cat(values).numpy())

    def said(self, **numbers):
        computing = time.perf_counter() - self.begin
        return {"load_seconds": self.load_seconds, "computing_seconds": computing, **{key: value / computing for key, value in numbers.items()}}


@torch.inference_mode()
def teacher(request):
    job = Job(request)
    values, indices, tokens = [], [], 0
    ids = job.ids()
    for _, batch, _ in job.batches(ids):
        hidden = job.model.model(batch, use_cache=False).last_hidden_state.flatten(0, 1)
        kept = [torch.log_softmax(job.model.lm_head(rows).float(), -1).topk(min(request["top_k"], job.model.config.vocab_size)) for rows in hidden.split(CHUNK)]
        values.append(torch.cat([part.values for part in kept]).half().cpu())
        indices.append(torch.cat([part.indices for part in kept]).int().cpu())
    job.write(value=values, index=indices)
    tokens = sum(map(len, ids))
    return {**job.said(tokens_per_second=tokens), "tokens": tokens}


@torch.inference_mode()
def generate(request):
    """Prompts of one length, in batches of `at_once`. after_first: without the first batch, in which kernels are
    chosen and memory is allocated."""
    job, new = Job(request), request["new"]
    prompts, written, moments = torch.tensor(job.ids(), device=job.device), [], [time.perf_counter()]
    for batch in prompts.split(request["at_once"]):
        texts = job.model.generate(batch, attention_mask=torch.ones_like(batch), do_sample=False, max_new_tokens=new, min_new_tokens=new, pad_token_id=0)
        written.append(texts[:, batch.shape[1]:].cpu())
        moments.append(time.perf_counter())
    job.write(id=written)
    found = {**job.said(tokens_per_second=len(prompts) * new), "tokens": len(prompts) * new}
    if len(moments) > 2:
        found["after_first_tokens_per_second"] = (len(prompts) - request["at_once"]) * new / (moments[-1] - moments[1])
    return found


@torch.inference_mode()
def judge(request):
    """Log-probabilities of a few verdicts after every prompt."""
    job = Job(request)
    verdicts, odds = torch.tensor([5, 6, 7], device=job.device), []
    ids = job.ids()
    for _, batch, lengths in job.batches(ids):
        hidden = job.model.model(batch, use_cache=False).last_hidden_state[torch.arange(len(batch), device=job.device), lengths - 1]
        odds.append(torch.log_softmax(job.model.lm_head(hidden).float(), -1)[:, verdicts].cpu())
    job.write(log_odds=odds)
    return {**job.said(tokens_per_second=sum(map(len, ids)), records_per_second=len(ids)), "tokens": sum(map(len, ids)), "records": len(ids)}


HANDLERS = {"teacher": teacher, "generate": generate, "judge": judge}
