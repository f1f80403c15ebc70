"""distillation_loss against a slow version in numpy's float64 that loops over rows and tokens, against the KL of whole distributions, and its
gradients against finite differences. The slow version is the definition that other implementations of these losses are to be held to.
"""
import itertools
import math
import unittest

import program_files  # noqa: F401  puts the package on the path
import numpy
import torch

import magister_reader
from magister_reader.torch import distillation_loss

TAILS = ("bucket", "renormalize", "renormalize_teacher", "ignore")


def slow_row(logits, top_id, top_logprob, tail_mass, temperature, tail, divergence, beta):
    """One row. logits [V], top_id and top_logprob [k]; all in float64, sums by math.fsum."""
    logits = [float(x) for x in logits]
    kept = [(int(i), math.exp(float(p))) for i, p in zip(top_id, top_logprob) if i >= 0]
    best = max(logits)
    weights = [math.exp((x - best) / temperature) for x in logits]
    if tail == "bucket":  # masses of k + 1 outcomes, each side's raised to 1/T
        plain = [math.exp(x - best) for x in logits]
        total = math.fsum(plain)
        others = math.fsum(w for i, w in enumerate(plain) if i not in dict(kept))
        smallest = 2.0**-24 if divergence == "reverse" else 0.0
        left = max(float(tail_mass), smallest) if len(kept) < len(logits) else 0.0
        p = [mass**(1 / temperature) for _, mass in kept] + [left**(1 / temperature)]
        q = [(plain[i] / total)**(1 / temperature) for i, _ in kept] + [(others / total)**(1 / temperature)]
    else:
        p = [mass**(1 / temperature) for _, mass in kept]
        q = [weights[i] for i, _ in kept]
    if tail != "ignore":
        p = [mass / math.fsum(p) for mass in p]
    whole = math.fsum(q if tail in ("bucket", "renormalize") else weights)
    q = [mass / whole for mass in q]
    m = [beta * a + (1 - beta) * b for a, b in zip(p, q)]

    def kl(a, b):
        return math.fsum(x * math.log(x / y) for x, y in zip(a, b) if x > 0)
    value = {"forward": lambda: kl(p, q), "reverse": lambda: kl(q, p), "jsd": lambda: beta * kl(p, m) + (1 - beta) * kl(q, m)}[divergence]()
    return value * temperature**2


def slow_loss(logits, batch, temperature=1.0, tail="bucket", divergence="forward", beta=0.5):
    """-> float64 [B, L], 0 where loss_mask is false."""
    out = numpy.zeros(batch["loss_mask"].shape)
    for b, t in itertools.product(*map(range, out.shape)):
        if batch["loss_mask"][b, t]:
            out[b, t] = slow_row(logits[b, t].tolist(), batch["top_id"][b, t].tolist(), batch["top_logprob"][b, t].tolist(),
                                 batch["tail_mass"][b, t].item(), temperature, tail, divergence, beta)
    return out


def made_batch(teacher_logits, k, dtype=torch.float32):
    """What a file and collate hold of these teacher logits [B, L, V]; the last row of each is not counted."""
    logprob = teacher_logits.double().log_softmax(-1)
    top = logprob.topk(k)
    mask = torch.ones(teacher_logits.shape[:2], dtype=torch.bool)
    mask[:, -1] = False
    tail = (1 - top.values.exp().sum(-1)).clamp(0, 1)
    return {"top_id": top.indices, "top_logprob": top.values.to(dtype), "tail_mass": tail.to(dtype), "loss_mask": mask}


def choices(k):
    for tail, divergence, temperature in itertools.product(TAILS, ("forward", "reverse", "jsd"), (1.0, 2.0, 0.7)):
        forward_only, only_at_one = tail in ("renormalize_teacher", "ignore"), tail == "ignore"
        if (divergence == "forward" or not forward_only) and (temperature == 1 or not only_at_one) and (k > 1 or tail != "renormalize"):
            yield {"tail": tail, "divergence": divergence, "temperature": temperature}


class Loss(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.teacher, self.student = 3 * torch.randn(2, 5, 11), 3 * torch.randn(2, 5, 11)

    def test_equals_the_slow_version(self):
        worst = 0.0
        for k in (1, 4, 11):
            batch = made_batch(self.teacher, k)
            batch["top_id"][0, 1, k // 2:] = -1  # fewer entries than k
            if k > 1:
                batch["tail_mass"][0, 1] = 1 - batch["top_logprob"][0, 1, :k // 2].exp().sum()
            else:
                batch["loss_mask"][0, 1] = False
            for choice in choices(k):
                expected = slow_loss(self.student, batch, **choice)
                found = distillation_loss(self.student, batch, reduction="none", **choice)
                self.assertEqual(found.dtype, torch.float32)
                worst = max(worst, float(numpy.abs(found.numpy() - expected).max() / (1 + numpy.abs(expected).max())))
                for reduction, value in (("sum", expected.sum()), ("mean", expected.sum() / batch["loss_mask"].sum().item())):
                    found = distillation_loss(self.student, batch, reduction=reduction, **choice).item()
                    self.assertAlmostEqual(found, value, delta=2e-5 * (1 + abs(value)))
        print(f"worst relative difference from the slow version {worst:.1e}")
        self.assertLess(worst, 1e-5)

    def test_all_entries_stored_gives_the_whole_kl(self):
        """k = V: every way but the mass that is not there equals torch's KL of whole distributions, at every temperature."""
        batch = made_batch(self.teacher, 11, torch.float64)
        for temperature in (1.0, 2.0, 0.5):
            log_p, log_q = ((x.double() / temperature).log_softmax(-1)[batch["loss_mask"]] for x in (self.teacher, self.student))
            log_m = torch.logaddexp(log_p + math.log(0.3), log_q + math.log(0.7))

            def kl(a, b):
                return torch.nn.functional.kl_div(b, a, log_target=True, reduction="batchmean")
            expected = {"forward": kl(log_p, log_q), "reverse": kl(log_q, log_p), "jsd": 0.3 * kl(log_p, log_m) + 0.7 * kl(log_q, log_m)}
            for tail, (divergence, value) in itertools.product(("bucket", "renormalize"), expected.items()):
                found = distillation_loss(self.student.double(), batch, temperature, tail, divergence, beta=0.3)
                self.assertAlmostEqual(found.item(), value.item() * temperature**2, delta=1e-6)

    def test_bucket_is_a_bound_and_exact_where_tails_are_alike(self):
        batch = made_batch(self.teacher, 4, torch.float64)
        log_p, log_q = self.teacher.double().log_softmax(-1), self.student.double().log_softmax(-1)
        whole = (log_p.exp() * (log_p - log_q)).sum(-1) * batch["loss_mask"]
        found = distillation_loss(self.student.double(), batch, reduction="none")
        self.assertTrue((found <= whole + 1e-9).all() and (found >= 0).all())
        alike = log_p.clone()  # other masses, but the tail is divided as the teacher divides it
        alike.scatter_add_(-1, batch["top_id"], torch.randn(2, 5, 4, dtype=torch.float64))
        whole = (log_p.exp() * (log_p - alike.log_softmax(-1))).sum(-1)[batch["loss_mask"]].mean()
        self.assertAlmostEqual(distillation_loss(alike, batch).item(), whole.item(), delta=1e-9)

    def test_the_teacher_itself_has_no_loss_and_no_gradient(self):
        for k, choice in ((k, choice) for k in (1, 4, 11) for choice in choices(k) if choice["tail"] in ("bucket", "renormalize")):
            student = self.teacher.double().requires_grad_()
            loss = distillation_loss(student, made_batch(self.teacher, k, torch.float64), **choice)
            loss.backward()
            self.assertLess(abs(loss.item()) + student.grad.abs().max().item(), 2e-6, choice)

    def test_one_stored_token_of_two(self):
        """q = (.6, .4), p = (.9, .1), one token stored (volcengine/verl issue 7806): the truncated sums are negative, the bucket's are the KL's."""
        student = torch.tensor([[[0.6, 0.4]]], dtype=torch.float64).log()
        batch = {"top_id": torch.zeros(1, 1, 1, dtype=torch.int64), "top_logprob": torch.tensor([[[0.9]]], dtype=torch.float64).log(),
                 "tail_mass": torch.tensor([[0.1]], dtype=torch.float64), "loss_mask": torch.ones(1, 1, dtype=torch.bool)}
        reverse = 0.6 * math.log(0.6 / 0.9) + 0.4 * math.log(0.4 / 0.1)
        self.assertAlmostEqual(reverse, 0.3112, places=4)
        self.assertAlmostEqual(distillation_loss(student, batch, divergence="reverse").item(), reverse, places=12)
        self.assertAlmostEqual(distillation_loss(student, batch).item(), 0.9 * math.log(0.9 / 0.6) + 0.1 * math.log(0.1 / 0.4), places=12)
        with self.assertRaisesRegex(magister_reader.Error, "renormalize' with one stored token"):
            distillation_loss(student, batch, tail="renormalize")

    def test_gradients(self):
        student = torch.randn(1, 2, 5, dtype=torch.float64, requires_grad=True)
        for k in (1, 3, 5):
            batch = made_batch(2 * torch.randn(1, 2, 5), k, torch.float64)
            for choice in choices(k):
                self.assertTrue(torch.autograd.gradcheck(lambda z: distillation_loss(z, batch, **choice), student), choice)
        batch = made_batch(self.teacher, 4, torch.float64)  # of the bucket in closed form: q - p, and in the tail q (1 - tail / (1 - Q))
        student = self.student.double().requires_grad_()
        distillation_loss(student, batch, reduction="sum").backward()
        q, p = student.detach().softmax(-1), torch.zeros(2, 5, 11, dtype=torch.float64).scatter(-1, batch["top_id"], batch["top_logprob"].exp())
        kept = p > 0
        share = batch["tail_mass"] / (q * ~kept).sum(-1)
        expected = torch.where(kept, q - p, q * (1 - share[..., None])) * batch["loss_mask"][..., None]
        self.assertLess((student.grad - expected).abs().max().item(), 1e-9)

    def test_a_certain_student_keeps_its_digits(self):
        """Q rounds to 1 in f32, so log(1 - Q) by subtraction would be infinite or noise; tails down to 1e-30 and tails of 0."""
        student = torch.full((1, 3, 11), -70.0)
        student[..., 0] = torch.tensor([0.0, -50.0, 0.0])
        batch = made_batch(torch.zeros(1, 3, 11).index_fill(-1, torch.tensor(0), 30.0), 2)
        batch["tail_mass"] = torch.tensor([[1e-12, 0.0, 0.0]])
        batch["loss_mask"][:] = True
        for choice in choices(2):
            z = student.clone().requires_grad_()
            found = distillation_loss(z, batch, reduction="none", **choice)
            numpy.testing.assert_allclose(found.detach().numpy(), slow_loss(student, batch, **choice), rtol=2e-5, atol=2e-6, err_msg=str(choice))
            found.sum().backward()
            self.assertTrue(torch.isfinite(z.grad).all(), choice)

    def test_rows_that_do_not_count_reach_nothing(self):
        batch, student = made_batch(self.teacher, 4), self.student.clone()
        expected = distillation_loss(student, batch)
        student[:, -1] = torch.nan
        batch["top_logprob"][:, -1], batch["tail_mass"][:, -1], batch["top_id"][:, -1] = torch.nan, torch.nan, 10**6
        for choice in choices(4):
            z = student.clone().requires_grad_()
            loss = distillation_loss(z, batch, **choice)
            loss.backward()
            self.assertTrue(torch.isfinite(loss) and torch.isfinite(z.grad).all() and (z.grad[:, -1] == 0).all())
        self.assertEqual(distillation_loss(student, batch).item(), expected.item())
        batch["loss_mask"][:] = False
        z = student.clone().requires_grad_()
        loss = distillation_loss(z, batch)
        loss.backward()
        self.assertEqual((loss.item(), z.grad.abs().sum().item()), (0.0, 0.0))

    def test_half_precision(self):
        """A bf16 student is computed in f32; f16 log-probabilities move the loss by what their rounding is worth and not below 0."""
        batch = made_batch(self.teacher, 4)
        found = distillation_loss(self.student.bfloat16(), batch)
        self.assertEqual(found.dtype, torch.float32)
        self.assertAlmostEqual(found.item(), distillation_loss(self.student.bfloat16().float(), batch).item(), places=6)
        batch["top_logprob"] = batch["top_logprob"].half().float()
        exact = distillation_loss(self.student, made_batch(self.teacher, 4)).item()
        self.assertAlmostEqual(distillation_loss(self.student, batch).item(), exact, delta=0.01)
        self.assertGreaterEqual(distillation_loss(self.teacher, batch, reduction="none").min().item(), -1e-6)
        self.assertLess(distillation_loss(self.teacher, batch).item(), 1e-5)

    def test_refusals(self):
        batch = made_batch(self.teacher, 4)
        for arguments, message in (({"tail": "drop"}, "tail is 'drop'"), ({"divergence": "kl"}, "divergence is 'kl'"),
                                   ({"reduction": "max"}, "reduction is"), ({"temperature": 0.0}, "temperature is 0.0"),
                                   ({"divergence": "jsd", "beta": 1.0}, "beta is 1.0"),
                                   ({"tail": "ignore", "temperature": 2.0}, "normaliser is not known"),
                                   ({"tail": "ignore", "divergence": "jsd"}, "same outcomes")):
            with self.assertRaisesRegex(magister_reader.Error, message):
                distillation_loss(self.student, batch, **arguments)
        with self.assertRaisesRegex(magister_reader.Error, "rows must be those of the same tokens"):
            distillation_loss(self.student[:, :-1], batch)
        with self.assertRaisesRegex(magister_reader.Error, "teacher's token 10 is beyond the student's 7 logits"):
            batch["top_id"][0, 0, 0] = 10
            distillation_loss(self.student[..., :7], batch)
        wider = torch.cat([self.student, torch.full((2, 5, 3), -torch.inf)], -1)  # a padded vocabulary changes nothing
        self.assertEqual(distillation_loss(wider, batch).item(), distillation_loss(self.student, batch).item())


if __name__ == "__main__":
    unittest.main(verbosity=2)
