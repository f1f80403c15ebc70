"""Steps of a training by torch.autograd and torch.optim.AdamW on a transformers model: what the program's curves and weights must be."""
import numpy
import torch
import transformers


def adamw_steps(folder, steps, loss_of, lr=2e-3, weight_decay=0.1, warmup=2, dtype=torch.float32):
    """loss_of(model, step) -> the loss of each of `steps`, and the tokens that it is the mean of; cosine schedule, clipping to norm 1.
    -> the model, and rows of loss, lr, norm before clipping, tokens."""
    return steps_of(transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").to(dtype), steps, loss_of, lr, weight_decay, warmup)


def steps_of(model, steps, loss_of, lr=2e-3, weight_decay=0.1, warmup=2):
    """The same for a model that is there; it is changed."""
    decays = set(transformers.Trainer.get_decay_parameter_names(None, model))
    groups = [{"params": [p for n, p in model.named_parameters() if (n in decays) == decay], "weight_decay": weight_decay * decay} for decay in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    scheduler = transformers.get_scheduler("cosine", optimizer, warmup, len(steps))
    rows = []
    for step in steps:
        optimizer.zero_grad()
        loss, tokens = loss_of(model, step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rows.append([loss.item(), scheduler.get_last_lr()[0], norm.item(), tokens])
        optimizer.step()
        scheduler.step()
    return model, numpy.array(rows)
