"""Curves over the time of a run, from run.jsonl: what ranks and GPUs did (events `monitor` and `usage`), and losses (`step`, `evaluation`).

A curve is a list of points (seconds of work since the first start, mean, least, most) over ranks or GPUs; starts follow each other without
the time between them. Format: src/app/run_monitor.cpp, src/run/usage.cpp, src/tasks/train/run.cpp.
"""
MOST_POINTS = 1000
# Name -> (of GPUs, label, factor). Names: src/monitor/metrics.cpp.
QUANTITIES = {"cpu_cores": (False, "cores of a rank", 1), "resident_memory_bytes": (False, "memory of a rank, GiB", 2**-30),
              "utilization_ratio": (True, "use of a GPU, %", 100), "power_watts": (True, "power of a GPU, W", 1)}


def number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def members(value, name):
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def values_of(event, name):
    """The values of one quantity in an event `monitor`, of every rank or GPU."""
    holders = [gpu for rank in members(event, "ranks") for gpu in members(rank, "gpus")] if QUANTITIES[name][0] else members(event, "ranks")
    values = [holder.get("values", {}).get(name) for holder in holders if isinstance(holder, dict) and isinstance(holder.get("values"), dict)]
    return [value for value in map(number, values) if value is not None]


class Curves:
    """Fed with the events of run.jsonl in their order. seconds: of work since the first start."""

    def __init__(self):
        self.machines, self.losses, self.used = {}, {}, {}

    def add(self, seconds, event):
        name = event["event"]
        if name == "monitor":
            for quantity in QUANTITIES:
                if values := values_of(event, quantity):
                    self.machines.setdefault(quantity, []).append([seconds, sum(values) / len(values), min(values), max(values)])
        elif name in ("step", "evaluation"):
            key, kind = ("loss", "training") if name == "step" else ("eval_loss", "held out")
            if number(event.get(key)) is not None and number(event.get("step")) is not None:
                curve = self.losses.setdefault(str(event.get("task")), {}).setdefault(kind, {})
                curve[event["step"]] = event[key]  # a step that is done again after a stop counts once
        elif name == "usage" and event.get("task"):
            fields = {key: number(event.get(key)) for key in ("energy_joules", "joules_per_million_tokens")}
            self.used.setdefault(str(event["task"]), []).append(fields)

    def numbers(self):
        thin = lambda points: points[::len(points) // MOST_POINTS + 1]  # noqa: E731
        return {"machines": {name: thin(points) for name, points in self.machines.items()},
                "losses": {task: {kind: thin(sorted(map(list, curve.items()))) for kind, curve in kinds.items()} for task, kinds in self.losses.items()},
                "used": {task: starts[-1] for task, starts in self.used.items()}}
