"""Length of files and functions. Over the repository's measure (350 lines a file, 60 a function) is printed as a list to read;
over the limit (600, 120) fails: there a wall is missing.

usage: check_sizes.py ROOT. Finds C++ functions by braces: a "{" outside any function whose statement holds "(" and is
neither namespace nor type opens one. Lambdas and initialisers inside count to their function.
"""
import ast
import pathlib
import re
import sys

FILE_MEASURE, FILE_LIMIT = 350, 600
FUNCTION_MEASURE, FUNCTION_LIMIT = 60, 120
# Tables and generated data are no code to read; their length says nothing.
TABLES = re.compile(r"(_table|_tables|_data)\.(h|cpp)$")


def blank(text):
    """Comments, strings and preprocessor lines blanked, line numbers kept."""
    pattern = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])+\'', re.DOTALL)
    text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return re.sub(r"^[ \t]*#([^\n]*\\\n)*[^\n]*", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.MULTILINE)


def cpp_functions(text):
    """Yields (first line, number of lines, the statement's head)."""
    text = blank(text)
    stack, statement, begin_line, line = [], "", 1, 1
    for character in text:
        if character == "{":
            in_function = any(kind == "function" for kind, _, _ in stack)
            head = re.sub(r"<[^<>]*>", "", statement)
            is_type = re.search(r"\b(namespace|class|struct|enum|union|concept)\b", head.split("(")[0]) and "(" not in head
            kind = "inner" if in_function else "function" if "(" in head and not is_type else "scope"
            stack.append((kind, begin_line, " ".join(statement.split())))
            statement = ""
        elif character == "}":
            if stack:
                kind, first, head = stack.pop()
                if kind == "function":
                    yield first, line - first + 1, head
            statement = ""
        elif character == ";" and statement.count("(") <= statement.count(")"):
            statement = ""
        elif statement or not character.isspace():
            if not statement:
                begin_line = line
            statement += character
        if character == "\n":
            line += 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def measure(path, name):
    """-> (messages to read, messages that fail) of one file."""
    text = path.read_text(encoding="utf-8")
    found = [(text.count("\n"), FILE_MEASURE, FILE_LIMIT, f"{name}: {text.count(chr(10))} lines")]
    functions = python_functions(text) if path.suffix == ".py" else [] if path.suffix == ".sh" else cpp_functions(text)
    for first, length, head in functions:
        found.append((length, FUNCTION_MEASURE, FUNCTION_LIMIT, f"{name}:{first}: {length} lines: {head[:70]}"))
    return ([message for length, measured, limit, message in found if measured < length <= limit],
            [message for length, _, limit, message in found if length > limit])


def self_test():
    body = "  call(x);\n" * 130
    sample = f"namespace a {{\nclass B {{\n  int small() const {{ return 1; }}\n}};\n\nvoid long_one(int x) {{\n{body}}}\n}}\n"
    lengths = {head: length for _, length, head in cpp_functions(sample)}
    assert lengths == {"int small() const": 1, "void long_one(int x)": 132}, lengths
    assert [length for _, length, _ in python_functions("def f():\n    a = 1\n    return a\n")] == [3]


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    warnings, faults = [], []
    for top in ("include", "src", "scripts", "tests", "jobs"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py", ".sh") and not TABLES.search(path.name):
                read, fail = measure(path, path.relative_to(root))
                warnings += read
                faults += fail
    for message in warnings:
        print(f"long: {message}")
    for message in faults:
        print(f"TOO LONG: {message}")
    print(f"{len(warnings)} to read, {len(faults)} over the limit")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
