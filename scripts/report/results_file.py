"""A results file as the page reads it: attributes, committed samples, and columns in pieces of bounded size.

Only committed units are counted (/commit/unit_begin, /commit/done), so a file whose run still works can be read at any time. Checksums
are not computed: that is `magister check`. Format: configs/guides/results.md and the root attributes.
"""
import contextlib
import os
import re

import h5py
import numpy

from . import DATA, INPUT_OUTPUT, ReportError, printable

PIECE = 1 << 20  # values of a column, or units, in memory at once; a file of 10^9 tokens needs no more
SAMPLES = 1 << 16
SUFFIXES = (".running.h5.partial", ".running.h5", ".h5.partial", ".h5")


def task_of(path):
    """A results file's task is its name: runs/x/teacher.h5.partial -> teacher. None: the name is no results file's."""
    name = os.path.basename(path)
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), None)


class ResultsFile:
    """Open for reading, without HDF5's own lock: the program writes rows beside HDF5 and has locks of its own."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ReportError(INPUT_OUTPUT, f"{printable(path)}: cannot be opened: {error.strerror} (there is nothing to draw); "
                                            "check the path and its permissions") from error
        try:
            self.file = h5py.File(path, "r", locking=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise ReportError(DATA, f"{printable(path)}: cannot be opened as HDF5: {printable(error)} (it is damaged, cut short or no HDF5 "
                                    "file); use another file") from error
        try:
            self._read_attributes()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def damaged(self, what):
        return ReportError(DATA, f"{printable(self.path)}: {what} (the file is damaged or was changed); run magister check on it")

    @contextlib.contextmanager
    def reading(self, what):
        """What h5py throws for bytes that make no sense is a damaged file."""
        try:
            yield
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            raise self.damaged(f"{what} cannot be read: {printable(error)}") from error

    def attribute(self, name, kind=str):
        """Text or a number; None: there is none."""
        with self.reading(f"attribute {name}"):
            value = self.file.attrs.get(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if value is None or kind is str and isinstance(value, str):
            return value
        if kind is int and isinstance(value, numpy.integer):
            return int(value)
        raise self.damaged(f"attribute {name} has an unexpected type")

    def _read_attributes(self):
        with self.reading("attribute software"):
            software = self.file.attrs.get("software")
        if software not in (b"magister", "magister"):
            raise ReportError(DATA, f"{printable(self.path)}: is not a results file of magister (its columns would be guesses); "
                                    "name a file that magister run has written")
        self.kind = (self.attribute("format") or "").removeprefix("magister.")
        self.version = self.attribute("software_version") or "unknown"
        numbers = {name: self.attribute(name, int) for name in ("complete", "num_samples", "num_tokens")}
        if missing := [name for name, value in numbers.items() if value is None or value < 0]:
            raise self.damaged(f"attribute {missing[0]} is missing or wrong")
        self.complete = numbers["complete"] == 1
        self.num_samples, self.num_tokens = numbers["num_samples"], numbers["num_tokens"]
        self.num_units = self.column("/commit/done").shape[0]
        self.column("/commit/unit_begin", self.num_units + 1)
        self.column("/samples/offset", self.num_samples + 1)

    def has(self, path):
        with self.reading(path):
            return path in self.file

    def column(self, path, rows=None):
        """A dataset of numbers whose first extent is rows."""
        with self.reading(f"dataset {path}"):
            dataset = self.file.get(path)
            if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "iuf" or len(dataset.shape) not in (1, 2):
                raise self.damaged(f"dataset {path} is missing or holds no numbers")
            if rows is not None and dataset.shape[0] != rows:
                raise self.damaged(f"dataset {path} has {dataset.shape[0]} rows instead of {rows}")
            return dataset

    def read(self, dataset, begin, end):
        with self.reading(f"dataset {dataset.name}"):
            return dataset[begin:end]

    def offsets(self, begin, end):
        """Of samples [begin, end) and behind the last one, as signed numbers; each sample's rows lie within the file."""
        offset = self.read(self.file["samples/offset"], begin, end + 1).astype(numpy.int64)
        if offset[0] < 0 or (numpy.diff(offset) < 0).any() or offset[-1] > self.num_tokens:
            raise self.damaged(f"/samples/offset does not ascend from 0 to {self.num_tokens} at samples {begin} to {end}")
        return offset

    def committed(self):
        """Yields (begin, end, keep): a range of SAMPLES samples at most with one committed or more, ascending, and which of them are:
        booleans, or None for all. Ranges are not cut where units are missing: a read for each gap would take minutes in a file of
        many units."""
        at = 0
        for first in range(0, self.num_units, PIECE):
            last = min(first + PIECE, self.num_units)
            border = self.read(self.file["commit/unit_begin"], first, last + 1).astype(numpy.int64)
            done = self.read(self.file["commit/done"], first, last) != 0
            if border[0] != at or (numpy.diff(border) < 0).any() or border[-1] > self.num_samples:
                raise self.damaged(f"/commit/unit_begin does not divide {self.num_samples} samples")
            at = int(border[-1])
            if self.complete and not done.all():
                raise self.damaged("it is marked complete, but not all of its units are done")
            for begin in range(int(border[0]), at, SAMPLES):
                end = min(begin + SAMPLES, at)
                keep = done[owners(border, begin, end)]
                if keep.any():
                    yield begin, end, None if keep.all() else keep
        if at != self.num_samples:
            raise self.damaged(f"/commit/unit_begin ends at {at} instead of {self.num_samples} samples")

    def samples(self, *paths):
        """Yields pieces of columns of samples, committed ones alone: an array, or of several columns a tuple of arrays."""
        datasets = [self.column(path, self.num_samples) for path in paths]
        for begin, end, keep in self.committed():
            for first, last in pieces(begin, end, max(map(row_values, datasets))):
                kept = slice(None) if keep is None else keep[first - begin:last - begin]
                if keep is None or kept.any():
                    values = tuple(self.read(dataset, first, last)[kept] for dataset in datasets)
                    yield values if len(paths) > 1 else values[0]

    def rows(self, path):
        """Yields a column of tokens, those of committed samples alone."""
        dataset = self.column(path, self.num_tokens)
        for begin, end, keep in self.committed():
            offset = self.offsets(begin, end)
            for first, last in pieces(int(offset[0]), int(offset[-1]), row_values(dataset)):
                kept = slice(None) if keep is None else keep[owners(offset, first, last)]
                if keep is None or kept.any():
                    yield self.read(dataset, first, last)[kept]

    def lengths(self):
        """Yields the number of tokens of each committed sample."""
        for begin, end, keep in self.committed():
            yield numpy.diff(self.offsets(begin, end))[slice(None) if keep is None else keep]

    def experiment(self):
        """The experiment as resolved; beyond 64 KiB it is a dataset of the same name."""
        text = self.attribute("experiment")
        if text is None and self.has("/experiment"):
            with self.reading("/experiment"):
                text = numpy.asarray(self.file["experiment"][()]).reshape(-1)[0]
            text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        return text or ""

    def run_name(self):
        found = re.search(r"^name: *(.+)$", self.experiment(), re.MULTILINE)
        return found.group(1).strip("'\"") if found else "unknown"

    def model(self):
        """The last part of the model's path: of this task's own section where it has one, else of the experiment's. A new model has a config."""
        return model_of(self.experiment())


def model_of(experiment):
    found, section = "unknown", None  # section: the indent of the section `model` around the line
    for line in experiment.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if section is not None and indent <= section:
            section = None
        if re.fullmatch(r"(?: {4})?model:", line):
            section = indent
        elif section is not None and indent == section + 2 and (path := re.fullmatch(r" *(?:path|config): *(.+)", line)):
            found = os.path.basename(path[1].strip("'\"").rstrip("/"))
    return found


def owners(border, begin, end):
    """Of each i in [begin, end) the number of the range of border (ascending; empty ranges own nothing) in which it lies."""
    return numpy.searchsorted(border, numpy.arange(begin, end), side="right") - 1


def row_values(dataset):
    return dataset.shape[1] if len(dataset.shape) == 2 else 1


def pieces(begin, end, values=1):
    """[begin, end) cut so that a piece has PIECE values at most, at `values` a row."""
    step = max(1, PIECE // max(1, values))
    for first in range(begin, end, step):
        yield first, min(first + step, end)
