"""Slices of an array job that are read as one file: what must be equal, and that no record is there twice or missing.

The rules are those of `magister merge` (src/io/results/slices.cpp), so what this reader joins is what a merge would hold, in its order.
"""
from .error import fail, printable

# Of a part and not of the whole, and what the writer adds itself.
OF_A_PART = ("experiment", "num_samples", "num_tokens", "slice_begin", "slice_end", "columns", "complete", "default", "layout_sha256")


def _may_differ(name):
    """Digests of what a slice was made from, where every slice has its own."""
    return name in ("plan_sha256", "answers_sha256") or name.startswith(("panel_sha256_", "scores_sha256_"))


def _check_same_run(first, other):
    for name in sorted({*first.attributes, *other.attributes}):
        ours, theirs = first.attributes.get(name, "absent"), other.attributes.get(name, "absent")
        both = name in first.attributes and name in other.attributes
        if name not in OF_A_PART and ours != theirs and not (_may_differ(name) and both):
            fail(f"{printable(other.path)}: {printable(name)} is {printable(theirs)}, in {printable(first.path)} it is {printable(ours)}",
                 "samples of different runs would be mixed", "open the slices of one experiment" + (
                     "; magister merge names the keys that differ, and joins slices of which an earlier build has written some" if name == "config_sha256" else ""))

    def kinds(file):
        return {path: (c.per_token, c.shape, c.is_text or c.dtype) for path, c in file.columns.items()}
    if kinds(first) != kinds(other):
        paths = sorted(path for path in {*first.columns, *other.columns} if kinds(first).get(path) != kinds(other).get(path))
        fail(f"{printable(other.path)}: /{printable(paths[0])} is not what it is in {printable(first.path)}",
             "their samples have not the same columns", "open the slices of one experiment")


def _border(file, name):
    value = file.attributes.get(name)
    if not isinstance(value, int) or value < 0:
        file.damaged(f"its attribute {name} is {printable(value)}")
    return value


def _check_cover(files, partial):
    end = 0
    for file in files:
        begin = _border(file, "slice_begin")
        if begin < end:
            fail(f"{printable(file.path)}: holds records {begin} to {_border(file, 'slice_end')}, and those before {end} stand in another file",
                 "samples would be there twice", "give every slice once")
        if begin > end and not partial:
            fail(f"no file holds records {end} to {begin}", "samples would be missing", "give every slice, or open them with partial=True")
        end = max(end, _border(file, "slice_end"))
    num_records = _border(files[0], "source_records")
    if end < num_records and not partial:
        fail(f"no file holds records {end} to {num_records}", "samples would be missing", "give every slice, or open them with partial=True")


def checked_parts(files, partial):
    """-> (the files in the order of their records, the attributes of the whole)."""
    if not files:
        fail("no file was given", "there is nothing to read", "give at least one path")
    for file in files[1:]:
        _check_same_run(files[0], file)
    files = sorted(files, key=lambda file: (_border(file, "slice_begin"), _border(file, "slice_end")))
    _check_cover(files, partial)
    attributes = {name: value for name, value in files[0].attributes.items() if name not in OF_A_PART and not _may_differ(name)}
    attributes.update({name: files[0].attributes[name] for name in files[0].attributes if _may_differ(name) and
                       all(file.attributes[name] == files[0].attributes[name] for file in files)})
    attributes.update(num_samples=sum(file.num_samples for file in files), num_tokens=sum(file.num_tokens for file in files),
                      complete=int(all(file.complete for file in files)))
    return files, attributes
