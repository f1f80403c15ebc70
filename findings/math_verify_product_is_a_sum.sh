#!/usr/bin/env bash
# Believed: Math-Verify reads numbers side by side in parentheses as a product, as LaTeX is read, so that 6 is the value of $2(3)$.
# Seen with math-verify 0.9.0, latex2sympy2_extended 1.11.0, antlr4-python3-runtime 4.13.2, sympy 1.14.0: they are added, as the whole number and the fraction of a mixed number are;
# with a variable, a minus or a sum in the parentheses they are multiplied. A thin space between thousands is a product, and 000 is 0.
#   $2(3)$ is 5, $(2)(3)$ is 5, $2(1/2)$ is 5/2; 6 is called wrong, 5 right
#   $2(x)$ is 2*x, $5(-2)$ is -10, $2(3+4)$ is 14
#   $1\,000$ is 0, $1\,234\,567$ is 802
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps \
  math-verify==0.9.0 latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0 mpmath==1.3.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from math_verify import parse, verify
from sympy import simplify

believed = {"$2(3)$": "6", "$(2)(3)$": "6", "$2(1/2)$": "1", "$2(x)$": "2*x", "$5(-2)$": "-10", "$2(3+4)$": "14", r"$1\,000$": "1000", r"$1\,234\,567$": "1234567"}
seen = {"$2(3)$": "5", "$(2)(3)$": "5", "$2(1/2)$": "5/2", "$2(x)$": "2*x", "$5(-2)$": "-10", "$2(3+4)$": "14", r"$1\,000$": "0", r"$1\,234\,567$": "802"}
found = {text: str(simplify(parse(text)[0])) for text in believed}
for text, value in found.items():
    print(f"{text} is {value}" + ("" if value == believed[text] else f", not {believed[text]}"))
verdicts = [verify(parse(value), parse("$2(3)$")) for value in ("$6$", "$5$")]
print(f"$2(3)$ for 6: {verdicts[0]}, for 5: {verdicts[1]}")
if found != seen or verdicts != [False, True]:
    sys.exit("the behaviour has changed")
PYTHON
