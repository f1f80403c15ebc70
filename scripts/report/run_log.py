"""What run.jsonl tells of a run: every start of the command on its own, with hosts, end, and tokens per second of each task.

A line that is no event is counted and left out: a full disk may have cut it, and results do not depend on it. Format: the events of
src/app/run_command.cpp and src/run/progress.cpp.
"""
import datetime

from . import INPUT_OUTPUT, ReportError, json_of, printable
from .machines import Curves

STOPPED = 75


def number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def events(path, unreadable):
    """Yields the events of a log in order; appends the numbers of lines that are none to unreadable."""
    try:
        with open(path, "rb") as file:
            for index, line in enumerate(file, 1):
                try:
                    event = json_of(line)
                    when = datetime.datetime.fromisoformat(event["time"])
                    known = isinstance(event["event"], str) and when.tzinfo is not None
                except (ValueError, KeyError, TypeError):
                    known = False
                if known:
                    yield when, event
                else:
                    unreadable.append(index)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ReportError(INPUT_OUTPUT, f"{printable(path)}: cannot be read: {error.strerror} (speed and stops could not be told); check "
                                        "its permissions") from error


def new_start(when, event):
    hosts = event.get("hosts") if isinstance(event.get("hosts"), list) else []
    return {"begin": when.isoformat(), "ranks": number(event.get("ranks")), "hosts": sorted({str(host) for host in hosts}),
            "seconds": 0.0, "end": "cut off, or still at work", "exit_code": None, "resumed": False, "tasks": []}


def task_rates(event):
    """Of one `phases` event: rates of all ranks together and of each group, by the rank that leads it, and times by phase."""
    seconds = number(event.get("wall_seconds"))
    by_rank, phases = [], []
    for one in event.get("groups") if isinstance(event.get("groups"), list) else []:
        if seconds and isinstance(one, dict) and all(number(one.get(key)) is not None for key in ("rank", "tokens")):
            by_rank.append({"rank": one["rank"], "tokens_per_second": one["tokens"] / seconds})
    for one in event.get("phases") if isinstance(event.get("phases"), list) else []:
        if isinstance(one, dict) and all(number(one.get(key)) is not None for key in ("min", "mean", "max")):
            phases.append({"phase": str(one.get("phase")), **{key: one[key] for key in ("min", "mean", "max")}})
    return {"task": str(event.get("task")), "tokens": number(event.get("tokens")), "seconds": seconds,
            "tokens_per_second": number(event.get("tokens_per_second")), "tokens_per_second_by_rank": by_rank,
            "written_tokens_per_second": number(event.get("written_tokens_per_second")),
            "imbalance": number(event.get("imbalance")), "phases": phases}


def add_event(start, when, event):
    name = event["event"]
    start["seconds"] = (when - datetime.datetime.fromisoformat(start["begin"])).total_seconds()
    if name == "task":
        start["named"].append(str(event.get("task")))
    elif name == "start":
        units, pending = number(event.get("units")), number(event.get("pending_units"))
        start["resumed"] |= units is not None and pending is not None and pending < units
    elif name == "phases":
        start["tasks"].append(task_rates(event))
    elif name == "error":
        start["end"] = f"failed: {event.get('message')}"
    elif name == "end":
        start["exit_code"] = number(event.get("exit_code"))
        start["seconds"] = number(event.get("seconds")) or start["seconds"]
        reason = event.get("stopped_by")
        start["end"] = ("done" if start["exit_code"] == 0 else f"stopped by {reason}" if start["exit_code"] == STOPPED and reason else
                        "stopped" if start["exit_code"] == STOPPED else f"ended with {start['exit_code']}")


def run_log(path, tasks):
    """tasks: the names that the page is about; starts that came to none of them are left out, unless they failed before any task.
    -> dict for the page and --json; None: no log, or nothing of these tasks in it."""
    unreadable, starts, curves = [], [], Curves()
    before = 0.0  # seconds of work in earlier starts
    for when, event in events(path, unreadable):
        if event["event"] == "run":
            before += starts[-1]["seconds"] if starts else 0.0
            starts.append({**new_start(when, event), "named": []})
        elif starts:
            add_event(starts[-1], when, event)
            if event.get("task") is None or event["task"] in tasks:
                curves.add(before + starts[-1]["seconds"], event)
    order = [task for task in dict.fromkeys(task for start in starts for task in start["named"]) if task in tasks]
    if not order:
        return None
    starts = [start for start in starts if not start["named"] or set(start["named"]) & set(tasks)]
    for start in starts:
        start["tasks"] = [one for one in start["tasks"] if one["task"] in tasks]
        del start["named"]
    return {"order": order, "starts": starts, "wall_seconds": sum(start["seconds"] for start in starts),
            "hosts": sorted({host for start in starts for host in start["hosts"]}),
            "stops": sum(start["exit_code"] == STOPPED for start in starts),
            "cut_off": sum(start["end"].startswith("cut off") for start in starts),
            "failures": sum(start["end"].startswith(("failed", "ended with")) for start in starts),
            "resumes": sum(start["resumed"] for start in starts), "unreadable_lines": len(unreadable), **curves.numbers()}
