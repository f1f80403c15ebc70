"""Packed ids: entry j of a row takes bits [j b, (j + 1) b) of it, the lowest first in bytes and in ids (the program's tasks/teacher_logits/encoding.h)."""
import numpy

# Stored datasets, and what they are called here: as in a file without packing.
NAMES = {"teacher/top_id_packed": "teacher/top_id", "teacher/tail_id_packed": "teacher/tail_id"}
MOST_BITS = 31


def packed_shape(stored, attributes, columns):
    """-> (ids of a row,), or None when the file does not say it as the program does."""
    bits, draws, logprob = attributes.get("id_bits"), attributes.get("tail_draws"), columns.get("teacher/top_logprob")
    if not isinstance(bits, int) or not 1 <= bits <= MOST_BITS or logprob is None or len(logprob.shape) != 1:
        return None
    if stored == "teacher/top_id_packed":
        return logprob.shape
    return (draws,) if isinstance(draws, int) and draws > 0 else None


def unpacked(rows, count, bits):
    """u8 [T, bytes] -> i32 [T, count]. Ids in 64-bit windows, so that memory stays at some times the result."""
    padded = numpy.zeros((len(rows), rows.shape[1] + 8), numpy.uint8)
    padded[:, : rows.shape[1]] = rows
    ids = numpy.empty((len(rows), count), numpy.int32)
    for j in range(count):
        first, shift = divmod(j * bits, 8)
        window = padded[:, first:first + 8].copy().view("<u8")[:, 0]
        ids[:, j] = (window >> numpy.uint64(shift) & numpy.uint64((1 << bits) - 1)).astype(numpy.int32)
    return ids
