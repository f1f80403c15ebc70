"""The numbers of one results file, by kind of task. A kind that is not known here gets the histogram of its default plot."""
import math

import numpy

from . import DATA, ReportError, json_of, printable
from .histogram import histogram, share_of
from .results_file import task_of

PARSES = ("ok", "low_mass", "unparsed", "truncated", "tie")
FINISH_REASONS = ("stop", "length")  # vLLM's words: an end token or a stop text; max_new_tokens


def numbers_of(results):
    """-> dict for the page and for --json; what a kind adds stands under its own keys."""
    lengths = [(piece.size, int(piece.sum())) for piece in results.lengths()]
    numbers = {"task": task_of(results.path) or "results", "kind": results.kind, "run": results.run_name(), "model": results.model(),
               "software_version": results.version, "complete": results.complete, "samples": results.num_samples,
               "tokens": results.num_tokens, "committed_samples": sum(samples for samples, _ in lengths),
               "committed_tokens": sum(tokens for _, tokens in lengths)}
    if results.has("/generate/slot_logprob"):  # its texts are still to be packed, whatever the file's own mark says
        numbers.update(complete=False, running=True)
        numbers.update(running_texts(results))
    else:
        numbers.update({"teacher_logits": teacher, "generate": texts, "judge": judge}.get(results.kind, other)(results))
    return numbers


def teacher(results):
    numbers = {"lengths": histogram(results.lengths, whole_numbers=True)}
    for name in ("entropy", "tail_mass", "target_logprob"):
        numbers[name] = histogram(lambda path=f"/teacher/{name}": results.rows(path))
    mean = numbers["target_logprob"]["mean"]
    return {**numbers, "perplexity": None if mean is None or mean < -700 else math.exp(-mean)}  # beyond that a damaged file overflows


def counts_of(results, path, names, pieces_of=None):
    """Of a column of small codes -> {name: count}."""
    counts = numpy.zeros(len(names), numpy.int64)
    for piece in pieces_of or results.samples(path):
        if piece.size and (piece.min() < 0 or piece.max() >= len(names)):
            raise results.damaged(f"{path} holds a code that is not 0 to {len(names) - 1}")
        counts += numpy.bincount(piece.reshape(-1), minlength=len(names))
    return dict(zip(names, counts.tolist()))


def texts(results):
    return {"lengths": histogram(results.lengths, whole_numbers=True),
            "finish_reasons": counts_of(results, "/generate/finish_reason", FINISH_REASONS),
            "logprob": histogram(lambda: results.rows("/generate/logprob"))}


def running_texts(results):
    """Texts that are still in slots of max_new_tokens: only used slots count."""
    def logprobs():
        for values, used in results.samples("/generate/slot_logprob", "/generate/length"):
            if used.size == 0 or values.size % used.size:
                raise results.damaged("/generate/slot_logprob does not divide into the slots of each text")
            values = values.reshape(used.size, -1)
            yield values[numpy.arange(values.shape[1]) < used.reshape(-1, 1)]
    return {"lengths": histogram(lambda: results.samples("/generate/length"), whole_numbers=True),
            "finish_reasons": counts_of(results, "/generate/finish_reason", FINISH_REASONS), "logprob": histogram(logprobs)}


def judge(results):
    names = (results.attribute("verdicts") or "").split(",")
    def sound(path):
        """Rows whose parse is ok: others are in no share."""
        for values, parse in results.samples(path, "/judge/parse"):
            yield values[parse == 0]
    parses = counts_of(results, "/judge/parse", PARSES)
    counts = counts_of(results, "/judge/verdict", names, sound("/judge/verdict"))
    numbers = {"parse": parses, "verdicts": {name: share_of(count, parses["ok"]) for name, count in counts.items()},
               "verdicts_from": "columns", "mass": histogram(lambda: results.samples("/judge/mass"), limits=(0.0, 1.0)),
               "log_odds": histogram(lambda: results.samples("/judge/log_odds"))}
    edges = numbers["log_odds"]["edges"]
    numbers["log_odds_ok"] = histogram(lambda: sound("/judge/log_odds"), limits=(edges[0], edges[-1]) if edges else None)
    if results.complete and (summary := summary_of(results)) is not None:
        # A summary of an earlier version does not name ties.
        if dict.fromkeys(PARSES, 0) | summary["parse"] != parses or {name: one["count"] for name, one in summary["verdicts"].items()} != counts:
            raise ReportError(DATA, f"{printable(summary_path(results))}: its counts are not those of {printable(results.path)} (one of the "
                                    "two is of another run); make it again with magister summarize")
        numbers.update(verdicts=summary["verdicts"], verdicts_from="summary", labels=summary.get("labels"),
                       combined=summary.get("combined"), auroc_of_likelihood=summary.get("auroc_of_likelihood"))
    return numbers


def summary_path(results):
    return results.path.removesuffix(".h5") + ".summary.json"


def is_number_or_none(value):
    return value is None or isinstance(value, (int, float))


def is_share(value):
    return (isinstance(value, dict) and isinstance(value.get("count"), int) and isinstance(value.get("of"), int)
            and is_number_or_none(value.get("share")) and isinstance(value.get("wilson95"), list)
            and len(value["wilson95"]) == 2 and all(isinstance(border, (int, float)) for border in value["wilson95"]))


def is_confusion(value, size):
    return (isinstance(value, list) and len(value) == size and
            all(isinstance(row, list) and len(row) == size and all(isinstance(count, int) for count in row) for row in value))


def summary_of(results):
    """<task>.summary.json; None: there is none. What the page draws of it is checked, the rest is left alone."""
    try:
        with open(summary_path(results), encoding="utf-8") as file:
            summary = json_of(file.read())
        size, labels = len(summary["verdicts"]), summary.get("labels")
        sound = (isinstance(summary["parse"], dict) and all(is_share(one) for one in summary["verdicts"].values())
                 and is_number_or_none(summary.get("auroc_of_likelihood")) and isinstance(summary.get("combined", {}), dict)
                 and (labels is None or is_share(labels["agrees"]) and is_number_or_none(labels.get("cohens_kappa"))
                      and is_confusion(labels["confusion_label_by_verdict"], size)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ReportError(DATA, f"{printable(summary_path(results))}: is not a judge's summary (its shares cannot be drawn); make it again "
                                "with magister summarize")
    return summary


def other(results):
    """The column that a viewer draws first (NXdata group /plot) is what a task without a page of its own shows."""
    if results.attribute("default") != "plot" or not results.has("/plot"):
        return {}
    with results.reading("the column of its default plot"):
        signal = results.file["plot"].attrs.get("signal")
        name = signal.decode("utf-8", "replace") if isinstance(signal, bytes) else str(signal)
        extent = results.file["plot"][name].attrs.get("extent")
    column = results.rows if extent in (b"rows", "rows") else results.samples
    return {"plotted": {"column": name, **histogram(lambda: column(f"/plot/{name}"))}}
