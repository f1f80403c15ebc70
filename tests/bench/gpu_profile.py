"""The work of a GPU between two moments of a program: seconds by kernel and by kind of copy, and the time in which
nothing ran. The recorder, gpu_profile.cpp, is built on the machine where it is used, because it needs CUPTI's
headers, which come with torch's libraries or with CUDA's toolkit.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

SHOWN = 40  # parts that are kept
NAME = 150  # letters of a kernel's name that are kept


def places():
    """-> (folder of cupti.h, libcupti) or None."""
    wheels = sorted(pathlib.Path(sysconfig.get_path("purelib")).glob("nvidia/*/"))
    for root in [*wheels, *sorted(pathlib.Path("/usr/local").glob("cuda*/extras/CUPTI")), *sorted(pathlib.Path("/usr/local").glob("cuda*"))]:
        libraries = [path for path in root.glob("lib*/libcupti.so*") if path.suffix != ".a"]
        if libraries and (root / "include/cupti.h").exists():
            return root / "include", libraries[0]
    return None


def build(folder):
    """-> the recorder, or the reason why there is none."""
    found, compiler = places(), shutil.which("g++") or shutil.which("c++")
    if found is None or compiler is None:
        return "no recorder: no cupti.h with its library beside torch or in a toolkit" if found is None else "no recorder: no C++ compiler"
    include, library = found
    target = folder / "gpu_profile.so"
    # for cuda.h if the wheel has none
    toolkits = [f"-I{path}" for path in sorted(pathlib.Path("/usr/local").glob("cuda*/include"))]
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", pathlib.Path(__file__).with_suffix(".cpp"), f"-I{include}", *toolkits, "-o", target,
               library, f"-Wl,-rpath,{library.parent}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=120)
    return target if done.returncode == 0 else f"no recorder: {done.stderr[-300:]}"


def environment(recorder, path):
    return {"CUDA_INJECTION64_PATH": str(recorder), "MAGISTER_PROFILE_FILE": str(path)}


def records_in(path, begin, end):
    """-> [(kind, begin, end, bytes, name)] in seconds of the records that began between the moments; a text if CUPTI
    refused."""
    found, refused = [], []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        words = line.split("\t", 4)
        if len(words) < 5:
            continue  # a line that is cut off
        if words[0] == "refused":
            refused.append(words[4])
            continue
        found.append((words[0], int(words[1]) * 1e-9, int(words[2]) * 1e-9, int(words[3]), words[4]))
    if not found:
        return f"the recorder wrote no kernel; CUPTI refused {len(refused)} of its calls{': ' + refused[0] if refused else ''}"
    last = max(record[2] for record in found)
    # another clock: align the last kernel with the last step's end
    shift = end - last if abs(end - last) > 60 else 0.0
    return [record for record in found if begin <= record[1] + shift <= end]


def readable(names):
    """The names demangled, if c++filt exists."""
    program = shutil.which("c++filt")
    if program is None:
        return {name: name for name in names}
    said = subprocess.run([program], input="\n".join(names), capture_output=True, text=True, check=False).stdout.splitlines()
    return dict(zip(names, said)) if len(said) == len(names) else {name: name for name in names}


def busy_seconds(records):
    """The time in which something ran; overlapping kernels count once."""
    total, until = 0.0, 0.0
    for _, begin, end, _, _ in sorted(records, key=lambda record: record[1]):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def numbers(path, begin, end, steps):
    """-> the numbers of these steps for the report, or the reason why there are none."""
    records = records_in(path, begin, end)
    if isinstance(records, str) or not records:
        return records or "no kernel began within the steps"
    parts, window = {}, end - begin
    for kind, first, last, size, name in records:
        part = parts.setdefault(name if kind == "kernel" else f"{kind}, {name}", [0, 0.0, 0])
        part[0], part[1], part[2] = part[0] + 1, part[1] + last - first, part[2] + size
    names, busy = readable(list(parts)), busy_seconds(records)
    rows = [{"part": "nothing ran", "seconds": window - busy, "share": 1 - busy / window}]
    for name, (calls, seconds, size) in parts.items():
        words = names[name][:NAME] + (f" ({size / seconds / 1e9:.1f} GB/s)" if size and seconds > 0 else "")
        rows.append({"part": words, "calls": calls, "seconds": seconds, "share": seconds / window})
    rows.sort(key=lambda row: -row["seconds"])
    copied = {kind: sum(last - first for kind_is, first, last, _, name in records if kind_is.startswith("copy") and name == kind) / steps
              for kind in ("host to device", "device to host")}
    return {"ms_a_step": 1e3 * window / steps, "busy_by_records": busy / window, "kernels_a_step": sum(record[0] == "kernel" for record in records) / steps,
            **{f"{kind}_ms_a_step".replace(" ", "_"): 1e3 * seconds for kind, seconds in copied.items()}, "parts": rows[:SHOWN]}


def try_it(recorder, settings, begin, end):
    """For a dry run: checks that the recorder loads and writes a line."""
    write = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).magister_profile_try(ctypes.c_uint64(int(sys.argv[2])), ctypes.c_uint64(int(sys.argv[3])))"
    subprocess.run([sys.executable, "-c", write, str(recorder), str(int(begin * 1e9)), str(int(end * 1e9))], check=True, env={**os.environ, **settings})
