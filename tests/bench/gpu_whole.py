"""Trainings and whole jobs in the report: the runners that measure them, and the explanation of a missed floor."""
import gpu_jobs
import gpu_train

RUNNERS = ("train", "jobs")


class Whole:
    """The runners, each made on first use, since a peer takes time to start."""

    def __init__(self, arguments, shapes):
        self.arguments, self.shapes, self.runners = arguments, shapes, {}

    def runner(self, name):
        if name not in self.runners:
            program, root, work, tiny = (getattr(self.arguments, key) for key in ("program", "root", "work", "tiny"))
            self.runners[name] = gpu_train.TrainRunner(program, root, work, self.shapes["{1b}"], tiny) if name == "train" \
                else gpu_jobs.JobsRunner(program, root, work, self.shapes, tiny)
        return self.runners[name]

    def measure(self, measurement, limit):
        return self.runner(measurement.runner).measure(measurement.name, limit)

    def close(self):
        for runner in self.runners.values():
            runner.close()


def explanation(measured, name, most=6):
    """-> sentences about the longest phases of a run or kernels of a profile."""
    found = measured.get(name)
    if found is None or "values" not in found:
        return [f"{name}: {'not run' if found is None else found['reason']}"]
    values = found["values"]
    sentences = [f"{part['part']}: {part['seconds']:.3f} s, {part['share']:.1%} of the time" for part in values.get("parts", [])[:most]]
    sentences += [f"{key}: {values[key]}" for key in ("busy", "load_seconds") if key in values]
    return sentences or [f"{name}: it says nothing of its parts"]


def markdown(measured, most=25):
    """-> lines: a table of the parts of every run or profile that has them."""
    lines = []
    for name, result in measured.items():
        parts = result.get("values", {}).get("parts")
        if name.startswith("layer_") or not parts:
            continue
        lines += ["", f"### {name}", "", "| part | calls | seconds | share |", "|---|---|---|---|"]
        lines += [f"| {part['part']} | {part.get('calls', '')} | {part['seconds']:.4f} | {part['share']:.1%} |" for part in parts[:most]]
    return lines
