"""TeacherDataset and collate against plain reads of files that the program wrote: alignment of rows, labels and masks, cuts, workers, and
the way from a file to a step of training.
"""
import functools
import json
import unittest

import program_files
import h5py
import numpy
import torch

import magister_reader
from magister_reader.torch import ResumableSampler, TeacherDataset, collate, distillation_loss


def expected_batch(path, numbers, max_length, pad_id):
    """Token by token from h5py, what a batch must hold."""
    with h5py.File(path) as file:
        offset = file["samples/offset"][:].astype(int)
        columns = {name: file[name][:] for name in ("tokens/id", "teacher/top_id", "teacher/top_logprob", "teacher/tail_mass",
                                                    "teacher/target_logprob")}
    lengths = [min(int(offset[i + 1] - offset[i]), max_length) for i in numbers]
    shape, k = (len(numbers), max(1, *lengths)), columns["teacher/top_id"].shape[1]
    batch = {"input_ids": numpy.full(shape, pad_id), "attention_mask": numpy.zeros(shape, int), "labels": numpy.full(shape, -100),
             "top_id": numpy.full((*shape, k), -1), "top_logprob": numpy.full((*shape, k), -numpy.inf), "tail_mass": numpy.zeros(shape),
             "loss_mask": numpy.zeros(shape, bool)}
    for b, (i, length) in enumerate(zip(numbers, lengths)):
        for t in range(length):
            row = offset[i] + t
            batch["input_ids"][b, t], batch["attention_mask"][b, t] = columns["tokens/id"][row], 1
            if columns["teacher/top_id"][row, 0] < 0:
                continue
            batch["top_id"][b, t], batch["top_logprob"][b, t] = columns["teacher/top_id"][row], columns["teacher/top_logprob"][row]
            batch["tail_mass"][b, t] = columns["teacher/tail_mass"][row]
            if t + 1 < length and not numpy.isnan(columns["teacher/target_logprob"][row]):
                batch["loss_mask"][b, t], batch["labels"][b, t + 1] = True, columns["tokens/id"][row + 1]
    return batch


class Torch(unittest.TestCase):
    def test_batches(self):
        for path, max_length in ((program_files.teacher(), 1000), (program_files.teacher(), 7), (program_files.teacher("logprob_dtype=f16"), 30),
                                 (program_files.teacher("top_k=1"), 30), (program_files.assistant(), 1000)):
            with self.subTest(path=path, max_length=max_length):
                dataset = TeacherDataset(path, max_length=max_length)
                numbers = list(range(0, len(dataset), 3))
                found = collate([dataset[i] for i in numbers], pad_id=77)
                for name, want in expected_batch(path, dataset.sample_index[numbers].tolist(), max_length, 77).items():
                    numpy.testing.assert_array_equal(found[name].numpy(), want.astype(found[name].numpy().dtype), name)
                self.assertEqual({name: values.dtype for name, values in found.items() if values.is_floating_point()},
                                 {"top_logprob": torch.float32, "tail_mass": torch.float32})
                self.assertTrue(found["loss_mask"].any())
        self.assertEqual(collate([dataset[0]], pad_id=0, pad_to_multiple_of=64)["input_ids"].shape[1] % 64, 0)

    def test_only_the_assistant_is_learned(self):
        dataset = TeacherDataset(program_files.assistant())
        batch = collate([dataset[i] for i in range(len(dataset))], pad_id=0)
        learned = (batch["labels"] != -100).sum().item()
        with h5py.File(program_files.assistant()) as file:
            offset, assistant = file["samples/offset"][:].astype(int), file["tokens/assistant"][:]
        expected = sum(int(assistant[begin + 1:end].sum()) for begin, end in zip(offset, offset[1:]))
        self.assertEqual((learned, batch["loss_mask"].sum().item()), (expected, expected))

    def test_short_samples_and_other_tasks(self):
        with magister_reader.open(program_files.teacher()) as results:
            short = numpy.flatnonzero(results.lengths < 2)
            self.assertTrue(len(short))
            self.assertEqual(len(TeacherDataset(results)), len(results) - len(short))
            everything = TeacherDataset(results, min_length=0)
            batch = collate([everything[int(i)] for i in short], pad_id=5)
            self.assertFalse(batch["loss_mask"].any())
            student = torch.zeros(*batch["input_ids"].shape, 300, requires_grad=True)
            distillation_loss(student, batch).backward()
        self.assertEqual(len(TeacherDataset(program_files.teacher("dataset.limit=0"))), 0)
        with self.assertRaisesRegex(magister_reader.Error, "a student learns from teacher_logits"):
            TeacherDataset(program_files.chain()[0])

    def test_the_teacher_is_its_own_best_student(self):
        """Rows stand where the model's logits do: with transformers' logits of the same weights the loss is 0, shifted by one it is not, and
        `labels` give transformers' own cross-entropy over the targets of the file."""
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained(program_files.world().model, dtype=torch.float32).eval()
        dataset = TeacherDataset(program_files.teacher(), max_length=40)
        batch = collate([dataset[i] for i in range(12)], pad_id=0)
        with torch.no_grad():
            output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"])
        exact, shifted = distillation_loss(output.logits, batch).item(), distillation_loss(output.logits.roll(1, 1), batch).item()
        target = numpy.concatenate([dataset.results[int(i)].target_logprob[:39] for i in dataset.sample_index[:12]])
        print(f"the teacher as student {exact:.1e}, shifted by one {shifted:.1f}; cross-entropy {output.loss.item():.4f}")
        self.assertLess(abs(exact), 1e-5)
        self.assertGreater(shifted, 1.0)
        self.assertAlmostEqual(output.loss.item(), -numpy.nanmean(target), delta=1e-3)

    def test_every_vocabulary_entry_stored(self):
        vocabulary = json.loads((program_files.world().model / "config.json").read_text())["vocab_size"]
        dataset = TeacherDataset(program_files.teacher(f"top_k={vocabulary}"), max_length=20)
        batch = collate([dataset[i] for i in range(6)], pad_id=0)
        logits = torch.randn(*batch["input_ids"].shape, vocabulary)
        whole = torch.full_like(logits, -torch.inf).scatter(-1, batch["top_id"].clamp(min=0), batch["top_logprob"])[batch["loss_mask"]]
        expected = torch.nn.functional.kl_div(logits.log_softmax(-1)[batch["loss_mask"]], whole, log_target=True, reduction="batchmean")
        for tail in ("bucket", "renormalize", "renormalize_teacher", "ignore"):
            self.assertAlmostEqual(distillation_loss(logits, batch, tail=tail).item(), expected.item(), delta=1e-4)

    def test_workers_and_resuming(self):
        dataset = TeacherDataset(program_files.teacher(), max_length=30)
        orders = []
        for workers, method in ((0, None), (2, "fork"), (1, "spawn")):
            loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=ResumableSampler(len(dataset), seed=9, epoch=1), num_workers=workers,
                                                 collate_fn=functools.partial(collate, pad_id=0), multiprocessing_context=method)
            orders.append(list(loader))
        for order in orders[1:]:
            for ours, theirs in zip(order, orders[0], strict=True):
                self.assertTrue(all(torch.equal(ours[name], theirs[name]) for name in ours))
        resumed = ResumableSampler(len(dataset), seed=9, epoch=1, position=8)
        loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=resumed, collate_fn=functools.partial(collate, pad_id=0))
        for ours, theirs in zip(loader, orders[0][2:], strict=True):
            self.assertTrue(torch.equal(ours["input_ids"], theirs["input_ids"]))

    def test_a_student_learns(self):
        torch.manual_seed(0)
        dataset = TeacherDataset(program_files.teacher(), max_length=30)
        batch = collate([dataset[i] for i in range(8)], pad_id=0)
        student = torch.nn.Sequential(torch.nn.Embedding(320, 32), torch.nn.Linear(32, 320))
        optimizer = torch.optim.AdamW(student.parameters(), lr=0.02)
        losses = []
        for _ in range(30):
            losses.append(distillation_loss(student(batch["input_ids"]), batch))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        print(f"loss of a bigram student {losses[0].item():.2f} -> {losses[-1].item():.2f}")
        self.assertLess(losses[-1].item(), 0.6 * losses[0].item())


if __name__ == "__main__":
    unittest.main(verbosity=2)
