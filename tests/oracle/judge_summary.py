"""The whole <name>.summary.json of a judge task, computed again from the columns of its results file with numpy, scipy and
scikit-learn.

differences(found, wanted) names every key that is missing, unknown or of another value: a key that the program adds must be added here.
"""
import math

import h5py
import numpy
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, f1_score, roc_auc_score


def share(hits):
    """hits: booleans -> what the summary says of a proportion."""
    hits = numpy.asarray(hits, bool)
    count, of = int(hits.sum()), len(hits)
    if of == 0:
        return {"count": 0, "of": 0, "share": None, "wilson95": [0.0, 1.0]}
    interval = binomtest(count, of).proportion_ci(0.95, method="wilson")
    return {"count": count, "of": of, "share": count / of, "wilson95": [float(interval.low), float(interval.high)]}


def number(value):
    return float(value) if value is not None and math.isfinite(value) else None


def agreement(label, verdict, names):
    """label, verdict: of the rows that have both."""
    classes = range(len(names))
    kappa = cohen_kappa_score(label, verdict, labels=list(classes)) if len(set(label) | set(verdict)) > 1 else None
    # Scott's pi is kappa where both raters have the pooled margins: sklearn has no function of that name.
    pooled = numpy.bincount(numpy.concatenate([label, verdict]), minlength=len(names)) / (2 * len(label))
    chance, observed = float((pooled ** 2).sum()), float(numpy.mean(label == verdict))
    return {"agrees": share(label == verdict), "confusion_label_by_verdict": confusion_matrix(label, verdict, labels=list(classes)).tolist(),
            "cohens_kappa": number(kappa), "scotts_pi": number((observed - chance) / (1 - chance)) if chance < 1 else None}


def pairs(verdict, log_odds, parse):
    """Rows come as (as given, exchanged); a vote for the first position is class 0 in either."""
    first, second = slice(0, None, 2), slice(1, None, 2)
    both = (parse[first] == 0) & (parse[second] == 0)
    probability = 1 / (1 + numpy.exp(-log_odds.astype(float)))
    preference = ((probability[first] + 1 - probability[second]) / 2)[both]
    decided = ~numpy.isclose(probability[first], probability[second], rtol=0, atol=1e-9)[both]  # a tie is a win of neither
    return {"consistent": share((verdict[first] != verdict[second])[both]), "first_position": share(verdict[parse == 0] == 0),
            "prefers_a": share((preference > 0.5)[decided]), "undecided": int((~decided).sum()), "mean_preference_a": number(preference.mean()) if len(preference) else None}


def three_way(verdict):
    """SimpleQA's: correct, incorrect, not attempted. F1 as sklearn counts it: an answer not attempted is not a positive at all."""
    attempted = verdict != 2
    truth = numpy.concatenate([numpy.ones(len(verdict)), numpy.zeros((verdict == 1).sum())])
    said = numpy.concatenate([verdict == 0, numpy.ones((verdict == 1).sum())])
    return {"correct_given_attempted": share(verdict[attempted] == 0), "f1": number(f1_score(truth, said)) if len(verdict) else None}


def rates(verdict, expected, parse, label, likelihood, names, mode, log_odds=None):
    ok = parse == 0
    wanted = {"rows": len(verdict), "parse": {name: int((parse == code).sum()) for code, name in enumerate(("ok", "low_mass", "unparsed", "truncated", "tie"))},
              "verdicts": {name: share(verdict[ok] == code) for code, name in enumerate(names)}}
    if mode == "rubric" and expected is not None:
        wanted["mean_expected_score"] = number(expected[ok].astype(float).mean()) if ok.any() else None
    if mode == "simpleqa":
        wanted["three_way"] = three_way(verdict[ok])
    if mode == "pairwise" and log_odds is not None:
        wanted["pairs"] = pairs(verdict, log_odds, parse)
    if label is not None and ok.any():
        wanted["labels"] = agreement(label[ok], verdict[ok], names)
    if likelihood is not None and ok.any():
        truth = verdict[ok] == 0
        wanted["auroc_of_likelihood"] = float(roc_auc_score(truth, likelihood[ok])) if 0 < truth.sum() < len(truth) else None
    return wanted


def mean_logprobs(answers):
    with h5py.File(answers) as file:
        offset, logprob = file["samples/offset"][:].astype(int), file["generate/logprob"][:].astype(float)
    return numpy.array([logprob[a:b].mean() if b > a else 0.0 for a, b in zip(offset, offset[1:])])


def summary(results, mode, names, labels=None, answers=None, voices=1, compat=False):
    """results, answers: paths. labels: a verdict's number for each record, or None. voices: prompts a text, times 2 of a pair's orders;
    more than one (or a panel: combined=True by a /judge/combined that differs) gives "combined". compat: read: substring."""
    with h5py.File(results) as file:
        column = {name: file[f"judge/{name}"][:] for name in ("verdict", "log_odds", "expected", "parse", "order", "combined")}
        record = file["samples/source_index"][:].astype(int)
    label = None
    if labels is not None:
        label = numpy.asarray(labels)[record]
        label = numpy.where(column["order"] == 1, 1 - label, label) if mode == "pairwise" else label
    likelihood = mean_logprobs(answers)[numpy.arange(len(record)) // voices] if answers and mode != "pairwise" else None
    wanted = rates(column["verdict"], column["expected"], column["parse"], label, likelihood, names, mode, column["log_odds"])
    if voices > 1:
        combined, parse = column["combined"][::voices], numpy.where(column["combined"][::voices] < 0, 2, 0)
        first = None if likelihood is None else likelihood[::voices]
        wanted["combined"] = rates(combined, None, parse, None if label is None else label[::voices], first, names, mode)
        wanted["combined"]["undecided"] = wanted["combined"].pop("parse")["unparsed"]
    if compat:
        wanted[f"compat_share_of_{names[0]}"] = float((column["verdict"] == 0).mean())
    return wanted


def differences(found, wanted, path="summary"):
    """-> a line for each key that is unknown, missing or of another value."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        lines = [f"{path}.{key}: unknown, add it to tests/oracle/judge_summary.py" for key in found.keys() - wanted.keys()]
        lines += [f"{path}.{key}: missing" for key in wanted.keys() - found.keys()]
        return sorted(lines) + [line for key in wanted.keys() & found.keys() for line in differences(found[key], wanted[key], f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [line for i, (a, b) in enumerate(zip(found, wanted)) for line in differences(a, b, f"{path}[{i}]")]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (found, wanted))
    if numbers and math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-9) or found == wanted:
        return []
    return [f"{path}: {found}, not {wanted}"]
