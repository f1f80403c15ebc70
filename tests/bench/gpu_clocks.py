"""The GPU's clocks during a measurement, sampled by one nvidia-smi: without them a rate has little meaning."""
import statistics
import subprocess
import threading
import time

FIELDS = {"clocks.sm": "SM clock, MHz", "clocks.mem": "memory clock, MHz", "power.draw": "power, W", "temperature.gpu": "temperature, C",
          "utilization.gpu": "busy, %"}
PERIOD_MS = 200


def sample_command(fields, period_ms=PERIOD_MS):
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", "0", "-lms", str(period_ms)]


class Sampler:
    """Runs one nvidia-smi inside `with`; samples: (moment, {field: number}), none if there is no nvidia-smi."""

    def __init__(self, fields, period_ms=PERIOD_MS):
        self.fields, self.period_ms = list(fields), period_ms

    def __enter__(self):
        self.samples = []
        try:
            self.process = subprocess.Popen(sample_command(self.fields, self.period_ms), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None
            return self
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        return self

    def read(self):
        for line in self.process.stdout:
            try:
                values = [float(word) for word in line.split(",")]
            except ValueError:
                continue  # "[N/A]" and similar texts
            if len(values) == len(self.fields):
                self.samples.append((time.time(), dict(zip(self.fields, values))))

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.reader.join()


class Clocks(Sampler):
    """with Clocks() as clocks: ...; clocks.between(begin, end) -> {field: median of the busy samples}, {} without
    samples."""

    def __init__(self):
        super().__init__(FIELDS)

    def between(self, begin, end):
        busy = [values for moment, values in self.samples if begin <= moment <= end and values["utilization.gpu"] > 0]
        if not busy:
            return {}
        return {FIELDS[field]: statistics.median(values[field] for values in busy) for field in FIELDS if field != "utilization.gpu"}
