"""ResultsFile: one results file of magister, its attributes and columns checked when it is opened.

HDF5 is asked once for where everything stands. After that rows are read as plain bytes at fixed offsets (`os.pread`), the way the program
itself reads and writes them: that takes microseconds, needs no lock, and is safe in threads and in forked DataLoader workers, which an open
HDF5 handle is not. Texts of any length, and datasets that somebody compressed with h5repack, go through an h5py handle of the process.
"""
import dataclasses
import errno
import os
import stat

import h5py
import numpy

from .error import fail, printable
from .packed import NAMES, packed_shape, unpacked

# The newest version of each format that this reader knows; files of other tasks are read as what their columns say.
NEWEST_VERSION = {"magister.teacher_logits": 1, "magister.generate": 2, "magister.judge": 1}
NOT_COLUMNS = ("commit", "plot")
PIECE_BYTES = 1 << 26


@dataclasses.dataclass(frozen=True)
class Column:
    """A dataset of the file with an entry per sample (`per_token` false) or per token."""
    path: str
    per_token: bool
    dtype: numpy.dtype
    shape: tuple            # of one entry: () or (k,)
    is_text: bool
    place: int | None       # byte of the file where the first entry begins; None: read through HDF5
    comment: str = ""
    units: str = ""
    packed: "Column | None" = None  # the stored dataset of packed ids (see packed.py); then dtype and shape are those of the ids
    bits: int = 0

    @property
    def name(self):
        return "ids" if self.path == "tokens/id" else self.path.rsplit("/", 1)[-1]


def _value(value):
    """Of an attribute: text as str, numbers as int or float, what magister never writes as a list."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.tolist() if isinstance(value, (numpy.generic, numpy.ndarray)) else value


def _open_hdf5(path):
    """A file that this process has open already must be opened with the same use of locks, which cannot be asked for."""
    try:
        return h5py.File(path, "r")
    except OSError:
        return h5py.File(path, "r", locking=False)  # also where a file system has no locks


def _member(group, name, kind):
    """The member of that kind, or None. Only hard links are followed: a link may lead into another file."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    member = group.get(name)
    return member if isinstance(member, kind) else None


class ResultsFile:
    def __init__(self, path, partial=False):
        self.path = os.fspath(path)
        self._descriptor = self._hdf5 = None
        self._hdf5_process = 0
        self._is_closed = False
        try:
            self._open(partial)
        except BaseException:
            self.close()
            raise

    # --- opening -------------------------------------------------------------------------------------------------------------------------
    def _open(self, partial):
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would make it wait
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
        except OSError as error:
            fail(f"{printable(self.path)}: cannot be opened: {error.strerror}", "there is nothing to read", "check the path")
        try:
            with _open_hdf5(self.path) as hdf5:
                self._read_layout(hdf5)
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, UnicodeDecodeError) as error:
            fail(f"{printable(self.path)}: cannot be read as HDF5: {printable(error)}", "it is damaged, cut short or no HDF5 file",
                 "run `magister check` on it, or use another file")
        self._check_counts()
        if not self.complete and not partial:
            fail(f"{printable(self.path)}: is not complete", "samples would be missing",
                 "run the same magister command again to finish it, or open it with partial=True for the samples that are there")

    def damaged(self, what):
        fail(f"{printable(self.path)}: {what}", "the file is damaged, or magister did not write it",
             "run `magister check` on it, or use another file")

    def _read_layout(self, hdf5):
        self.attributes = {name: _value(value) for name, value in hdf5.attrs.items()}
        long_text = _member(hdf5, "experiment", h5py.Dataset)  # longer than the 64 KiB that an attribute holds
        if long_text is not None and "experiment" not in self.attributes:
            self.attributes["experiment"] = _value(long_text[()])
        self.format = self.attributes.get("format")
        if not isinstance(self.format, str) or not self.format.startswith("magister."):
            self.damaged(f"its attribute format is {printable(self.format)}, not magister.<task>")
        version = self.attributes.get("format_version")
        if self.format in NEWEST_VERSION and (not isinstance(version, int) or version > NEWEST_VERSION[self.format]):
            fail(f"{printable(self.path)}: format_version is {printable(version)}",
                 f"this reader knows 1 to {NEWEST_VERSION[self.format]} of {self.format}",
                 "install the reader that came with the program that wrote it")
        self.complete = self.attributes.get("complete") == 1
        self.offset = self._numbers(hdf5, "samples", "offset")
        self.num_samples = len(self.offset) - 1
        self._check_rising("/samples/offset", self.offset, False)
        self.num_tokens = int(self.offset[-1])
        self.columns = {}
        for group_name in hdf5:
            group = _member(hdf5, group_name, h5py.Group)
            for name in group if group is not None and group_name not in NOT_COLUMNS else ():
                dataset = _member(group, name, h5py.Dataset)
                if dataset is not None and (group_name, name) != ("samples", "offset"):
                    self._add_column(hdf5, dataset, f"{group_name}/{name}")
        self._name_packed_columns()
        self._sort_columns()
        self._read_commits(hdf5)

    def _name_packed_columns(self):
        """Packed ids are shown as the ids that they are, under the name that a file without packing has."""
        for stored, name in NAMES.items():
            if stored not in self.columns:
                continue
            column = self.columns.pop(stored)
            shape, bits = packed_shape(stored, self.attributes, self.columns), self.attributes.get("id_bits")
            if shape is None or column.dtype != numpy.uint8 or not column.per_token or column.shape != (-(-shape[0] * bits // 8),):
                self.damaged(f"dataset /{stored} does not fit the attributes of its encoding")
            self.columns[name] = dataclasses.replace(column, path=name, dtype=numpy.dtype(numpy.int32), shape=shape, packed=column, bits=bits)

    def _sort_columns(self):
        """Into the order of creation, which the attribute `columns` lists (HDF5 lists by name); none of them may be missing."""
        listed = [path.removeprefix("/") for path in str(self.attributes.get("columns", "")).split()]
        listed = [NAMES.get(path, path) for path in listed]
        listed = [path for path in listed if path != "samples/offset" and path.split("/")[0] not in NOT_COLUMNS]
        missing = [path for path in listed if path not in self.columns]
        if missing:
            self.damaged(f"dataset /{printable(missing[0])} is missing or cannot be opened")
        self.columns = {path: self.columns[path] for path in [*listed, *sorted(set(self.columns) - set(listed))]}

    def _numbers(self, hdf5, group_name, name):
        """A dataset that says where things stand, whole, as i64 [n]."""
        group = _member(hdf5, group_name, h5py.Group)
        dataset = None if group is None else _member(group, name, h5py.Dataset)
        if dataset is None or dataset.ndim != 1 or dataset.dtype.kind != "u" or self._leads_out(dataset):
            self.damaged(f"dataset /{group_name}/{name} is missing or of another type")
        if self._place(hdf5, dataset) is None and dataset.size * dataset.dtype.itemsize > os.fstat(self._descriptor).st_size * 1100:
            self.damaged(f"dataset /{group_name}/{name} is larger than the file can hold")  # deflate packs to 1/1032 at best
        values = dataset[()]
        if values.size and values.max() > numpy.iinfo(numpy.int64).max:
            self.damaged(f"dataset /{group_name}/{name} holds {values.max()}")
        return values.astype(numpy.int64)

    def _check_rising(self, name, values, strictly):
        if len(values) == 0 or values[0] != 0:
            self.damaged(f"{name} does not begin with 0")
        steps = numpy.diff(values)
        bad = numpy.flatnonzero(steps <= 0 if strictly else steps < 0)
        if bad.size:
            self.damaged(f"{name}[{bad[0] + 1}] is {values[bad[0] + 1]} after {values[bad[0]]}")

    @staticmethod
    def _leads_out(dataset):
        return dataset.external is not None or dataset.is_virtual

    def _place(self, hdf5, dataset):
        """Of the first byte; None when the bytes are not simply there. Checked against the file's size."""
        if dataset.chunks is not None or dataset.dtype.kind == "O" or hdf5.userblock_size != 0:
            return None
        if dataset.size == 0:
            return 0
        place, num_bytes = dataset.id.get_offset(), dataset.size * dataset.dtype.itemsize
        size = os.fstat(self._descriptor).st_size
        if place is None:
            return None
        if place + num_bytes > size:
            self.damaged(f"dataset {dataset.name} ends at byte {place + num_bytes} of {size}")
        return place

    def _add_column(self, hdf5, dataset, path):
        if self._leads_out(dataset):
            self.damaged(f"dataset /{path} stands in another file")
        if dataset.ndim == 0:
            self.damaged(f"dataset /{path} has no rows")
        is_text = dataset.dtype.kind == "S" or h5py.check_string_dtype(dataset.dtype) is not None
        if not is_text and dataset.dtype.kind not in "iuf":
            self.damaged(f"dataset /{path} holds neither numbers nor texts")
        extent = _value(dataset.attrs.get("extent", b""))
        if extent not in ("samples", "rows"):
            extent = {(True, False): "samples", (False, True): "rows"}.get((len(dataset) == self.num_samples, len(dataset) == self.num_tokens))
        expected = {"samples": self.num_samples, "rows": self.num_tokens}.get(extent)
        if expected != len(dataset):
            self.damaged(f"dataset /{path} has {len(dataset)} rows beside {self.num_samples} samples and {self.num_tokens} tokens")
        self.columns[path] = Column(path, extent == "rows", dataset.dtype, tuple(dataset.shape[1:]), is_text, self._place(hdf5, dataset),
                                    str(_value(dataset.attrs.get("comment", ""))), str(_value(dataset.attrs.get("units", ""))))

    def _read_commits(self, hdf5):
        """-> self.runs: i64 [r, 2], the ranges of samples that are committed, in order and none beside another."""
        if _member(hdf5, "commit", h5py.Group) is None and self.complete:
            self.runs = numpy.array([[0, self.num_samples]], numpy.int64)
            return
        begin, done = self._numbers(hdf5, "commit", "unit_begin"), self._numbers(hdf5, "commit", "done")
        self._check_rising("/commit/unit_begin", begin, True)
        if len(begin) != len(done) + 1 or begin[-1] != self.num_samples or (done > 1).any():
            self.damaged(f"its {len(done)} units do not cover its {self.num_samples} samples")
        if self.complete and not done.all():
            self.damaged(f"it is marked complete, and unit {int(numpy.flatnonzero(done == 0)[0])} is not committed")
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], done, [0]])))
        self.runs = begin[edges].reshape(-1, 2)

    def _check_counts(self):
        for name, count in (("num_samples", self.num_samples), ("num_tokens", self.num_tokens)):
            if self.attributes.get(name, count) != count:
                self.damaged(f"attribute {name} is {printable(self.attributes[name])}, and the offsets say {count}")
        ids = self.columns.get("tokens/id")
        if ids is not None and (ids.dtype.kind not in "iu" or ids.shape != () or not ids.per_token):
            self.damaged("dataset /tokens/id is not one whole number per token")

    # --- reading -------------------------------------------------------------------------------------------------------------------------
    def read(self, column, begin, end):
        """Entries [begin, end) of a column as an array of one's own; texts as an object array of str."""
        if not 0 <= begin <= end <= (self.num_tokens if column.per_token else self.num_samples):
            raise IndexError(f"rows {begin} to {end} of /{column.path}")
        if column.packed is not None:
            ids = unpacked(self.read(column.packed, begin, end), column.shape[0], column.bits)
            if column.path == "teacher/top_id":  # a row that was not scored holds no ids: -1, as in a file without packing
                ids[numpy.isnan(self.read(self.columns["teacher/top_logprob"], begin, end)[:, 0])] = -1
            return ids
        values = self._read_hdf5(column, begin, end) if column.place is None else self._read_bytes(column, begin, end)
        if not column.is_text:
            return values
        texts = numpy.empty(len(values), object)
        for i, text in enumerate(values.tolist()):
            try:
                texts[i] = text.decode("utf-8") if isinstance(text, bytes) else text
            except UnicodeDecodeError:
                self.damaged(f"/{column.path}[{begin + i}] is not UTF-8")
        return texts

    def read_keys(self):
        """/samples/key undecoded, S [n]: a million of them are sorted and searched as bytes."""
        column = self.columns.get("samples/key")
        if column is None or column.dtype.kind != "S" or column.per_token:
            self.damaged("dataset /samples/key is missing or of another type")
        read = self._read_hdf5 if column.place is None else self._read_bytes
        return read(column, 0, self.num_samples)

    def _read_bytes(self, column, begin, end):
        values = numpy.empty((end - begin, *column.shape), column.dtype)
        into = memoryview(values.reshape(-1).view(numpy.uint8)) if values.size else b""
        row_bytes = values.nbytes // (end - begin) if end > begin else 0
        at = 0
        while at < len(into):
            if self._descriptor is None:
                self._reopen()
            piece = os.pread(self._descriptor, min(PIECE_BYTES, len(into) - at), column.place + begin * row_bytes + at)
            if not piece:
                self.damaged(f"/{column.path} is cut short")
            into[at:at + len(piece)] = piece
            at += len(piece)
        return values

    def _read_hdf5(self, column, begin, end):
        if self._descriptor is None:
            self._reopen()
        try:
            if self._hdf5 is None or self._hdf5_process != os.getpid():  # never through a handle that was made before a fork
                self._hdf5, self._hdf5_process = _open_hdf5(self.path), os.getpid()
            return self._hdf5[column.path][begin:end]
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            self.damaged(f"/{column.path} cannot be read: {printable(error)}")

    def _reopen(self):
        """After unpickling. The file must still be the one whose places and offsets came along."""
        if self._is_closed:
            fail(f"{printable(self.path)}: was closed", "nothing can be read", "open it again")
        now = ResultsFile(self.path, partial=True)
        same = all(now.attributes.get(name) == self.attributes.get(name) for name in self.attributes if name != "complete")
        if not same or now.columns != self.columns or not numpy.array_equal(now.offset, self.offset):
            now.close()
            fail(f"{printable(self.path)}: is another file than the one that was opened", "rows of two runs would be mixed", "open it again")
        if self._descriptor is None:  # another thread may have been first; then `now` closes its own
            self._descriptor, now._descriptor = now._descriptor, None

    def close(self):
        self._is_closed = True
        if self._hdf5 is not None and self._hdf5_process == os.getpid():
            self._hdf5.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._hdf5 = None

    def __del__(self):
        if getattr(self, "_descriptor", None) is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __getstate__(self):
        return {**self.__dict__, "_descriptor": None, "_hdf5": None}

