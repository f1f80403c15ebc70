"""distillation_loss: KL divergences between a teacher of which the k most probable tokens are stored, and a student with all its logits.

Words: of a row, p_i are the stored probabilities, P their sum, tail = 1 - P; q is the student's softmax, Q its mass on the stored tokens.
The student's tail, log(1 - Q), is a log-sum-exp over its other logits: taken as log1p(-Q) it would have no correct digit once Q rounds to 1.
"""
import math

import torch

from .error import fail

# The teacher's tail was stored as 1 - P in f32 of f32 log-probabilities: below this it is not known from 0. A reverse KL divides by it.
SMALLEST_TAIL = 2.0 ** -24


def distillation_loss(student_logits, batch, temperature=1.0, tail="bucket", divergence="forward", beta=0.5, reduction="mean"):
    """Scalar, or [B, L] with reduction="none" (0 where loss_mask is false); "mean" is over the rows of loss_mask, "sum" for those who divide
    by the rows of several batches. In nats, times temperature^2, in float32 (float64 if the logits are). Gradients reach student_logits alone.

    student_logits [B, L, V]: row t is the student's distribution of token t + 1. V may be larger than the teacher's vocabulary, not smaller
    than its ids. batch: top_id [B, L, k] (-1: no entry), top_logprob [B, L, k], tail_mass [B, L], loss_mask [B, L] of `collate`.

    tail - what is done about the mass that is not stored:
      "bucket"               KL over k + 1 outcomes, all other tokens being one: sum p log(p/q) + tail log(tail / (1 - Q)). At temperature 1 never
                             more than the KL over the whole vocabulary, and equal to it when the student divides the tail as the teacher does.
      "renormalize"          KL(p/P || q/Q): over the stored tokens alone; says nothing of how much mass they have together.
      "renormalize_teacher"  KL(p/P || q): as many trainers do; it pushes the student's tail to 0. Forward only.
      "ignore"               sum p log(p/q), which is no divergence: it may be negative. Forward only, temperature 1 only.
    The masses of "bucket" are normalised to sum to 1; as stored they do within rounding (1e-6 with f32 log-probabilities, 1e-3 with f16).

    temperature - softmax(logits / temperature) on both sides. Exact for "renormalize" and "renormalize_teacher", since p_i^(1/T) needs no tail once
      it is normalised over the stored tokens; and for "bucket" when k = V. Otherwise "bucket" with T != 1 is not the KL of the tempered
      distributions, whose tail cannot be known from its mass: it is the KL of the k + 1 masses, each side's raised to 1/T and normalised.

    divergence - "forward" KL(teacher || student); "reverse" KL(student || teacher), with the teacher's tail at least 2^-24; "jsd":
      beta KL(p || m) + (1 - beta) KL(q || m) with m = beta p + (1 - beta) q.
    """
    _check_arguments(student_logits, batch, temperature, tail, divergence, beta, reduction)
    mask = batch["loss_mask"]
    # Only rows that count go on: NaN in the others, from padding for example, reaches neither the loss nor a gradient.
    logits_RV = student_logits[mask].to(torch.promote_types(student_logits.dtype, torch.float32))
    id_Rk, tail_R = batch["top_id"][mask].long(), batch["tail_mass"][mask].to(logits_RV.dtype)
    log_p_Rk = batch["top_logprob"][mask].to(logits_RV.dtype).masked_fill(id_Rk < 0, -torch.inf)
    if id_Rk.numel() and int(id_Rk.max()) >= logits_RV.shape[1]:
        fail(f"the teacher's token {int(id_Rk.max())} is beyond the student's {logits_RV.shape[1]} logits", "they have not the same tokenizer",
             "distil into a student with the teacher's tokenizer")
    if divergence == "reverse":
        tail_R = tail_R.clamp(min=SMALLEST_TAIL)
    if logits_RV.shape[1] == id_Rk.shape[1]:  # the student has no other token, so what the tail holds is rounding: no bucket
        tail_R = tail_R.masked_fill((id_Rk >= 0).all(-1), 0.0)
    log_p, log_q = _outcomes(logits_RV, id_Rk, log_p_Rk, tail_R, temperature, tail)
    if divergence == "forward":
        loss_R = _divergence(log_p, log_q)
    elif divergence == "reverse":
        loss_R = _divergence(log_q, log_p)
    else:
        # A finite number whose exponential is 0 in the place of log 0: logaddexp of two infinities has no gradient.
        log_m = torch.logaddexp(log_p + math.log(beta), log_q.clamp(min=-1e4) + math.log1p(-beta))
        loss_R = beta * _divergence(log_p, log_m) + (1 - beta) * _divergence(log_q, log_m)
    loss_R = loss_R * temperature**2
    if reduction == "none":
        return torch.zeros(mask.shape, dtype=loss_R.dtype, device=loss_R.device).masked_scatter(mask, loss_R)
    return loss_R.sum() if reduction == "sum" else loss_R.sum() / max(1, loss_R.numel())


def _check_arguments(student_logits, batch, temperature, tail, divergence, beta, reduction):
    for name, value, known in (("tail", tail, ("bucket", "renormalize", "renormalize_teacher", "ignore")),
                               ("divergence", divergence, ("forward", "reverse", "jsd")), ("reduction", reduction, ("mean", "sum", "none"))):
        if value not in known:
            fail(f"{name} is {value!r}", "there is no such loss", f"choose one of {', '.join(known)}")
    if student_logits.shape[:2] != batch["top_id"].shape[:2] or student_logits.ndim != 3:
        fail(f"student_logits are {list(student_logits.shape)} and top_id {list(batch['top_id'].shape)}", "rows must be those of the same tokens",
             "give logits [B, L, V] of the batch's input_ids, none cut off")
    if not temperature > 0:
        fail(f"temperature is {temperature}", "logits are divided by it", "give a number above 0")
    if divergence == "jsd" and not 0 < beta < 1:
        fail(f"beta is {beta}", "at 0 and 1 the divergence is 0 whatever the student is", "give a number between them, or choose forward or reverse")
    if tail in ("renormalize_teacher", "ignore") and divergence != "forward":
        fail(f"tail {tail!r} with divergence {divergence!r}", "the two sides are not distributions over the same outcomes",
             "choose bucket or renormalize")
    if tail == "ignore" and temperature != 1:
        fail(f"tail 'ignore' with temperature {temperature}", "the tempered teacher's normaliser is not known without its tail",
             "choose bucket or renormalize, or temperature 1")
    if tail == "renormalize" and batch["top_id"].shape[2] == 1:
        fail("tail 'renormalize' with one stored token", "its share is 1 on both sides, so the loss is 0 whatever the student is", "choose bucket")


def _outcomes(logits_RV, id_Rk, log_p_Rk, tail_R, temperature, tail):
    """-> log-probabilities of teacher and student over the outcomes that are compared, [R, k] or [R, k + 1] (the last: the tail)."""
    absent_Rk = id_Rk < 0
    id_Rk = torch.where(absent_Rk, id_Rk[:, :1].clamp(min=0), id_Rk)  # any stored token of the row: it must not hide one that is not
    kept_Rk = logits_RV.gather(1, id_Rk).masked_fill(absent_Rk, -torch.inf)
    if tail == "renormalize":
        return (log_p_Rk / temperature).log_softmax(-1), (kept_Rk / temperature).log_softmax(-1)
    others_RV = logits_RV.scatter(1, id_Rk, -torch.inf)
    if tail == "renormalize_teacher":
        others_R1 = (others_RV / temperature).logsumexp(-1, keepdim=True)
        log_q = torch.cat([kept_Rk / temperature, others_R1], 1).log_softmax(-1)[:, :-1]
        return (log_p_Rk / temperature).log_softmax(-1), log_q
    student = torch.cat([kept_Rk, others_RV.logsumexp(-1, keepdim=True)], 1)
    if tail == "ignore":
        return log_p_Rk, student.log_softmax(-1)[:, :-1]
    teacher = torch.cat([log_p_Rk, tail_R.clamp(min=0).log()[:, None]], 1)
    return (teacher / temperature).log_softmax(-1), (student / temperature).log_softmax(-1)


def _divergence(log_a, log_b):
    """sum a log(a/b) over the last axis -> [R]; 0 log 0 is 0, with gradient 0: both sides of `where` must be finite for that."""
    none = torch.isneginf(log_a)
    log_a, log_b = log_a.masked_fill(none, 0.0), log_b.masked_fill(none, 0.0)
    return (log_a.exp() * (log_a - log_b)).masked_fill(none, 0.0).sum(-1)
