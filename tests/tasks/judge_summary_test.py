"""Wilson intervals, Cohen's kappa, Scott's pi and the AUROC against scipy, scikit-learn and the definition."""
import json
import os
import pathlib
import random
import subprocess
import unittest

import numpy
import regex
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score, roc_auc_score

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/tasks/judge_summary_probe"


def answers(requests):
    text = "\n".join(map(json.dumps, requests)) + "\n"
    done = subprocess.run([PROBE], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Statistics(unittest.TestCase):
    def test_wilson(self):
        cases = [(hits, n) for n in (1, 2, 7, 40, 1000) for hits in {0, 1, n // 3, n // 2, n}]
        for (hits, n), (low, high) in zip(cases, answers([{"wilson": case} for case in cases]), strict=True):
            want = binomtest(hits, n).proportion_ci(0.95, method="wilson")
            self.assertAlmostEqual(low, want.low, 12, f"{hits} of {n}")
            self.assertAlmostEqual(high, want.high, 12, f"{hits} of {n}")
        self.assertEqual(answers([{"wilson": [0, 0]}]), [[0.0, 1.0]])

    def test_agreement(self):
        source = numpy.random.default_rng(2)
        matrices = [source.integers(0, 40, (k, k)) for k in (2, 3, 5) for _ in range(20)]
        for matrix, (kappa, pi) in zip(matrices, answers([{"confusion": m.tolist()} for m in matrices]), strict=True):
            first, second = zip(*[(i, j) for i, row in enumerate(matrix) for j, count in enumerate(row) for _ in range(count)])
            self.assertAlmostEqual(kappa, cohen_kappa_score(first, second), 12)
            share = matrix / matrix.sum()
            expected = (((share.sum(0) + share.sum(1)) / 2) ** 2).sum()
            self.assertAlmostEqual(pi, (numpy.trace(share) - expected) / (1 - expected), 12)
        self.assertEqual(answers([{"confusion": [[5, 0], [0, 0]]}]), [[None, None]], "chance alone always agrees")

    def test_auroc(self):
        source = random.Random(3)
        cases = [[(round(source.gauss(label, 1), digits), label) for label in source.choices((0, 1), k=60)] for digits in (0, 1, 6) for _ in range(10)]
        for case, ours in zip(cases, answers([{"auroc": case} for case in cases]), strict=True):
            self.assertAlmostEqual(ours, roc_auc_score([label for _, label in case], [score for score, _ in case]), 12)
        self.assertEqual(answers([{"auroc": [[1.0, 1]]}]), [None])

    def test_auroc_of_more_scores_than_memory_holds(self):
        """Sorted runs on disk, merged: the same bits as in memory, whatever the size of a run, with ties across runs."""
        source = random.Random(4)
        case = [(round(source.gauss(label, 1), 2), label) for label in source.choices((0, 1), k=30000)]
        ours = answers([{"auroc": case, "in_memory": size} for size in (1 << 20, 29999, 30000, 4096, 5000, 77)])
        self.assertEqual(len(set(ours)), 1, ours)
        self.assertAlmostEqual(ours[0], roc_auc_score([label for _, label in case], [score for score, _ in case]), 12)


class Replies(unittest.TestCase):
    """`read: word`: the first verdict word that stands alone."""
    # What is no letter, number or mark, in many scripts.
    AROUND = ["—", "‘", "’", "“", "”", "„", "«", "»", "…", "·", "、", "。", "，", "！", "？", "：", "（", "）", "「", "」", "【", "】", "　", "\u00a0", "\u200b", "\u2028",
              "¿", "¡", "؟", "،", "۔", "।", "॥", "፡", "።", "᠃", "‑", "−", "→", "•", "✓", "👍", "👍🏽", "👨\u200d👩", "❤\ufe0f", "€", "°", "™", "≠", "\ufeff", "<", "*", "**", "`", "\\", "\"", "-", "/", "\t", "\n"]
    # What makes another word of it.
    JOINED = ["é", "ß", "ø", "я", "日", "は", "ー", "한", "ا", "ב", "ก", "का", "१", "٣", "²", "½", "Ⅷ", "ª", "ʰ", "_", "‿", "x", "9", "e\u0301"]

    def read(self, replies, words=("yes", "no")):
        return answers([{"reply": reply, "words": words} for reply in replies])

    def test_marks_of_every_script_end_a_word(self):
        replies = [form.format(around, word) for around in self.AROUND for word in ("yes", "Yes", "YES") for form in ("{0}{1}", "{1}{0}", "{0}{1}{0}", "it {0} {1}{0}")]
        self.assertEqual(self.read(replies), [0] * len(replies))
        self.assertEqual(self.read(["Yes—it is.", "‘No’", "答：No。", "«Yes»", "No…", "✔\ufe0fYes", "\u0301Yes", "。\u0301Yes"]), [0, 1, 1, 0, 1, 0, 0, 0])
        self.assertEqual(self.read(["5\ufe0f\u20e3", "（4）", "４ 3"], list("12345")), [4, 3, 2])

    def test_letters_numbers_and_marks_do_not(self):
        replies = [form.format(joined) for joined in self.JOINED for form in ("{0}yes", "yes{0}", "{0}No{0}", "{0}\u0301yes")] + ["Yes\u0301", "no\u0308n", "ye\u0301s", "Ye\u0327s"]
        self.assertEqual(self.read(replies), [-1] * len(replies))
        self.assertEqual(self.read([reply + " no" for reply in replies]), [1] * len(replies))

    def test_random_replies_equal_a_unicode_expression(self):
        source = random.Random(5)
        pieces = self.AROUND + self.JOINED + ["yes", "no", "Yes", "No", "YES", "NO", "nO", " ", " "] * 4
        replies = ["".join(source.choices(pieces, k=source.randint(1, 12))) for _ in range(3000)]
        outside = r"[\p{L}\p{N}\p{Pc}]"
        marks = r"[\p{M}--[\uFE00-\uFE0F\u20E3]]"
        expression = regex.compile(rf"(?V1)(?<!{outside}{marks}*)(?:(yes|Yes|YES)|no|No|NO)(?!{outside}|{marks})")
        for reply, verdict in zip(replies, self.read(replies), strict=True):
            found = expression.search(reply)
            self.assertEqual(verdict, -1 if found is None else 0 if found[1] else 1, repr(reply))


if __name__ == "__main__":
    unittest.main(verbosity=2)
