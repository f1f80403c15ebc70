"""One page about results files: what stands in them, and how their run went. scripts/report.py is the command.

results_file.py reads columns in pieces, histogram.py and tasks.py make numbers of them, run_log.py reads run.jsonl, page.py draws.
"""
import json
import math

USAGE, DATA, INPUT_OUTPUT, CONFIGURATION = 64, 65, 74, 78  # the program's exit codes


class ReportError(Exception):
    """Ends the command with one message, `<problem> (<why it matters>); <what to do>`."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def printable(text, longest=100):
    """Foreign text for a message or the page: one line, nothing that moves a cursor, not endless."""
    text = "".join(character if character.isprintable() else "?" for character in str(text))
    return text if len(text) <= longest else text[:longest - 3] + "..."


def finite_number(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value


def json_of(text):
    """Strict JSON: Python's own reader also takes NaN, Infinity and 1e999, which --json could not hand on. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=finite_number, parse_float=finite_number)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deep") from error
