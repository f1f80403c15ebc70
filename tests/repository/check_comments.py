"""Comments of the C++ files: no line over 120 columns, and no fragment that begins with "Of", "What" or "Whether".

usage: check_comments.py ROOT. A fragment lacks its noun: "// Of a device, by part." or "// What the tests share." (CONTRIBUTING.md shows
what to write instead). Questions and sentences with a verb of their own, such as "What follows is not read.", are no fragments; where the
difference is not clear to the patterns below, a comment passes.
"""
import pathlib
import re
import sys

COLUMNS = 120
COMMENT = re.compile(r'R"(\w*)\(.*?\)\1"|(//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
# First sentences that begin with one of the words and are whole.
VERBS = r"is|are|was|were|must|may|can|cannot|has|have|does"
WHOLE = [re.compile(pattern) for pattern in (
    r".*\?$",
    r"What (follows|comes) ",
    rf"What \w+s .*\b({VERBS}|becomes?|shows?|counts?|stays?|ends?)\b",
    r"What .+ (((is|are) (is|are|a|an|the|no|not|one|what|\w+ed))|was|were|becomes?|happens?|goes|leaves?|stands?|refuses)\b",
    rf"What .+, ({VERBS})\b",
    r"Whether .+ ((is|are) \w+(ed|own|en)|depends?|matters?|decides?|shows?)\b",
    r"Of .*\b(there (is|are)|brings?|wins?)\b",
    r"Of .+, an? .*\bis\b",
    rf"Of .*\b(it|they|none|nobody|(the|no|only|every|each|all|one) \w+( ones?)?) ({VERBS}|gets?|counts?|stays?|stops?|differs?|takes?|knows?)\b")]


def comments(text):
    """Yields (line, column of its end, the comment's text without its mark, whether it begins a block)."""
    last_line = -1
    for found in COMMENT.finditer(text):
        if found.group(2) is None:
            continue
        begin = text.rfind("\n", 0, found.start()) + 1
        first = text.count("\n", 0, found.start()) + 1
        alone = not text[begin:found.start()].strip()
        for i, part in enumerate(found.group(2).split("\n")):
            column = (found.start() - begin if i == 0 else 0) + len(part)
            yield first + i, column, part.strip("/* \t"), i == 0 and not (alone and last_line == first - 1)
        last_line = first + found.group(2).count("\n") if alone else -1


def is_fragment(comment):
    if not re.match(r"(Of|What|Whether) ", comment):
        return False
    sentence = re.match(r"(.*?(?:[?]|[.:;](?=\s|$)|$))", comment).group(1).rstrip(".:;")
    return not any(pattern.match(sentence) for pattern in WHOLE)


def faults_of(text):
    for line, column, comment, begins in comments(text):
        if column > COLUMNS and " " in comment:
            yield line, f"a comment ends in column {column} ({COLUMNS} are allowed; break the line)"
        if begins and is_fragment(comment):
            yield line, f'"{comment[:60]}" is a fragment (its noun is missing; write what it is)'


def self_test():
    bad = ["// Of a device, by part.\nint a;", "int a;  // Of a device\n", "// What the tests share: a folder.\n", "// Whether it is there.\n",
           "// What may come next, as sample_token() takes it\n", "/* Of this process, from those files. */\n", "// " + "word " * 30 + "\n",
           "const char* b = \"//\";  // Of a rank\n", "f('\"');  // What a draw depends on\n"]
    good = ["// Memory of a device, itemised.\n// Of these the first is used.\n", "// What follows is not read.\n", "// What stays must have a text.\n",
            "// What is wrong here?\n", "// Whether it fits is checked below.\n", "const char* a = \"// Of a device\";\n", "R\"(\n// Of a device\n)\"\n",
            "// https://" + "x" * 130 + "\n", "const char* a = \"" + "word " * 30 + "\";\n", "// Of two equal names, the last one counts.\n", "// Of two equal names none is refused.\n",
            "// What cannot be done leaves no file behind.\n",
            "int a = 1'000'000;  // a million\n", "// Offsets.\n"]
    for text in bad:
        assert len(list(faults_of(text))) == 1, (text, list(faults_of(text)))
    for text in good:
        assert not list(faults_of(text)), (text, list(faults_of(text)))


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    faults = 0
    for top in ("include", "src", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                for line, fault in faults_of(path.read_text(encoding="utf-8")):
                    print(f"{path.relative_to(root)}:{line}: {fault}")
                    faults += 1
    print(f"{faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
