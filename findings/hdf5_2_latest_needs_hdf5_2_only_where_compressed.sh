#!/usr/bin/env bash
# What libver="latest" of an h5py built on HDF5 2.0 writes, and who can read it.
#
# Believed: h5py's libver="latest" makes files of superblock version 3, which every HDF5 since 1.10 reads; a file that an older library
#   cannot read says so by its superblock.
# Versions: h5py 3.16.0 (its wheel holds HDF5 2.0.0) writes, h5py 3.14.0 (HDF5 1.14.6) reads.
# Behaviour: the superblock is of version 3 in all files, so nothing in it tells them apart. A dataset without a filter is read by 1.14. A
#   dataset with gzip has a layout message of a version that 1.14 does not know: the file opens, its other datasets are read, and this one
#   fails when it is opened. The upper bound ("earliest", "v114") or ("v114", "v114") makes a file that both read, and single-writer
#   multiple-reader files, which ask for "latest" or a bound of their own, meet the same rule.
# Seen (2026-11): "latest, gzip" ends with KeyError "... bad version number for layout message"; the other five files are read.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/new"
python3 -m venv "$work/old"
"$work/new/bin/pip" -q install --disable-pip-version-check h5py==3.16.0 numpy==2.4.6
"$work/old/bin/pip" -q install --disable-pip-version-check h5py==3.14.0 numpy==2.3.5
cd "$work"

new/bin/python - <<'PYTHON'
import h5py, numpy
assert h5py.version.hdf5_version == "2.0.0", h5py.version.hdf5_version
for name, bounds in (("latest", "latest"), ("earliest-v114", ("earliest", "v114")), ("v114-v114", ("v114", "v114"))):
    for filter_name in (None, "gzip"):
        with h5py.File(f"{name}.{filter_name}.h5", "w", libver=bounds) as file:
            file.create_dataset("rows", data=numpy.arange(20000, dtype="f4"), chunks=(1000,) if filter_name else None, compression=filter_name)
            file["beside"] = numpy.arange(3)
PYTHON

old/bin/python - <<'PYTHON'
import h5py, sys
assert h5py.version.hdf5_version == "1.14.6", h5py.version.hdf5_version
seen = {}
for name in ("latest.None", "latest.gzip", "earliest-v114.None", "earliest-v114.gzip", "v114-v114.None", "v114-v114.gzip"):
    with open(f"{name}.h5", "rb") as raw:
        superblock = raw.read(9)[8]
    with h5py.File(f"{name}.h5") as file:
        assert file["beside"][:].tolist() == [0, 1, 2], name
        try:
            outcome = "read" if file["rows"][:].sum() > 0 else "zeros"
        except KeyError as error:
            outcome = str(error)
    seen[name] = (superblock, outcome)
    print(f"{name}: superblock {superblock}, {outcome}")
refused = [name for name, (_, outcome) in seen.items() if "layout message" in outcome]
if refused != ["latest.gzip"] or {seen["latest.None"][0], seen["latest.gzip"][0], seen["v114-v114.gzip"][0]} != {3}:
    sys.exit("the behaviour has changed: another file than latest.gzip is refused, or the superblocks differ")
PYTHON
echo "as described in the head"
