"""Histograms and intervals in bounded memory: columns come in pieces, twice, first for their range and then to be counted."""
import math

import numpy

BINS = 40
Z = 1.959963984540054  # 97.5 % of the normal distribution, as in src/tasks/judge/summary.cpp


def histogram(column, whole_numbers=False, limits=None):
    """column: a function that yields the pieces afresh. What is not finite is counted apart and is in no bin.
    limits: (low, high) of the bins instead of the smallest and the largest value; what lies outside is in no bin.
    -> {count, not_finite, min, max, mean, edges, counts}; without any value min, max and mean are None."""
    count = not_finite = 0
    low, high, sums = math.inf, -math.inf, []
    for piece in column():
        values = finite(piece)
        not_finite += piece.size - values.size
        if values.size:
            count += values.size
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            sums.append(float(values.sum()))
    if count == 0:
        return {"count": 0, "not_finite": not_finite, "min": None, "max": None, "mean": None, "edges": [], "counts": []}
    edges = edges_of(*(limits or (low, high)), whole_numbers)
    counts = numpy.zeros(len(edges) - 1, numpy.int64)
    for piece in column():
        counts += numpy.histogram(finite(piece), bins=len(counts), range=(edges[0], edges[-1]))[0]
    return {"count": count, "not_finite": not_finite, "min": low, "max": high, "mean": math.fsum(sums) / count,
            "edges": edges.tolist(), "counts": counts.tolist()}


def finite(piece):
    """In double precision: a mean of 10^7 f32 values would lose digits otherwise. No column's numbers come near 1e300; those of a damaged
    file would overflow in sums."""
    with numpy.errstate(invalid="ignore"):  # a signalling NaN of a damaged file
        values = numpy.asarray(piece, numpy.float64).reshape(-1)
    return values[numpy.abs(values) < 1e300]


def edges_of(low, high, whole_numbers=False):
    if whole_numbers:  # a bin holds the same number of whole numbers as every other, or its height would mislead
        width = math.ceil((high - low + 1) / BINS)
        return low - 0.5 + width * numpy.arange(math.ceil((high - low + 1) / width) + 1)
    if low == high:  # one value: a bin around it that is wide enough for its digits
        margin = max(1e-6, abs(low) * 1e-3)
        low, high = low - margin, high + margin
    return numpy.linspace(low, high, BINS + 1)


def wilson_interval(hits, trials):
    """Two-sided 95 % interval of a proportion (Wilson, 1927); without trials everything is possible."""
    if trials == 0:
        return [0.0, 1.0]
    share = hits / trials
    scale = 1 + Z * Z / trials
    centre = (share + Z * Z / (2 * trials)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def share_of(hits, trials):
    """In the form of <task>.summary.json."""
    return {"count": hits, "of": trials, "share": hits / trials if trials else None, "wilson95": wilson_interval(hits, trials)}
