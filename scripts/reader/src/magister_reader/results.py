"""Results: the samples of one results file, or of the slices of an array job as if they were one file.

`results[i]` is a Sample that reads a column when it is asked for; iterating reads blocks of neighbouring samples, so that a million short
samples cost a few hundred reads. Pickled, a Results carries places and offsets, and the other process opens the files itself.
"""
import operator

import numpy

from .error import fail, printable
from .file import ResultsFile
from .slices import checked_parts

BLOCK_ROWS, BLOCK_SAMPLES = 1 << 14, 1 << 12  # of iteration: 64 kept entries in f32 are 4 MiB a column


class Block:
    """Consecutive samples of one file; a column is read whole, at first use."""

    def __init__(self, file, begin, end):
        self.file, self.begin, self.end = file, begin, end
        self._values = {}

    def rows(self, i):
        """Where the rows of the block's i-th sample stand in `column()` of a column with an entry per token."""
        first = self.file.offset[self.begin]
        return slice(int(self.file.offset[self.begin + i] - first), int(self.file.offset[self.begin + i + 1] - first))

    def column(self, column):
        if column.path not in self._values:
            begin, end = (self.begin, self.end) if not column.per_token else (int(self.file.offset[self.begin]), int(self.file.offset[self.end]))
            self._values[column.path] = self.file.read(column, begin, end)
        return self._values[column.path]


class Sample:
    """`sample.ids`, `sample.key`, `sample.source_index`, and every other column by its name or path: `sample.top_logprob`,
    `sample["teacher/top_logprob"]`. Arrays [L] or [L, k] of columns with an entry per token; of the others the entry itself.
    """

    def __init__(self, results, block, place_in_block, index):
        self._results, self._block, self._place = results, block, place_in_block
        self.index = index

    @property
    def ids(self):
        return self["tokens/id"]

    @property
    def key(self):
        return self["samples/key"]

    @property
    def source_index(self):
        return int(self["samples/source_index"])

    @property
    def names(self):
        return list(self._results.columns)

    def __getitem__(self, name):
        column = self._results.find_column(name)
        values = self._block.column(self._block.file.columns[column.path])
        return values[self._block.rows(self._place) if column.per_token else self._place]

    def __getattr__(self, name):
        if name.startswith("_"):  # while it is unpickled there is nothing to look in
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def arrays(self):
        """Every column -> dict by name."""
        return {name: self[name] for name in self.names}

    def __len__(self):
        rows = self._block.rows(self._place)
        return rows.stop - rows.start

    def __repr__(self):
        return f"<sample {self.index}, {self.key!r}, {len(self)} tokens>"


class Results:
    def __init__(self, files, attributes):
        self.files, self.attributes = files, attributes
        self.path = files[0].path
        self.format = files[0].format
        self.task = self.format.removeprefix("magister.")
        self.complete = all(file.complete for file in files)
        self.columns = _by_name(files[0].columns.values())
        # Runs of samples that stand beside each other in a file, and where each begins among all samples: [r + 1].
        self._runs = [(file, int(begin), int(end)) for file in files for begin, end in file.runs if end > begin]
        self._first = numpy.cumsum([0] + [end - begin for _, begin, end in self._runs])
        self._sorted_keys = None

    num_samples = property(lambda self: int(self._first[-1]), doc="Samples that can be read; of a partial file those of committed units.")
    num_tokens = property(lambda self: sum(int(file.offset[end] - file.offset[begin]) for file, begin, end in self._runs))

    def find_column(self, name):
        """By name ("top_id") or path ("teacher/top_id") -> Column."""
        column = self.columns.get(name) or self.files[0].columns.get(name.removeprefix("/"))
        if column is None:
            raise KeyError(f"{self.path} has no column {name!r}; it has {', '.join(self.columns)}")
        return column

    # --- samples -------------------------------------------------------------------------------------------------------------------------
    def __len__(self):
        return self.num_samples

    def __getitem__(self, which):
        """A number -> Sample; a slice -> list; a key -> the one sample of that key."""
        if isinstance(which, str):
            found = self.find(which)
            if len(found) == 0:
                raise KeyError(f"{self.path} has no sample with the key {which!r}")
            if len(found) > 1:
                fail(f"{printable(self.path)}: {len(found)} samples have the key {printable(which)}", "windows and texts of a record share its key",
                     "take results[i] for i in results.find(key)")
            which = int(found[0])
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        index = operator.index(which)
        index += len(self) if index < 0 else 0
        if not 0 <= index < len(self):
            raise IndexError(f"sample {which} of {len(self)}")
        run = int(numpy.searchsorted(self._first, index, side="right")) - 1
        file, begin, _ = self._runs[run]
        place = begin + index - int(self._first[run])
        return Sample(self, Block(file, place, place + 1), 0, index)

    def __iter__(self):
        index = 0
        for block in self.blocks():
            for i in range(block.end - block.begin):
                yield Sample(self, block, i, index)
                index += 1

    def blocks(self):
        """All samples in order, in blocks of bounded size (but for a sample that is larger)."""
        for file, begin, end in self._runs:
            while begin < end:
                last = int(numpy.searchsorted(file.offset, file.offset[begin] + BLOCK_ROWS, side="right")) - 1
                last = max(begin + 1, min(last, begin + BLOCK_SAMPLES, end))
                yield Block(file, begin, last)
                begin = last

    def find(self, key):
        """-> numbers of all samples with that key, ascending. The first call sorts the keys; they stay in memory."""
        if self._sorted_keys is None:
            keys = [file.read_keys()[begin:end] for file, begin, end in self._runs]
            keys = numpy.concatenate(keys) if keys else numpy.empty(0, "S1")
            order = numpy.argsort(keys, kind="stable")
            self._sorted_keys = keys[order], order
        keys, order = self._sorted_keys
        wanted = numpy.bytes_(key.encode("utf-8"))
        return order[numpy.searchsorted(keys, wanted, "left"):numpy.searchsorted(keys, wanted, "right")]

    # --- columns -------------------------------------------------------------------------------------------------------------------------
    @property
    def lengths(self):
        """Tokens of every sample, i64 [n]."""
        lengths = [numpy.diff(file.offset[begin:end + 1]) for file, begin, end in self._runs]
        return numpy.concatenate(lengths) if lengths else numpy.empty(0, numpy.int64)

    def column(self, name, begin=0, end=None):
        """A whole column, or that of samples [begin, end): [n] or [n, ...], of a column with an entry per token the rows of all of them."""
        begin, end, _ = slice(begin, end).indices(len(self))
        column = self.find_column(name)
        parts = []
        for (file, first, last), at in zip(self._runs, self._first):
            run_begin, run_end = max(first, first + begin - int(at)), min(last, first + end - int(at))
            if run_begin < run_end:
                parts.append(Block(file, run_begin, run_end).column(file.columns[column.path]))
        return numpy.concatenate(parts) if parts else self.files[0].read(column, 0, 0)

    # --- life ----------------------------------------------------------------------------------------------------------------------------
    def close(self):
        for file in self.files:
            file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __getstate__(self):
        return {**self.__dict__, "_sorted_keys": None}

    def __repr__(self):
        state = "" if self.complete else ", not complete"
        return f"<{self.task}: {self.num_samples} samples, {self.num_tokens} tokens of {len(self.files)} file(s){state}>"


def _by_name(columns):
    """Short names where they name one column, else paths."""
    columns = list(columns)
    names = [column.name for column in columns]
    return {column.name if names.count(column.name) == 1 else column.path: column for column in columns}


def open_results(path, partial=False):
    """Opens a results file, or a list of the slices of an array job as one. A file that is not complete is refused, and so are slices
    that do not cover the data set, unless `partial` is true: then there are the samples of committed units.
    """
    if not isinstance(path, (list, tuple)):
        file = ResultsFile(path, partial)
        return Results([file], file.attributes)
    files = []
    try:
        for each in path:
            files.append(ResultsFile(each, partial))
        return Results(*checked_parts(files, partial))
    except BaseException:
        for file in files:
            file.close()
        raise
