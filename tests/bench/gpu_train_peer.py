"""A training step of transformers + torch on a GPU, for gpu_peer.py: f32 master weights, autocast to bf16 unless f32
is requested, sdpa, AdamW (fused=True), the gradient clipped to 1, the same batches that magister's run reads. A step
ends when its loss is known on the host.
"""
import json
import resource
import statistics
import time

import torch
# LlamaForCausalLM is imported here so that children have it.
from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401

KEPT = 64  # entries of a teacher's row


class Lora(torch.nn.Module):
    """A linear layer with two small trained f32 matrices added, as PEFT computes it."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        make = dict(dtype=torch.float32, device=base.weight.device)
        # kaiming_uniform(sqrt 5)
        self.a = torch.nn.Parameter((2 * torch.rand(rank, base.in_features, **make) - 1) * base.in_features ** -0.5)
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank, **make))

    def forward(self, x):
        return self.base(x) + self.scale * torch.nn.functional.linear(torch.nn.functional.linear(x, self.a), self.b)


def model_for(request):
    """The model to train. LoRA's frozen weights are bf16, which is faster than casting them at every use."""
    lora = request.get("lora_rank", 0)
    dtype = torch.bfloat16 if lora and request["precision"] == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=dtype, attn_implementation="sdpa").to(request["device"]).train()
    model.config.use_cache = False
    if lora:
        model.requires_grad_(False)
        for layer in model.model.layers:
            for name in ("q_proj", "v_proj"):
                setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name), lora, 2 * lora))
    if request.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def teacher_rows(texts, vocabulary):
    """A teacher's rows in memory: entries and their log-probabilities, with nine tenths of the mass."""
    kept = min(KEPT, vocabulary // 2)
    draw = torch.Generator(device=texts.device).manual_seed(1)
    begin = torch.randint(vocabulary, (*texts.shape, 1), generator=draw, device=texts.device)
    ids = (begin + torch.arange(kept, device=texts.device) * 97) % vocabulary
    logprobs = torch.log_softmax(torch.randn(*texts.shape, kept, generator=draw, device=texts.device), -1) - 0.105
    return ids, logprobs


def distillation(logits, ids, logprobs):
    """Forward KL over the kept entries and one more outcome for the rest."""
    logits = logits.float()
    learnt = logits.gather(-1, ids) - logits.logsumexp(-1, keepdim=True)
    rest, learnt_rest = (torch.log1p(-values.exp().sum(-1).clamp(max=1 - 1e-6)) for values in (logprobs, learnt))
    return ((logprobs.exp() * (logprobs - learnt)).sum(-1) + rest.exp() * (rest - learnt_rest)).mean()


class Training:
    def __init__(self, request, micro):
        self.request, self.micro = request, micro
        self.model = model_for(request)
        with open(request["texts"], encoding="utf-8") as file:
            self.texts = torch.tensor([json.loads(line)["ids"] for line in file], device=request["device"])
        self.rows = teacher_rows(self.texts, self.model.config.vocab_size) if request.get("distill") else None
        learnt = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer, self.learnt = torch.optim.AdamW(learnt, lr=1e-5, weight_decay=0.0, fused=True), learnt
        self.autocast = torch.autocast(torch.device(request["device"]).type, torch.bfloat16, enabled=request["precision"] == "bf16")

    def loss_of(self, chosen):
        batch = self.texts[chosen]
        with self.autocast:
            if self.rows is None:
                return self.model(input_ids=batch, labels=batch).loss
            logits = self.model(input_ids=batch).logits[:, :-1]
        return distillation(logits, *(part[chosen][:, :-1] for part in self.rows))

    def step(self, number):
        batch = self.request["batch"]
        chosen = [(number * batch + i) % len(self.texts) for i in range(batch)]
        parts, total = batch // self.micro, 0.0
        for part in range(parts):
            loss = self.loss_of(chosen[part * self.micro:(part + 1) * self.micro]) / parts
            loss.backward()
            total = total + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.learnt, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(total), float(norm)


def train(request):
    """-> tokens per second of a step, loss and norm of the first step, torch's memory. Halves the micro-batch if
    memory does not suffice."""
    micro, on_gpu = request["micro"], request["device"].startswith("cuda")
    while True:
        try:
            return {**steps_of(request, micro), "micro_batch": micro}
        except torch.OutOfMemoryError:
            if micro == 1:
                raise
        micro //= 2
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def steps_of(request, micro):
    begin = time.perf_counter()
    training = Training(request, micro)
    loaded = time.perf_counter()
    seconds, curve = [], []
    for number in range(request["warm_up"] + request["steps"]):
        before = time.perf_counter()
        curve.append(training.step(number))
        seconds.append(time.perf_counter() - before)
        if time.perf_counter() - begin > request["seconds"] and number > request["warm_up"]:
            break
    length = training.texts.shape[1]
    counted = seconds[request["warm_up"]:]
    answer = {"tokens_per_second": request["batch"] * (length - 1) / statistics.median(counted), "steps": len(counted),
              "first_step_seconds": seconds[0], "load_seconds": loaded - begin, "first_loss": curve[0][0], "first_norm": curve[0][1]}
    if request["device"].startswith("cuda"):
        return {**answer, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}
    return {**answer, "peak_allocated": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}  # in a dry run


HANDLERS = {"train": train}
