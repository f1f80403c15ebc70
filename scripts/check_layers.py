#!/usr/bin/env python3
"""Reads the includes of include/ and src/ and reports violations of the repository's layers.

Rules: a module includes only modules below it (MODULES); only the module that owns a library includes its headers
(OWNERS); torch/torch.h is included nowhere; no relative includes; include/magister/<module>/x.h and src/<module>/x.cpp
mirror each other; every task has a row in TASKS and includes the public headers of the tasks that TASKS names for it; the
path of a task's column is in the task's columns.h alone (COLUMNS); app (except its bench) compares no task's name.
usage: check_layers.py [ROOT] [--self-test]. Prints one line per fault, file:line; exit status 1 if there is one.
"""
import argparse
import pathlib
import re
import sys
import tempfile

# Module -> the modules that it may include in addition to itself. The table of src/README.md and of CMakeLists.txt
# (magister_module).
MODULES = {
    "core": set(),
    "text": {"core"},
    "monitor": {"core"},
    "device": {"core"},
    "parallel": {"core", "device"},
    "io": {"core", "parallel"},
    "model": {"core", "device", "parallel", "io"},
    "experiment": {"core", "device", "parallel", "io"},
    "engine": {"core", "device", "parallel", "model"},
    "train": {"core", "device", "parallel", "io", "model"},
    "runtime": {"core", "text", "device", "parallel", "io", "model", "engine", "experiment"},
    "run": {"core", "monitor", "text", "device", "parallel", "io", "model", "engine", "train", "experiment", "runtime"},
    "tasks": {"core", "monitor", "text", "device", "parallel", "io", "model", "engine", "train", "experiment", "runtime", "run"},
    "serve": {"core", "monitor"},
    "app": {"core", "monitor", "text", "device", "parallel", "io", "model", "engine", "train", "experiment", "runtime", "run", "tasks", "serve"},
}
# Task -> the tasks whose public headers (include/magister/tasks/<task>/) it may include, without cycles.
TASKS = {
    "teacher_logits": set(),
    "generate": set(),
    "score": {"generate"},
    "judge": {"generate"},
    "rollout": {"generate", "score", "judge"},
    "evaluate": {"score"},
    "exam": {"generate", "judge"},
    "train": {"score", "rollout", "teacher_logits"},
}
# Group of columns in results files -> the tasks that own columns in it. A path "/<group>/<column>" stands in a string of
# src/tasks/<task>/columns.h and of no other source.
COLUMNS = {**{task: {task} for task in TASKS if task != "teacher_logits"}, "teacher": {"teacher_logits"}, "evaluate": {"evaluate", "train"},
           "items": {"exam"}, "checks": {"exam"}}
# Header -> the modules that own its library. The first match counts.
OWNERS = [
    (re.compile(r"mpi(-ext|io)?\.h"), {"parallel"}),
    (re.compile(r"(nccl|nvml|cuda|cuda_runtime\w*|cuda_[a-z]\w*|driver_types)\.h"), {"device", "parallel", "model"}),
    (re.compile(r"cublas\w*\.h"), {"model"}),
    (re.compile(r"(c10|ATen)/cuda/.*"), {"device", "parallel", "model"}),
    (re.compile(r"(hdf5(_hl)?|H5\w*)\.h"), {"io"}),
    (re.compile(r"(arrow|parquet)/.*|z(lib|std)\.h"), {"io"}),
    (re.compile(r"yaml-cpp/.*"), {"core"}),
    (re.compile(r"spdlog/.*"), {"core"}),
    (re.compile(r"openssl/.*"), {"core", "serve"}),
    (re.compile(r"(httplib|sqlite3)\.h"), {"serve"}),
    (re.compile(r"pcre2\.h"), {"text"}),
    (re.compile(r"(gmp(xx)?|mpfr|mpc)\.h"), {"text"}),
    (re.compile(r"CLI/.*"), {"app"}),
    (re.compile(r"(xgrammar|dlpack)/.*"), {"engine"}),
    (re.compile(r"nlohmann/.*"), {"text", "monitor", "io", "model", "runtime", "run", "tasks", "serve", "app"}),
    (re.compile(r"torch/csrc/autograd/.*"), {"train"}),
    (re.compile(r"(ATen|c10|torch)/.*"), {"device", "parallel", "io", "model", "engine", "train", "runtime", "run", "tasks", "app"}),
    (re.compile(r"(gtest|gmock|benchmark)/.*"), set()),
]
# Owned by parallel alone, although device and model include CUDA.
NARROWER = [(re.compile(r"(nccl|nvml)\.h"), {"parallel"})]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SOURCES = (".h", ".hpp", ".cuh", ".cpp", ".cu", ".cc")


def strip_comments(text):
    """Blanks block comments and keeps line numbers; line comments cannot hide an include at the beginning of a line."""
    return re.sub(r"/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.DOTALL)


def includes(path):
    """Yields (line number, '<' or '"', header)."""
    for number, line in enumerate(strip_comments(path.read_text(encoding="utf-8")).splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def module_of(path, root):
    """The module of a file; src/main.cpp, the only file outside of a folder, counts as app."""
    parts = path.relative_to(root).parts
    if parts[:2] == ("include", "magister"):
        return parts[2] if len(parts) > 3 else "?"
    if len(parts) == 2:
        return "app" if parts[1] == "main.cpp" else "?"
    return parts[1]


def task_of(path):
    """The task of a file or header below tasks/<task>/, or None."""
    parts = pathlib.PurePath(path).parts
    at = parts.index("tasks") if "tasks" in parts else len(parts)
    return parts[at + 1] if len(parts) > at + 2 else None


def fault_of_task(task, header):
    """The fault of an include of a file of tasks/<task>/, or None."""
    other = task_of(header)
    if not other or other == task or not re.match(r"(magister/)?tasks/", header):
        return None
    if not header.startswith("magister/"):
        return f'"{header}" is private to the task {other}; another task includes only magister/tasks/{other}/'
    if other not in TASKS.get(task, set()):
        return f"the task {task} may not know the task {other} (TASKS in scripts/check_layers.py)"
    return None


def fault_of_include(module, quote, header, root):
    """The fault of one include in a file of this module, or None."""
    if header.split("/")[0] in ("..", ".") or "/../" in header:
        return f'relative include "{header}"; write "magister/<module>/x.h", or "<module>/x.h" for a private header'
    if header == "torch/torch.h" or header == "torch/all.h":
        return f"{header} costs 30 s and 1.4 GB per file; include the ATen headers that are used"
    for pattern, owners in NARROWER + OWNERS:
        if pattern.fullmatch(header):
            if module not in owners:
                return f"{header} is owned by {', '.join(sorted(owners)) or 'the tests'}, not by {module}"
            break
    if quote == "<":
        return f"{header} is ours; include it with quotes" if header.startswith("magister/") else None
    parts = header.split("/")
    if parts[0] == "magister":
        if len(parts) < 3 or parts[1] not in MODULES:
            return f'"{header}" names no module'
        target = parts[1]
        if not (root / "include" / header).is_file():
            return f'"{header}" does not exist'
    elif parts[0] in MODULES and len(parts) > 1:
        target = parts[0]  # a private header in src/<module>/
        if target != module:
            return f'"{header}" is private to {target}; a module shows others only include/magister/{target}/'
        if not (root / "src" / header).is_file():
            return f'"{header}" does not exist'
    else:
        return f'"{header}" is neither "magister/<module>/x.h" nor "<module>/x.h"; other libraries take <>'
    allowed = MODULES[module] | {module}
    if target not in allowed:
        return f"{module} may not know {target} (it may know: {', '.join(sorted(allowed))})"
    return None


def is_header_only(header):
    """True if a public header needs no src/R/x.cpp: it declares no function or method that is defined elsewhere."""
    text = re.sub(r"//[^\n]*", "", strip_comments(header.read_text(encoding="utf-8")))
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    text = re.sub(r"^\s*#(.*\\\n)*.*$", "", text, flags=re.MULTILINE)
    declared = re.compile(r"\)\s*(const\s*)?(noexcept\s*)?(override\s*)?;")
    depth = 0  # depth inside function bodies; they are removed first, since calls in them also end in ");"
    stripped, i = [], 0
    while i < len(text):  # removes every {...} after a ')' (a function body) or '=' (an initialiser)
        if text[i] == "{":
            before = "".join(stripped).rstrip()
            body = bool(re.search(r"(\)|const|noexcept|override|=|return)$", before)) or depth > 0
            depth += 1 if body else 0
            if not body:
                stripped.append("{")
        elif text[i] == "}":
            if depth > 0:
                depth -= 1
                if depth == 0:
                    stripped.append(" ")
            else:
                stripped.append("}")
        elif depth == 0:
            stripped.append(text[i])
        i += 1
    remaining = re.sub(r"(virtual[^;]*=\s*(0|default)|[^;]*=\s*(default|delete)|static_assert\([^;]*\)|friend [^;]*)\s*;",
                       ";", "".join(stripped))
    remaining = re.sub(r"using [^;]*;|typedef [^;]*;|[^;{}]*=\s*[^;]*;|\(\*\w+\)\([^;]*;", ";", remaining)
    return not declared.search(remaining)


def faults_of_mirror(root):
    """Yields public headers without an implementation (unless header-only), and directories that are no module."""
    for top in (root / "include" / "magister", root / "src"):
        for entry in sorted(top.iterdir()) if top.is_dir() else []:
            if entry.is_dir() and entry.name not in MODULES and any(path.suffix in SOURCES for path in entry.rglob("*")):
                yield f"{entry.relative_to(root)}: no such module (modules: {', '.join(MODULES)})"
    for header in sorted((root / "include" / "magister").rglob("*.h")):
        below = header.relative_to(root / "include" / "magister")
        stem = root / "src" / below.with_suffix("")
        found = any(stem.parent.glob(stem.name + ".c*")) or any(stem.parent.glob(stem.name + "_*.c*"))
        if not found and not is_header_only(header):
            yield f"{header.relative_to(root)}: declares functions, but src/{below.with_suffix('.cpp')} does not exist"
        if "#pragma once" not in header.read_text(encoding="utf-8"):
            yield f"{header.relative_to(root)}: no #pragma once"


def faults_of_names(root):
    """Yields comparisons with a task's name in app; TaskKind must tell what the program needs to know of a kind of
    tasks."""
    tasks = [path.name for path in sorted((root / "src/tasks").iterdir()) if path.is_dir()] if (root / "src/tasks").is_dir() else []
    compared = re.compile(r'[!=]=\s*"(' + "|".join(tasks or ["-"]) + r')"')
    for path in sorted((root / "src/app").rglob("*.cpp")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = compared.search(line)
            if found and "bench" not in path.relative_to(root).parts:
                yield f"{path.relative_to(root)}:{number}: app asks for the task {found.group(1)} by its name; let its TaskKind say what is asked"


TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
COLUMN = re.compile(r"(?<![\w.])/(" + "|".join(COLUMNS) + r")/\w+")


def faults_of_columns(path, name):
    """Yields the strings of a source that name a column of a task and are not in its owner."""
    text = path.read_text(encoding="utf-8")
    for token in TOKENS.finditer(text):
        found = COLUMN.search(token.group()) if token.group().startswith('"') else None
        if found and name not in {f"src/tasks/{task}/columns.h" for task in COLUMNS[found.group(1)]}:
            owners = " or ".join(sorted(COLUMNS[found.group(1)]))
            yield f"{name}:{text.count(chr(10), 0, token.start()) + 1}: names the column {found.group()} of {owners}; use the constant of its columns.h"


def check(root):
    """-> the list of faults, one line each."""
    faults = []
    for top in ("include", "src"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            module = module_of(path, root)
            if module not in MODULES:
                faults.append(f"{path.relative_to(root)}: stands in no module")
                continue
            task = task_of(path.relative_to(root))
            if task and task not in TASKS:  # its columns have no owner in COLUMNS either
                faults.append(f"{path.relative_to(root)}: TASKS in scripts/check_layers.py has no row for the task {task}; add one")
            faults += faults_of_columns(path, path.relative_to(root).as_posix())
            for number, quote, header in includes(path):
                fault = fault_of_include(module, quote, header, root)
                if not fault and task and quote == '"':
                    fault = fault_of_task(task, header)
                if fault:
                    faults.append(f"{path.relative_to(root)}:{number}: {fault}")
    return faults + list(faults_of_mirror(root)) + list(faults_of_names(root))


# Self-test: (file, text, a part of the expected message; None: the file must be accepted).
CASES = [
    ("src/core/a.cpp", '#include "magister/io/dataset.h"\n', "core may not know io"),
    ("src/tasks/generate/a.cpp", '#include "magister/tasks/judge/rules.h"\n', "generate may not know the task judge"),
    ("src/tasks/rollout/a.cpp", '#include "tasks/judge/config.h"\n', "is private to the task judge"),
    ("src/tasks/judge/a.cpp", '#include "magister/tasks/generate/texts.h"\n', None),
    ("src/tasks/poem/a.cpp", "int a;\n", "no row for the task poem"),
    ("include/magister/tasks/poem/a.h", "#pragma once\n", "no row for the task poem"),
    ("src/text/a.cpp", '#include "magister/parallel/layout.h"\n', "text may not know parallel"),
    ("src/engine/a.cpp", '#include "magister/io/dataset.h"\n', "engine may not know io"),
    ("src/run/a.cpp", '#include "magister/tasks/registry.h"\n', "run may not know tasks"),
    ("src/runtime/a.cpp", '#include "magister/run/task.h"\n', "runtime may not know run"),
    ("include/magister/model/a.h", '#pragma once\n#include "magister/engine/plan.h"\n', "model may not know engine"),
    ("src/io/a.cpp", "#include <mpi.h>\n", "mpi.h is owned by parallel"),
    ("src/model/a.cpp", "#  include <hdf5.h>\n", "hdf5.h is owned by io"),
    ("src/run/a.cpp", "#include <arrow/api.h>\n", "arrow/api.h is owned by io"),
    ("src/model/a.cpp", "#include <nccl.h>\n", "nccl.h is owned by parallel"),
    ("src/tasks/a.cpp", "#include <cuda_runtime_api.h>\n", "owned by device, model, parallel"),
    ("src/app/a.cpp", "#include <yaml-cpp/yaml.h>\n", "owned by core"),
    ("src/io/a.cpp", "#include <pcre2.h>\n", "owned by text"),
    ("src/tasks/a.cpp", "#include <xgrammar/xgrammar.h>\n", "owned by engine"),
    ("src/core/a.cpp", "#include <ATen/ATen.h>\n", "not by core"),
    ("src/model/a.cpp", "#include <torch/torch.h>\n", "costs 30 s"),
    ("src/model/a.cpp", '#include "../io/b.h"\n', "relative include"),
    ("src/model/a.cpp", '#include "io/private.h"\n', "private to io"),
    ("src/model/a.cpp", '#include "private.h"\n', "neither"),
    ("src/model/a.cpp", "#include <magister/io/dataset.h>\n", "with quotes"),
    ("src/model/a.cpp", '#include "magister/io/absent.h"\n', "does not exist"),
    ("src/attic/a.cpp", "int a;\n", "stands in no module"),
    ("src/stray.cpp", "int a;\n", "stands in no module"),
    ("include/magister/io/orphan.h", "#pragma once\nint read_orphan(int x);\n", "does not exist"),
    ("include/magister/io/orphan.h", "#pragma once\nclass O {\n public:\n  int get() const;\n};\n", "does not exist"),
    ("include/magister/io/plain.h", "struct Plain { int x = 0; };\n", "no #pragma once"),
    ("include/magister/io/plain.h", "#pragma once\nstruct Plain { int x = 0; int twice() const { return f(x); } };\n", None),
    ("include/magister/io/plain.h", "#pragma once\ninline int one() { g(); return 1; }\n", None),
    ("src/model/a.cpp", '/*\n#include <mpi.h>\n*/\n#include "magister/io/dataset.h"\n#include <vector>\n', None),
    ("src/io/a.cpp", '#include "io/private.h"\n#include <hdf5.h>\n', None),
    ("src/main.cpp", '#include "magister/app/main.h"\n', None),
    ("src/app/a.cpp", 'bool judges(const Task& task) { return task.kind() == "judge"; }\n', "asks for the task judge"),
    ("src/main.cpp", '#include "engine/private.h"\n', "private to engine"),
    ("src/tasks/evaluate/a.cpp", 'auto v = file.rows("/score/value");\n', "names the column /score/value of score"),
    ("src/tasks/score/a.cpp", 'fail("dataset /score/value is missing");\n', "names the column /score/value of score"),
    ("src/io/a.h", 'constexpr const char* k = "/teacher/top_id";\n', "of teacher_logits"),
    ("src/tasks/score/columns.h", '#pragma once\nconstexpr const char* k = "/teacher/top_id";\n', "of teacher_logits"),
    ("src/tasks/train/columns.h", '#pragma once\nconstexpr const char* k = "/evaluate/loss";\n', None),
    ("src/io/a.cpp", 'auto v = file.rows("/tokens/id"); // "/score/value"\nopen("runs/score/value.h5");\n', None),
]


def self_test():
    """Checks each case alone in a small correct tree; fails if an injected fault is not reported."""
    failed = 0
    for path, text, expected in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            sound = {"include/magister/io/dataset.h": "#pragma once\n", "include/magister/parallel/layout.h": "#pragma once\n",
                     "include/magister/model/model.h": "#pragma once\n", "include/magister/engine/plan.h": "#pragma once\n",
                     "include/magister/app/main.h": "#pragma once\n", "include/magister/tasks/registry.h": "#pragma once\n", "include/magister/run/task.h": "#pragma once\n",
                     "src/io/private.h": "#pragma once\n",
                     "src/tasks/judge/config.h": "#pragma once\n", "include/magister/tasks/judge/rules.h": "#pragma once\n",
                     "include/magister/tasks/generate/texts.h": "#pragma once\n"}
            for name, content in {**sound, path: text}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content, encoding="utf-8")
            faults = check(root)
        good = not faults if expected is None else any(expected in fault and path in fault for fault in faults)
        if not good:
            failed += 1
            print(f"self-test: {path} with {text!r}: expected {expected!r}, found {faults}")
    print(f"self-test: {len(CASES) - failed} of {len(CASES)} cases as expected")
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parents[1], type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(1 if self_test() else 0)
    faults = check(arguments.root)
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
