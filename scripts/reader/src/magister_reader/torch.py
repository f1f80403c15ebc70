"""PyTorch's side: a Dataset over teacher logits and what makes padded batches of its samples.

Row t of a batch is the teacher's distribution of token t + 1 given the tokens up to t, so it belongs to the student's logits[:, t]: nothing
is shifted. `labels` are Hugging Face's (labels[t] = input_ids[t], -100 where it does not count), which a model shifts itself.
"""
import numpy
import torch

from .error import fail, printable
from .loss import distillation_loss
from .results import Results, open_results
from .sampler import ResumableSampler

IGNORED_LABEL = -100


class TeacherDataset(torch.utils.data.Dataset):
    """Samples of a teacher_logits file (a path, a list of slices, or an open Results) as dicts of tensors; `collate` makes batches of them.
    Samples are cut after `max_length` tokens. Those with fewer than `min_length` tokens are left out: one token has nothing to predict.
    """

    def __init__(self, results, max_length=None, min_length=2, partial=False):
        self.results = results if isinstance(results, Results) else open_results(results, partial)
        if self.results.task != "teacher_logits":
            fail(f"{printable(self.results.path)}: holds {printable(self.results.format)}", "a student learns from teacher_logits",
                 "give the file of a teacher_logits task")
        if max_length is not None and max_length < 1:
            fail(f"max_length is {max_length}", "no token would be left", "give at least 1")
        self.max_length = max_length
        self.sample_index = numpy.flatnonzero(self.results.lengths >= min_length)

    def __len__(self):
        return len(self.sample_index)

    def __getitem__(self, i):
        """-> input_ids i64 [L], top_id i64 [L, k], top_logprob f32 [L, k], tail_mass f32 [L], loss_mask bool [L]."""
        sample = self.results[int(self.sample_index[i])]
        keep = slice(0, self.max_length)
        top_id, target = sample["teacher/top_id"][keep], sample["teacher/target_logprob"][keep]
        # Counted: rows that were scored and whose token is there. Not the last one, nor what score: assistant left empty (-1, NaN).
        counted = ~numpy.isnan(target)
        counted[-1:] = False
        return {"input_ids": torch.from_numpy(sample.ids[keep].astype(numpy.int64)), "top_id": torch.from_numpy(top_id.astype(numpy.int64)),
                "top_logprob": torch.from_numpy(sample["teacher/top_logprob"][keep].astype(numpy.float32)),
                "tail_mass": torch.from_numpy(sample["teacher/tail_mass"][keep].copy()), "loss_mask": torch.from_numpy(counted)}


def collate(samples, pad_id, pad_to_multiple_of=1):
    """Samples of a TeacherDataset -> a batch padded on the right to the longest, L at least 1:
    input_ids, attention_mask, labels i64 [B, L]; top_id i64 and top_logprob f32 [B, L, k]; tail_mass f32 [B, L]; loss_mask bool [B, L].
    Padding, and rows that are empty in the file, hold no entry: top_id -1, top_logprob -inf, tail_mass 0. For a DataLoader:
    functools.partial(collate, pad_id=...).
    """
    B, k = len(samples), samples[0]["top_id"].shape[1]
    longest = max(1, *(len(sample["input_ids"]) for sample in samples))
    L = -(-longest // pad_to_multiple_of) * pad_to_multiple_of
    batch = {"input_ids": torch.full((B, L), pad_id), "attention_mask": torch.zeros((B, L), dtype=torch.int64),
             "labels": torch.full((B, L), IGNORED_LABEL), "top_id": torch.full((B, L, k), -1),
             "top_logprob": torch.full((B, L, k), -torch.inf), "tail_mass": torch.zeros((B, L)), "loss_mask": torch.zeros((B, L), dtype=torch.bool)}
    for b, sample in enumerate(samples):
        length = len(sample["input_ids"])
        for name, values in sample.items():
            batch[name][b, :length] = values
        batch["attention_mask"][b, :length] = 1
        row = torch.nonzero(sample["loss_mask"])[:, 0]
        batch["labels"][b, row + 1] = sample["input_ids"][row + 1]
    batch["top_logprob"].masked_fill_(batch["top_id"] < 0, -torch.inf)
    batch["tail_mass"].masked_fill_(batch["top_id"][..., 0] < 0, 0.0)
    return batch


__all__ = ["ResumableSampler", "TeacherDataset", "collate", "distillation_loss"]
