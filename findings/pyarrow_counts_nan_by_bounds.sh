#!/usr/bin/env bash
# Believed: a filter finds the same rows of a Parquet file as of the table in memory, and count_rows(filter) says how many; the bounds that the file keeps of each group of rows only spare
#   work. That bounds which are NaN led to lost rows was reported and repaired (Arrow's issue 28074, 2023).
# Package: pyarrow 26.0.1 (PyPI), files written by itself.
# Behaviour: bounds leave NaN out, as the format asks, and pyarrow takes it that all values of the group lie within them. A filter that holds for all numbers within the bounds is
#   taken to hold for each row, and one that holds for none to find nothing. So count_rows counts rows with NaN though the filter does not find them, and neither finds them
#   where it asks for them. A null in the group helps some filters and not others. Reading loses rows and never adds: it looks at each row of the groups that remain.
# Seen, one column of 1, NaN, 1: rows found in memory, in the file and by count_rows; then the same with a null as a fourth row:
#     filter        memory    file    count_rows        memory    file    count_rows
#     x > 0              2       2             3             2       2             2
#     x == 1             2       2             3             2       2             2
#     ~is_nan(x)         2       2             3             2       2             2
#     ~(x > 0)           1       0             0             1       0             0
#     x != 1             1       0             0             1       0             0
#     is_nan(x)          1       0             0             1       1             1
#   With 1, NaN, 2 it is the same for x > 0 and ~(x > 0), and is_nan(x) is right. Written with one row a group, all are right.
# Matters: how many results are NaN, or are left without them, depends on their neighbours in the file; is_nan finds none where all other values are equal, as rewards of 1 are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/x.parquet" <<'PYTHON'
import sys

import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

NAN, x = float("nan"), pyarrow.compute.field("x")
FILTERS = {"x > 0": x > 0, "x == 1": x == 1, "~is_nan(x)": ~pyarrow.compute.is_nan(x), "~(x > 0)": ~(x > 0), "x != 1": x != 1, "is_nan(x)": pyarrow.compute.is_nan(x)}
as_seen = True


def look(values, kind, seen, rows_a_group=None):
    """seen: by filter rows in memory, in the file and by count_rows."""
    global as_seen
    table = pyarrow.table({"x": pyarrow.array(values, kind)})
    pyarrow.parquet.write_table(table, sys.argv[1], row_group_size=rows_a_group)
    data = pyarrow.dataset.dataset(sys.argv[1])
    print(f"{values} as {kind}, {pyarrow.parquet.ParquetFile(sys.argv[1]).num_row_groups} groups")
    for name, wanted in seen.items():
        found = table.filter(FILTERS[name]).num_rows, pyarrow.parquet.read_table(sys.argv[1], filters=FILTERS[name]).num_rows, data.count_rows(filter=FILTERS[name])
        print(f"  {name}: in memory {found[0]}, in the file {found[1]}, by count_rows {found[2]}")
        as_seen = as_seen and found == wanted and data.to_table(filter=FILTERS[name]).num_rows == found[1]


RIGHT = {"x > 0": (2, 2, 2), "x == 1": (2, 2, 2), "~is_nan(x)": (2, 2, 2), "~(x > 0)": (1, 1, 1), "x != 1": (1, 1, 1), "is_nan(x)": (1, 1, 1)}
for kind in (pyarrow.float32(), pyarrow.float64()):
    look([1, NAN, 1], kind, {name: (rows, rows, 3) if rows == 2 else (rows, 0, 0) for name, (rows, _, _) in RIGHT.items()})
    look([1, NAN, 2], kind, {"x > 0": (2, 2, 3), "~(x > 0)": (1, 0, 0), "is_nan(x)": (1, 1, 1)})
    look([1, NAN, 1, None], kind, {**RIGHT, "~(x > 0)": (1, 0, 0), "x != 1": (1, 0, 0)})
    look([1, NAN, 1], kind, RIGHT, rows_a_group=1)
sys.exit(0 if as_seen else "rows with NaN are found or counted in another way now")
PYTHON
