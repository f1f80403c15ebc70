"""Prints the units in which the public headers are compiled to show that each includes all that it needs.

A header alone in a file proves that, for half a second to two seconds each. It proves as much after other headers that
lend it nothing, so that many stand in one unit:
- The libraries' headers that stand before it are among those that it includes, directly or through our headers. Headers of
  the standard library may be others, too, if all names of std in it are those of headers that it includes (STANDARD).
- Neither it nor our headers that it includes name anything that one of our headers before it declares, unless it includes
  that one, too. A header that defines operators or specialises templates lends to all, named or not.
A name that is not in STANDARD costs a unit, no more. With MAGISTER_UNITY=OFF every header is a unit.
usage: header_units.py ROOT [--alone] prints a line for each unit: module, "tensors" or "plain", headers in their order.
"tensors": all of its headers include <ATen/core/Tensor.h>, so its precompiled header lends them nothing. The module is the
highest of the unit's headers. --alone: a unit for each header. header_units.py --self-test: tries the rules on small files.
"""
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers

TENSORS = "ATen/core/Tensor.h"
# Header of the standard library: names that it declares, as far as our headers use them.
STANDARD = """
algorithm: max max_element min
array: array
atomic: atomic
bit: bit_cast
chrono: chrono
cmath: cos exp isinf log sqrt
condition_variable: condition_variable
cstddef: byte size_t
cstdint: int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
cstring: memcpy size_t
deque: deque
exception: exception exception_ptr
filesystem: filesystem
functional: function
future: shared_future
iterator: input_iterator_tag
limits: numeric_limits
list: list
map: map
memory: make_shared make_unique shared_ptr static_pointer_cast unique_ptr
mutex: lock_guard mutex unique_lock
new: bad_alloc
numbers: numbers
optional: nullopt optional
ranges: ranges
set: set
shared_mutex: shared_mutex
span: as_bytes as_writable_bytes size_t span
stdexcept: runtime_error
string: size_t string to_string
string_view: size_t string_view
thread: thread
type_traits: is_trivially_copyable_v
unordered_map: unordered_map
utility: exchange forward move pair swap
variant: variant
vector: size_t vector
"""
STANDARD_NAMES = {header: set(names.split()) for header, names in (line.split(":") for line in STANDARD.split("\n") if line)}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
ONLY_NVCC = re.compile(r"#if defined\(__CUDACC__\)\n(#include.*\n)*")
STANDARD_HEADER = re.compile(r"[a-z_]+")
NAME = re.compile(r"[A-Za-z_]\w*")
OF_LIBRARIES = re.compile(r"\b(std|at|c10|fmt|nlohmann)(::\w+)+")
# Names that stand in most headers and that no public header declares: keywords, and namespaces.
COMMON = set("""alignas alignof auto bool break case char class concept const consteval constexpr constinit const_cast continue
    decltype default define delete do double dynamic_cast else endif enum explicit extern false final float for friend goto if ifdef
    ifndef inline int long mutable namespace new noexcept nullptr operator override pragma private protected public once
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typename undef union unsigned using virtual void volatile while magister std at gpu""".split())


def plain_text(text):
    """Blanks comments, texts and characters."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    pieces = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pieces, lambda piece: '""' if piece.group()[0] == '"' else " ", text, flags=re.DOTALL)


def outside_bodies(text):
    """The text at the level of namespaces; of what is in other braces or in parentheses the open one is left. A closed brace ends a statement."""
    kept, opened = [], []
    for piece in re.findall(r"[{}()]|[^{}()]+", text):
        if piece in "{(":
            is_namespace = piece == "{" and not any(opened) and re.search(r'(\bnamespace(\s+[\w:]+)?|\bextern\s*"")\s*$', kept[-1] if kept else "")
            opened.append(not is_namespace)
            if not any(opened[:-1]):
                kept.append(";" if is_namespace else piece)
        elif piece in "})":
            if opened.pop() and piece == "}" and not any(opened):
                kept.append(";")
        elif not any(opened):
            kept.append(piece)
    return "".join(kept)


def declared_names(text):
    """-> (names, forward): what a header declares in its namespaces (macros, types, functions, constants, values of plain enums), and types
    that it only announces."""
    names, forward = set(re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)), set()
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.MULTILINE)
    for values in re.findall(r"\benum\s+(?!class|struct)[^;{]*\{([^}]*)\}", text):
        names.update(NAME.findall(values))
    for statement in outside_bodies(text).split(";"):
        shorter = None
        while shorter != statement:
            shorter, statement = statement, re.sub(r"<[^<>]*>", " ", statement)
        if announced := re.fullmatch(r"\s*(?:enum\s+)?(?:class|struct)\s+(\w+)\s*", statement):
            forward.add(announced.group(1))
            continue
        head = re.split(r"=|->|(?<!:):(?!:)", statement)[0]
        words = [word for word in NAME.findall(head) if word not in COMMON]
        if "," in head:
            names.update(words)
        elif words:
            names.add(words[-1])
            of_type = re.search(r"\b(?:struct|class|union|enum|concept|using)\b(.*)", head, re.DOTALL)
            names.update([word for word in NAME.findall(of_type.group(1)) if word not in COMMON][:1] if of_type else [])
    return names, forward - names


class Header:
    """What one public header includes, names and declares."""

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.includes, self.certain, depth = [], set(), 0
        for line in ONLY_NVCC.sub("#if 0\n", text).splitlines():
            depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
            if found := INCLUDE.match(line):
                self.includes.append(found.group(1))
                if depth == 0:
                    self.certain.add(found.group(1))
        text = re.sub(r"^\s*#\s*include.*$", "", plain_text(text), flags=re.MULTILINE)
        self.names = set(NAME.findall(OF_LIBRARIES.sub(" ", text))) - COMMON
        self.standard_names = set(re.findall(r"\bstd::(\w+)", text))
        self.declares, self.announces = declared_names(text)
        self.lends_to_all = re.search(r"\boperator\b|\btemplate\s*<\s*>", outside_bodies(text)) is not None


class Closure:
    """What a header includes directly or through our headers."""

    def __init__(self, name, headers):
        self.ours, self.libraries, self.certain = set(), set(), set()
        self.add(name, headers, True, set())
        self.names = set().union(*(headers[ours].names for ours in self.ours))
        self.announces = set().union(*(headers[ours].announces | headers[ours].declares for ours in self.ours))
        known = set().union(*(STANDARD_NAMES.get(library, set()) for library in self.certain))
        self.has_its_standard_headers = headers[name].standard_names <= known

    def add(self, name, headers, is_certain, seen):
        if (name, is_certain) in seen:
            return
        seen.add((name, is_certain))
        if name not in headers:
            self.libraries.add(name)
            if is_certain:
                self.certain.add(name)
            return
        self.ours.add(name)
        for include in headers[name].includes:
            self.add(include, headers, is_certain and include in headers[name].certain, seen)


class Unit:
    def __init__(self):
        self.headers, self.ours, self.libraries = [], set(), set()

    def lends_nothing(self, to, headers):
        lent = self.libraries - to.certain
        if to.has_its_standard_headers:
            lent -= {library for library in lent if STANDARD_HEADER.fullmatch(library)}
        if lent:
            return False
        return not any(headers[ours].lends_to_all or (headers[ours].declares | (headers[ours].announces - to.announces)) & to.names
                       for ours in self.ours - to.ours)

    def append(self, name, closure):
        self.headers.append(name)
        self.ours |= closure.ours
        self.libraries |= closure.libraries


def units_of(root, are_alone=False):
    """-> [(module, "tensors" or "plain", [header, ...]), ...]; root: the folder that holds include/."""
    include = root / "include"
    headers = {path.relative_to(include).as_posix(): Header(path) for path in sorted(include.rglob("*.h"))}
    closures = {name: Closure(name, headers) for name in headers}
    modules = list(check_layers.MODULES)
    result = []
    for kind in ("plain", "tensors"):
        units = []
        # A header comes after those that it includes, for they include less.
        for name in sorted(headers, key=lambda name: (len(closures[name].ours) + len(closures[name].libraries), name)):
            closure = closures[name]
            if (TENSORS in closure.certain) != (kind == "tensors"):
                continue
            fit = [unit for unit in units if not are_alone and unit.lends_nothing(closure, headers)]
            unit = max(fit, key=lambda unit: (len(unit.libraries), len(unit.ours)), default=None)
            if unit is None:
                unit = Unit()
                units.append(unit)
            unit.append(name, closure)
        for unit in units:
            result.append((max((name.split("/")[1] for name in unit.headers), key=modules.index), kind, unit.headers))
    return result


SELF_TEST = {
    "core/words.h": "#include <string>\nstruct Words { std::string text; };\n",
    "core/lines.h": '#include "magister/core/words.h"\nstruct Lines { Words first; };\n',
    "core/forgets_words.h": "#include <string>\ninline int length_of(const Words& words);\n",
    "core/forgets_vector.h": '#include "magister/core/words.h"\nstd::vector<int> numbers();\n',
    "core/names_all.h": '#include "magister/core/words.h"\n#include <vector>\nstd::vector<int> values();\n',
    "core/map.h": "#include <map>\n#include <string>\nstruct Map { std::map<std::string, int> content; };\n",
    "core/on_gpus.h": '#if GPU\n#include <map>\n#endif\n#include "magister/core/words.h"\nstruct OnGpus { std::map<int, int> content; };\n',
    "core/prints.h": "#include <string>\nstruct Prints { };\nstd::string operator+(Prints, int);\n",
    "core/sum.h": "#include <string>\nstd::string sum_of();\n",
    "model/rows.h": '#include <ATen/core/Tensor.h>\n#include "magister/core/words.h"\nstruct Rows {};\n',
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in SELF_TEST.items():
            path = root / "include/magister" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#pragma once\n" + text, encoding="utf-8")
        units = [[name.removeprefix("magister/") for name in unit] for _, _, unit in units_of(root)]

        def may_precede(first, second):
            return any(first in unit and second in unit[unit.index(first):] for unit in units)
        faults = [f"{first} stands before {second}, to which it lends something" for first, second in
                  (("core/words.h", "core/forgets_words.h"), ("core/lines.h", "core/forgets_words.h"), ("core/map.h", "core/on_gpus.h"),
                   ("core/map.h", "core/forgets_vector.h"), ("core/prints.h", "core/sum.h"), ("core/words.h", "model/rows.h"))
                  if may_precede(first, second)]
        faults += [f"{first} does not stand before {second}, to which it lends nothing" for first, second in
                   (("core/words.h", "core/lines.h"), ("core/words.h", "core/names_all.h")) if not may_precede(first, second)]
        if sorted(name for unit in units for name in unit) != sorted(SELF_TEST):
            faults.append("a header is in no unit, or in two")
        if len(units_of(root, are_alone=True)) != len(SELF_TEST):
            faults.append("--alone puts two headers into a unit")
    print("\n".join(faults) or f"{len(SELF_TEST)} headers in {len(units)} units")
    return 1 if faults else 0


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    for module, kind, names in units_of(pathlib.Path(sys.argv[1]), "--alone" in sys.argv):
        print(module, kind, *names)
