#!/usr/bin/env python3
"""Writes configs/guides/commands.md from the program's own help: commands_page.py PROGRAM [--check]

--check writes nothing and fails if the page differs (tests/app/commands_test.py calls it so).
"""
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "configs/guides/commands.md"
BEFORE = """# Commands and exit codes

`scripts/commands_page.py build/magister` writes this page from the program's table of commands.

`mpirun -np N build/magister COMMAND ...` starts a command on N ranks, `build/magister COMMAND ...` on one. `magister --man | man -l -` shows the
manual page. Every error is one message, `<problem> (<why it matters>); <what to do>`, and leaves no half-written result behind.
"""
MORE = {"plan": "`plan FILE.yaml plan.devices='8 x H100-80GB'` plans for GPUs that are elsewhere ([cards](../keys/layout.md#plans-for-other-machines)).",
        "status": "[A run as JSON](clusters.md#a-run-as-json) has the fields of `--json`. `watch -n 10 build/magister status runs/quickstart` follows a run.",
        "bench": "[tests/bench](../../tests/bench/README.md) has figures."}


def said(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def page(program):
    overview = said(program, "--help")
    commands = re.findall(r"^  (\S+) +\S", re.search(r"commands:\n(.*?)\n\n", overview, re.DOTALL)[1], re.MULTILINE)
    out = BEFORE
    for command in commands:
        title, rest = said(program, command, "--help").split("\n\n", 1)
        out += f"\n## {command}\n{MORE[command]}\n" if command in MORE else f"\n## {command}\n"
        out += f"```text\n{title.split(': ', 1)[1]}\n\n{rest.rstrip()}\n```\n"
    options, codes = re.search(r"\noptions:\n(.*?)\n\nexit codes:\n(.*)", overview, re.DOTALL).groups()
    out += f"\n## Without a command\n```text\n{options}\n```\n\n## Exit codes\n| code | meaning |\n|---|---|\n"
    return out + "".join(f"| {code} | {meaning} |\n" for code, meaning in re.findall(r"^  (\d+) +(.*)$", codes, re.MULTILINE))


if __name__ == "__main__":
    text = page(sys.argv[1])
    if "--check" not in sys.argv[2:]:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is not what the program says (readers would look for commands that are not there); run scripts/commands_page.py {sys.argv[1]}")
