"""Draws the numbers on one page: a header, a row of plots for each results file, a row about the run. PNG and PDF are the page itself;
HTML has it as a picture, with all numbers as text below it. matplotlib is asked for here and nowhere else.
"""
import base64
import html
import io
import logging
import math

from . import CONFIGURATION, ReportError, printable
from .machines import QUANTITIES

# The version of scripts/requirements/test.in.
INSTALL = "python3 -m pip install matplotlib==3.11.2"
WIDTH, HEADER_HEIGHT, ROW_HEIGHT = 13.0, 1.1, 2.75  # inches
BLUE, ORANGE, GREY = "#3b6ea5", "#d08a2e", "#9aa3ab"


def matplotlib_parts():
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a font that lacks a sign of a key is no news
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.figure
    except ImportError as error:
        raise ReportError(CONFIGURATION, f"matplotlib cannot be imported: {error} (it draws the page); install it with `{INSTALL}`, or ask "
                                         "for the numbers alone with --json") from error
    return matplotlib


def short(value):
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def duration(seconds):
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} h"


# --- one plot each; axes: where to draw -------------------------------------------------------------------------------------------

def empty(axes, title, why):
    axes.set_title(title)
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_histogram(axes, title, one, label, of, colour=BLUE):
    if not one["count"]:
        return empty(axes, title, "no value")
    axes.stairs(one["counts"], one["edges"], fill=True, color=colour)
    axes.axvline(one["mean"], color=ORANGE, linewidth=1)
    axes.set_title(f"{title}\nmean {short(one['mean'])}, {short(one['min'])} to {short(one['max'])}")
    axes.set_xlabel(label)
    axes.set_ylabel(of)


def draw_shares(axes, title, shares):
    """shares: {name: share as in the summary}; whiskers are the Wilson intervals."""
    for place, (name, one) in enumerate(shares.items()):
        low, high = one["wilson95"]
        axes.barh(place, one["share"] or 0.0, color=BLUE)
        axes.plot([low, high], [place, place], color=ORANGE, linewidth=2, marker="|")
        axes.text(1.02, place, f"{one['count']}/{one['of']}", va="center", transform=axes.get_yaxis_transform(), fontsize=7)
    axes.set_yticks(range(len(shares)), [printable(name, 16) for name in shares])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share, 95 % Wilson interval")
    axes.set_title(title)


def draw_counts(axes, title, counts, label):
    axes.bar(range(len(counts)), list(counts.values()), color=BLUE)
    axes.set_xticks(range(len(counts)), list(counts))
    for place, count in enumerate(counts.values()):
        axes.text(place, count, short(count), ha="center", va="bottom", fontsize=7)
    axes.margins(y=0.15)
    axes.set_ylabel(label)
    axes.set_title(title)


def draw_labels(axes, labels, names):
    matrix = labels["confusion_label_by_verdict"]
    axes.imshow(matrix, cmap="Blues", aspect="auto")
    darkest = max(max(row) for row in matrix) or 1
    for i, row in enumerate(matrix):
        for j, count in enumerate(row):
            axes.text(j, i, short(count), ha="center", va="center", color="white" if 2 * count > darkest else "black")
    axes.set_xticks(range(len(names)), [printable(name, 10) for name in names])
    axes.set_yticks(range(len(names)), [printable(name, 10) for name in names])
    axes.set_xlabel("verdict")
    axes.set_ylabel("label")
    share, (low, high) = labels["agrees"]["share"], labels["agrees"]["wilson95"]
    axes.set_title(f"agrees with labels: {short(share)} ({low:.2f} to {high:.2f})\nCohen's kappa {short(labels.get('cohens_kappa'))}")


def draw_log_odds(axes, one):
    draw_histogram(axes, "log-odds of the first verdict", one["log_odds"], "nat", "rows", GREY)
    if one["log_odds_ok"]["count"]:
        axes.stairs(one["log_odds_ok"]["counts"], one["log_odds_ok"]["edges"], fill=True, color=BLUE, label="parse ok")
        axes.legend(fontsize=7, frameon=False)


def draw_task(places, one):
    """places: four axes in a row."""
    kind = one["kind"]
    if kind == "teacher_logits":
        draw_histogram(places[0], "lengths", one["lengths"], "tokens", "samples")
        draw_histogram(places[1], "entropy", one["entropy"], "nat", "tokens")
        draw_histogram(places[2], "tail mass", one["tail_mass"], "probability", "tokens")
        places[2].set_yscale("log")
        places[2].yaxis.set_major_formatter("{x:g}")
        draw_histogram(places[3], "log-probability of the target", one["target_logprob"], "nat", "tokens")
    elif kind == "generate":
        draw_histogram(places[0], "lengths of the texts", one["lengths"], "tokens", "texts")
        draw_counts(places[1], "finish reasons", one["finish_reasons"], "texts")
        draw_histogram(places[2], "log-probability per token", one["logprob"], "nat", "tokens")
        places[3].axis("off")
    elif kind == "judge":
        draw_shares(places[0], f"verdicts of {short(one['parse']['ok'])} rows", one["verdicts"])
        draw_histogram(places[1], "mass of all verdicts", one["mass"], "probability", "rows")
        draw_log_odds(places[2], one)
        if one.get("labels"):
            draw_labels(places[3], one["labels"], list(one["verdicts"]))
        else:
            draw_counts(places[3], "parse", one["parse"], "rows")
    else:
        if "plotted" in one:
            draw_histogram(places[0], printable(one["plotted"]["column"], 30), one["plotted"], "", "values")
        for axes in places[0 if "plotted" not in one else 1:]:
            axes.axis("off")


def draw_rates(axes, log):
    rows = [(start, one) for start in log["starts"] for one in start["tasks"] if one["tokens_per_second_by_rank"]][-12:]
    if not rows:
        return empty(axes, "tokens/s by rank", "no task came to its end")
    for place, (start, one) in enumerate(rows):
        rates = [rank["tokens_per_second"] for rank in one["tokens_per_second_by_rank"]]
        height = 0.8 / len(rates)  # a bar for each rank that leads a group, in their order
        axes.barh([place - 0.4 + (index + 0.5) * height for index in range(len(rates))], rates, height * (0.9 if len(rates) < 16 else 1), color=BLUE)
        written = f", {short(one['written_tokens_per_second'])} written" if one["written_tokens_per_second"] else ""
        axes.text(max(rates), place, f" {short(one['tokens_per_second'])}{written} on {start['ranks']}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [printable(one["task"], 16) for _, one in rows])
    axes.margins(x=0.35)
    axes.set_xlabel("a bar for each rank (the first of its group); beside them: all together")
    axes.set_ylim(max(len(rows), 3) - 0.5, -0.5)  # one bar is no wall
    axes.set_title("tokens/s by rank (of texts: of their prompts)")


def draw_phases(axes, log):
    """Of the last task that told of its phases: the mean over the ranks, with the fastest and the slowest."""
    last = [one for start in log["starts"] for one in start["tasks"] if one["phases"]]
    if not last:
        return empty(axes, "seconds by phase", "no phases in run.jsonl")
    phases = sorted(last[-1]["phases"], key=lambda one: -one["mean"])[:6]
    for place, one in enumerate(phases):
        axes.barh(place, one["mean"], color=BLUE)
        axes.plot([one["min"], one["max"]], [place, place], color=ORANGE, linewidth=2, marker="|")
    axes.set_yticks(range(len(phases)), [printable(one["phase"], 22) for one in phases])
    axes.invert_yaxis()
    axes.set_xlabel("seconds: mean, least and most over the ranks")
    axes.set_title(f"phases of {printable(last[-1]['task'], 24)}")


def draw_curve(axes, log, name):
    _, label, factor = QUANTITIES[name]
    points = log["machines"].get(name)
    if not points:
        return empty(axes, label, "not measured")
    minutes, mean, least, most = ([scale * point[index] for point in points] for index, scale in enumerate((1 / 60, factor, factor, factor)))
    axes.fill_between(minutes, least, most, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(minutes, mean, color=BLUE, linewidth=1, marker="." if len(minutes) < 30 else None)
    axes.set_title(f"{label}: mean, least and most")
    axes.set_xlabel("minutes of work")
    axes.set_ylim(bottom=0)


def draw_losses(axes, log):
    if not log["losses"]:
        return empty(axes, "loss", "nothing was trained")
    for task, kinds in log["losses"].items():
        for kind, curve in kinds.items():
            axes.plot(*zip(*curve), linewidth=1, marker="." if len(curve) < 30 else None, label=f"{printable(task, 16)}, {kind}")
    axes.legend(fontsize=7, frameon=False)
    axes.set_xlabel("step")
    axes.set_title("loss")


def draw_waits(axes, log):
    """Of each task's last end: the share of the time that its ranks waited for each other."""
    last = {one["task"]: one for start in log["starts"] for one in start["tasks"] if one["phases"] and one["seconds"]}
    rows = [(task, next((phase for phase in one["phases"] if phase["phase"] == "wait for other ranks"), None), one["seconds"]) for task, one in last.items()]
    rows = [row for row in rows if row[1] is not None][-12:]
    if not rows:
        return empty(axes, "idle ranks", "no task came to its end")
    for place, (_, phase, seconds) in enumerate(rows):
        axes.barh(place, 100 * phase["mean"] / seconds, color=BLUE)
        axes.plot([100 * phase["min"] / seconds, 100 * phase["max"] / seconds], [place, place], color=ORANGE, linewidth=2, marker="|")
    axes.set_yticks(range(len(rows)), [printable(task, 16) for task, _, _ in rows])
    axes.set_ylim(max(len(rows), 3) - 0.5, -0.5)
    axes.set_xlabel("% of the time waited for other ranks: mean, least and most")
    axes.set_title("idle ranks")


def draw_machines(places, log):
    """places: four axes in a row. Without GPUs the losses have more room than curves of what is not there."""
    draw_waits(places[0], log)
    has_gpus = any(of_gpus and name in log["machines"] for name, (of_gpus, _, _) in QUANTITIES.items())
    draw_curve(places[1], log, "utilization_ratio" if has_gpus else "cpu_cores")
    draw_curve(places[2], log, "power_watts" if has_gpus else "resident_memory_bytes")
    draw_losses(places[3], log)


def energy_lines(log):
    return [f"{printable(task, 24)}: {short(one['energy_joules'])} J, {short(one['joules_per_million_tokens'])} J per million tokens"
            for task, one in log["used"].items() if one["energy_joules"] is not None]


def run_text(log):
    lines = [f"wall time {duration(log['wall_seconds'])} in {len(log['starts'])} start{'s' * (len(log['starts']) != 1)}",
             f"hosts: {printable(', '.join(log['hosts']), 60)}",
             f"stops {log['stops']}, cut off {log['cut_off']}, failures {log['failures']}, resumes {log['resumes']}"]
    if log["unreadable_lines"]:
        lines.append(f"{log['unreadable_lines']} lines of run.jsonl are no events")
    lines += [f"{start['begin'][:19]}  {duration(start['seconds'])}, {start['ranks']} rank{'s' * (start['ranks'] != 1)}{', resumed' * start['resumed']}: "
              f"{printable(start['end'], 32)}" for start in log["starts"][-8:]]
    lines += energy_lines(log)[-4:]
    return "\n".join(lines)


# --- the page ---------------------------------------------------------------------------------------------------------------------

def title_of(one):
    """The line above a results file's plots."""
    state = "complete" if one["complete"] else f"PARTIAL: {one['committed_samples']:,} of {one['samples']:,} samples are committed and drawn"
    parts = [f"{printable(one['task'], 40)} ({printable(one['kind'], 30)}): {state}", f"model {printable(one['model'], 60)}",
             f"{one['committed_samples']:,} samples", f"{one['committed_tokens']:,} {'prompt ' * ('running' in one)}tokens"]
    if one.get("perplexity") is not None:
        parts.append(f"perplexity {short(one['perplexity'])}")
    if one.get("auroc_of_likelihood") is not None:
        parts.append(f"AUROC of likelihood {short(one['auroc_of_likelihood'])}")
    if one.get("combined") and isinstance(one["combined"].get("undecided"), int):
        parts.append(f"undecided texts {one['combined']['undecided']:,}")
    return "   ".join(parts)


def figure_of(matplotlib, numbers):
    tasks, log = numbers["tasks"], numbers["log"]
    rows = len(tasks) + 2 * (log is not None)
    height = HEADER_HEIGHT + ROW_HEIGHT * rows
    figure = matplotlib.figure.Figure(figsize=(WIDTH, height))
    versions = ", ".join(sorted({printable(one["software_version"], 20) for one in tasks}))
    whole = "complete" if all(one["complete"] for one in tasks) else "PARTIAL: not everything is computed yet"
    figure.text(0.02, 1 - 0.35 / height, f"{printable(numbers['name'], 60)}: {whole}", fontsize=15, weight="bold", va="center")
    figure.text(0.02, 1 - 0.65 / height, f"magister {versions}", fontsize=9, va="center")
    grid = figure.add_gridspec(rows, 12, left=0.08, right=0.98, top=1 - (HEADER_HEIGHT + 0.35) / height, bottom=0.55 / height,
                               hspace=0.85, wspace=3.2)
    for row, one in enumerate(tasks):
        places = [figure.add_subplot(grid[row, 3 * column:3 * column + 3]) for column in range(4)]
        figure.text(0.02, places[0].get_position().y1 + 0.48 / height, title_of(one), fontsize=10, weight="bold",
                    color="black" if one["complete"] else "#b03020")
        draw_task(places, one)
    if log is not None:
        places = [figure.add_subplot(grid[-2, begin:end]) for begin, end in ((0, 3), (4, 7), (7, 12))]
        figure.text(0.02, places[0].get_position().y1 + 0.48 / height, "the run (run.jsonl)", fontsize=10, weight="bold")
        draw_rates(places[0], log)
        draw_phases(places[1], log)
        places[2].axis("off")
        places[2].text(0, 1, run_text(log), va="top", fontsize=7.5, family="monospace", transform=places[2].transAxes)
        draw_machines([figure.add_subplot(grid[-1, 3 * column:3 * column + 3]) for column in range(4)], log)
    return figure


STYLE = {"font.size": 8, "axes.titlesize": 8, "axes.spines.top": False, "axes.spines.right": False, "xtick.labelsize": 7,
         "ytick.labelsize": 7, "text.parse_math": False, "axes.formatter.use_mathtext": False, "figure.dpi": 100}


def drawn(numbers, form):
    """form: png or pdf -> the file's bytes; the same numbers give the same bytes. A user's matplotlibrc has no say."""
    matplotlib = matplotlib_parts()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        target = io.BytesIO()
        metadata = {"CreationDate": None} if form == "pdf" else {"Software": None}
        figure_of(matplotlib, numbers).savefig(target, format=form, metadata=metadata)
    return target.getvalue()


def flat(value, name=""):
    """Yields (name, text) of every number but the bins."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("edges", "counts", "phases", "machines", "losses"):
                yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{name}.{index}")
    else:
        yield name, f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def html_page(numbers):
    picture = base64.b64encode(drawn(numbers, "png")).decode()
    title = html.escape(printable(numbers["name"]))
    texts = "".join(f"<p>{html.escape(title_of(one))}</p>" for one in numbers["tasks"])
    rows = "".join(f"<tr><td>{html.escape(printable(name))}</td><td>{html.escape(printable(text, 300))}</td></tr>" for name, text in flat(numbers))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>'
            "<style>body{font-family:sans-serif;margin:1em}img{max-width:100%}td{padding:0 1em 0 0;font-size:80%}</style></head>\n"
            f'<body><h1>{title}</h1>{texts}\n<img alt="plots of {title}" src="data:image/png;base64,{picture}"/>\n'
            f"<details><summary>all numbers</summary><table>{rows}</table></details></body></html>\n").encode()


def page(numbers, form):
    return html_page(numbers) if form == "html" else drawn(numbers, form)
