#!/usr/bin/env python3
"""Verifiers against lm-eval's own functions, read out of the package's files (nothing of what it imports is needed): GSM8K's two filters
with its exact_match, hendrycks_math's process_results, and last_boxed_only_string with is_equiv, over the solutions that the package ships
and generated ones: numbers, fractions, roots, units, LaTeX, broken LaTeX, other scripts, text around. Where Python raises, or lm-eval has an
answer of which this project says something else, the case is named and counted. exact and regex against Python's str.strip and re."""
import ast
import collections
import json
import os
import pathlib
import random
import re
import string
import subprocess
import sys
import types

import numpy as np
import yaml

PROBE = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests", "text", "verifier_probe")
EXACT, MATH, REGEX = 0, 1, 2
MATH_VERIFY, AUTO, STRICT, FLEXIBLE, DOLLARS, BOXED = range(6)


def package_folder():
    for folder in map(pathlib.Path, sys.path):
        if (folder / "lm_eval" / "tasks").is_dir():
            return folder / "lm_eval"
    sys.exit("verifier_test.py: lm_eval is not installed (there is no oracle); run scripts/setup.sh test")


def module_of(path, **stand_ins):
    """The file's names, without its imports of packages that are not there."""
    tree = ast.parse(path.read_text())
    def foreign(node):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names] if isinstance(node, ast.Import) else []
        return any(name.split(".")[0] in ("datasets", "lm_eval", "sympy", "math_verify") for name in names)
    tree.body = [node for node in tree.body if not foreign(node)]
    names = dict(stand_ins)
    exec(compile(tree, str(path), "exec"), names)
    return types.SimpleNamespace(**names)


PACKAGE = package_folder()
ANY = types.SimpleNamespace(Dataset=object)
HENDRYCKS = module_of(PACKAGE / "tasks/hendrycks_math/utils.py", datasets=ANY)
FILTERS = module_of(PACKAGE / "filters/extraction.py", Filter=object, register_filter=lambda name: lambda made: made)
GSM8K = yaml.safe_load((PACKAGE / "tasks/gsm8k/gsm8k.yaml").read_text())


def own_function(path, name, **names):
    wanted = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == name)
    exec(compile(ast.Module([wanted], []), str(path), "exec"), names)
    return names[name]


EXACT_MATCH = own_function(PACKAGE / "api/metrics.py", "exact_match_hf_evaluate", np=np, re=re, string=string)


def gsm8k(which, completion, answer):
    arguments = {key: value for key, value in GSM8K["filter_list"][which]["filter"][0].items() if key != "function"}
    found = FILTERS.RegexFilter(**arguments).apply([[completion]], [{}])
    found = list(found)[0][0]
    metric = {key: value for key, value in GSM8K["metric_list"][0].items() if key not in ("metric", "aggregation", "higher_is_better")}
    return float(EXACT_MATCH([found], [answer], **metric)["exact_match"]), found


def boxed(text):
    return HENDRYCKS.remove_boxed(HENDRYCKS.last_boxed_only_string(text))


NUMBERS = ["0", "7", "-3", "42", "1,000", "12,345,678", "3.14", "0.5", ".5", "-.25", "1.", "18.", "$18", "$1,234.50", "100%", "007", "+5", "1_000", "-0", "٣", "2.50", "..", ",", "1e5"]
LATEX = ["\\frac{1}{2}", "\\frac12", "\\frac1{72}", "\\dfrac{3}{4}", "\\tfrac ab", "\\frac", "\\frac1", "1/2", "-3/4", "x/y", "1/2/3", "\\sqrt3", "\\sqrt{3}", "\\sqrt", "2\\sqrt 5", "x=5",
         "k = 12", "abc=3", "x=y=z", "(1,2)", "[0, 1)", "\\left(1, 2\\right)", "30^\\circ", "30^{\\circ}", "5\\text{ cm}", "5\\text{cm}", "\\text{ a}\\text{ b}", "10\\%", "10%", "\\$5",
         "\\pi", "2\\pi r", "x^2+1", "{.5}", "1 .5", "\\!1,\\!000", "a\\\\b", "é/2", "\\frac é3", "\\frac{}{}", "", " ", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "1/ 2", "01/2", "1/+2", "½", "3\n4",
         "5 = x", "\\sqrt\\sqrt2", "\\frac\\frac12", "10^{10}", "\\boxed", "$", "}", "{"]
AROUND = ["{}", "The answer is {}.", "so we get {} apples", "#### {}", "We add 2 and 3.\n#### {}\n", "$x$ is ${}$", "Then $y = {}$, which is right.", "\\boxed{{{}}}", "Thus \\boxed{{{}}}.",
          "\\boxed {}", "first \\boxed{{1}} then $\\boxed{{{}}}$.", "\\fbox{{{}}}", "\\boxed{{{}", "#### {}\nQuestion: two?\n#### 9", "###{}", "####{}", "It costs {}, or 3 each...", "Answer: {} \u2003", "答案是{}。",
          "\\boxed{{\\boxed{{{}}}}}", "- {} -", "{}\x1c", "A: {} #### "]


def shipped():
    """Real solutions: GSM8K's and MATH's examples that the package shows to models."""
    texts = []
    for path in sorted((PACKAGE / "tasks/gsm8k").glob("*.yaml")):
        samples = (yaml.load(path.read_text(), yaml.BaseLoader).get("fewshot_config") or {}).get("samples") or []
        texts += [sample["target"] for sample in samples if isinstance(sample, dict)]
    for path in sorted((PACKAGE / "tasks/minerva_math").glob("utils.py")):
        call = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == "list_fewshot_samples")
        names = {}
        exec(compile(ast.Module([call], []), str(path), "exec"), {"list": list, "dict": dict}, names)
        texts += [sample["solution"] for sample in names["list_fewshot_samples"]()]
    return texts


def varied(rng, answer):
    """An answer as another writes it."""
    changes = [lambda a: a, lambda a: a + ".", lambda a: "$" + a, lambda a: a.replace("frac", "dfrac"), lambda a: a.replace(",", ""), lambda a: a + "\\text{ cm}", lambda a: " " + a,
               lambda a: "x = " + a, lambda a: "\\left" + a, lambda a: a + "\\%", lambda a: f"\\frac{{{a}}}{{2}}", lambda a: a + "^\\circ", lambda a: "#### " + a, lambda a: f"because \\boxed{{{a}}}", lambda a: a + "\n"]
    return rng.choice(changes)(answer)


def cases(count, seed):
    rng = random.Random(seed)
    real = shipped()
    assert len(real) >= 10, len(real)
    pairs = [(text, other) for text in real for other in real[:12] + [text, varied(rng, text)]]
    while len(pairs) < count:
        if rng.random() < 0.4:
            answer = rng.choice([str(rng.randint(-9999, 99999)), f"{rng.randint(1000, 9999999):,}", f"{rng.uniform(-50, 50):.2f}", f"\\frac{{{rng.randint(1, 99)}}}{{{rng.randint(1, 99)}}}",
                                 f"{rng.randint(-9, 99)}/{rng.randint(1, 99)}", f"{rng.randint(2, 9)}\\sqrt{{{rng.randint(2, 99)}}}", f"\\frac{rng.randint(1, 9)}{rng.randint(1, 9)}"])
        else:
            answer = rng.choice(NUMBERS + LATEX)
        given = answer if rng.random() < 0.6 else varied(rng, rng.choice(NUMBERS + LATEX) if rng.random() < 0.4 else answer)
        pairs.append((rng.choice(AROUND).format(given), varied(rng, answer) if rng.random() < 0.6 else answer))
    return pairs


def ask(entries):
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    done = subprocess.run([PROBE], input=lines.encode(), stdout=subprocess.PIPE, check=True, timeout=1200)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(entries), (len(answers), len(entries))
    return answers


def expected(rule, completion, answer):
    """(score, why it is not lm-eval's own, or None)."""
    if rule in (STRICT, FLEXIBLE):
        value, found = gsm8k(rule - STRICT, completion, answer)
        return (0.0, "nothing found, and the answer is the filter's word for that") if found == "[invalid]" and value == 1 else (value, None)
    try:
        reference = boxed(answer)
        why = None
    except Exception:  # an answer without a box is taken as it stands; lm-eval's data have boxes
        framed = HENDRYCKS.last_boxed_only_string(answer) if "\\boxed" not in answer and "\\fbox{" in answer else None
        reference, why = (framed[len("\\fbox{"):-1], "\\fbox") if framed else (answer, "no box in the answer")
    if rule == DOLLARS:
        if why is None:
            return float(HENDRYCKS.process_results({"solution": answer}, [completion])["exact_match"]), None
        places = [i for i, c in enumerate(completion) if c == "$"]
        found = completion if len(places) <= 1 else completion[places[0] + 1:places[-1]]
        return float(HENDRYCKS.is_equiv(found, reference)), why
    try:
        found = boxed(completion)
    except Exception:
        found = HENDRYCKS.last_boxed_only_string(completion)
        if found is None or not found.startswith("\\fbox{"):
            return 0.0, "no box in the completion"
        found, why = found[len("\\fbox{"):-1], "\\fbox"
    return float(HENDRYCKS.is_equiv(found, reference)), why


def compare_with_lm_eval(plain):
    pairs = plain
    named = collections.Counter()
    for rule, name in ((STRICT, "strict-match"), (FLEXIBLE, "flexible-extract"), (DOLLARS, "process_results"), (BOXED, "last_boxed")):
        if rule in (DOLLARS, BOXED):  # MATH's answers have a box
            pairs = [(c if rule == DOLLARS or i % 5 == 0 or "\\boxed" in c else f"so \\boxed{{{c}}}.", a if i % 5 == 1 or "\\boxed" in a else f"It is \\boxed{{{a}}}.") for i, (c, a) in enumerate(plain)]
        got = ask([{"kind": MATH, "rule": rule, "completion": c, "answer": a} for c, a in pairs])
        right = 0
        for (completion, answer), (score, *_) in zip(pairs, got):
            value, why = expected(rule, completion, answer)
            assert score == value, f"{name}: {completion!r} for {answer!r}: {score}, lm-eval {value} ({why})"
            right += value == 1
            named[f"{name}: {why}" if why else f"{name}: lm-eval's own"] += 1
        assert 0.01 * len(pairs) < right < 0.99 * len(pairs), (name, right)
        print(f"{name}: {len(pairs)} equal, {right} of them right")
    for why, count in sorted(named.items()):
        print(f"  {why}: {count}")


# What the rule `auto` must say: this project's own, so each case is written down.
AUTO_CASES = [("so it is \\boxed{\\frac{1}{2}}", "1/2", 1), ("\\boxed{0.5}", "\\frac12", 1), ("The total is $1,234.50.", "1234.5", 1), ("He pays 18 dollars", "#### 18", 1), ("#### 7\nQ: next\n#### 9", "7", 1),
              ("that is 18.00.", "18", 1), ("(1,2)", "12", 0), ("\\boxed{(1,2)}", "(1,2)", 1), ("\\boxed{(1, 2)}", "(12)", 0), ("\\boxed{1,000}", "1000", 1), ("\\boxed{1,2}", "12", 0),
              ("30^\\circ is \\boxed{30^\\circ}", "30", 1), ("\\boxed{5\\text{ cm}}", "5", 1), ("\\boxed{10\\%}", "10", 1), ("none here", "5", 0), ("", "", 0), ("5", "", 0), ("\\boxed{}", "", 1), ("-7", "7", 0),
              ("it is -3", "-3", 1), ("x = \\boxed{x=5}", "5", 1), ("\\boxed{.5}", "0.50", 1), ("\\boxed{\\sqrt3}", "We get \\boxed{\\sqrt{3}}.", 1), ("100", "1e2", 0), ("\\boxed{2\\frac", "2", 1),
              ("I think 7...", "7", 1), ("It is 7 , or so ... right?", "7", 1), ("The number is 7, ok.. ,,", "7", 1), ("...7", "7", 1), ("so .5", "0.5", 1), ("it is 3/4.", "3/4", 1), ("It is 3/4 of them", "\\frac{3}{4}", 1),
              ("#### 3/4", "#### 3/4", 1), ("-3/4", "\\frac34", 0), ("-3/4", "-3/4", 1), ("on 11/23/2026", "23/2026", 0), ("on 11/23/2026", "2026", 1), ("and/5", "5", 1), ("7/", "7", 1), ("3/4/", "3/4", 1), ("The answer is $5$.", "5", 1), ("so $x = 42$.", "42", 1), ("$-5$", "-5", 1), ("$5.$", "5", 1), ("5$", "$5$", 1), ("The answer is $1/2$.", "1/2", 1), ("#### $1/2$", "1/2", 1),
              ("-3/4", "-\\frac{3}{4}", 1), ("\\boxed{-3/4}", "-\\frac34", 1), ("-3/4", "\\frac{3}{4}", 0), ("1,000/2", "1000/2", 1), ("#### 1,234/5", "1234/5", 1), ("1.0/2", "1/2", 1), ("-0", "0", 1), ("-0.0", "0", 1), ("....", "5", 0), ("....", "", 0)]
# Units on either side, every sign for a minus, and ranges.
AUTO_CASES += [("50%", "50%", 1), ("50%", "50", 1), ("50", "50%", 1), ("\\boxed{50%}", "50", 1), ("\\boxed{50\\%}", "50%", 1), ("0.5", "50%", 0), ("It is 50 %.", "50%", 1), ("7 apples", "7 apples", 1), ("7", "7 apples", 1),
               ("He has 7 apples.", "7 apples", 1), ("He has 7 apples.", "#### 7 apples", 1), ("8 apples", "7 apples", 0), ("\\boxed{7 apples}", "7", 1), ("5 cm", "5 cm", 1), ("5cm", "5 cm", 1), ("5 m", "5 m", 1), ("60 km/h", "60 km/h", 1),
               ("3/4 cups", "3/4 cup", 1), ("30°", "30°", 1), ("-3 °C", "-3°C", 1), ("€1,200", "1200 €", 1), ("−£5", "-5", 1), ("−£5", "5", 0), ("1,000 square feet", "1,000 square feet", 1), ("7 apples", "8 apples", 0),
               ("2", "2x", 0), ("2", "2 x", 0), ("2", "2 pi", 0), ("2", "2pi", 0), ("7", "7 or 8", 0), ("5", "5 million", 0), ("2", "2 sqrt 3", 0), ("\\boxed{2x}", "2", 0), ("\\boxed{5 mod 7}", "5", 0), ("5", "5 + x", 0), ("5", "5m", 0), ("7", "7 more than x", 0), ("3", "3 fifths", 0), ("5", "5 squared", 0), ("90 sec", "90 sec", 1),
               ("\\boxed{2 pi}", "2 pi", 1), ("5 cm^2", "5", 0), ("5", "5/", 0), ("3", "3 °x", 0), ("apples", "apples", 0)]
# Thousands and units as LaTeX writes them, and what only looks like them.
AUTO_CASES += [(f"\\boxed{{{given}}}", "9500", 1) for given in ("9{,}500", "9\\,500", "9,\\!500", "9\\!,500", "$9{,}500", "\\$9{,}500", "\\$9,500", "9{,}500\\%", "9,500\\text{ dollars}", "9{,}500\\text{ dollars}", "x=9,500",
                                                              "9~500", "9\\;500", "9\u202f500", "9\u00a0500", "9\u2009500.0", "9,500\\,\\text{km}", "9500\\mathrm{km}", "\\textbf{9500}", "\\text{9{,}500}", "9{,}500.00")]
AUTO_CASES += [("The answer is $9{,}500.", "9500", 1), ("So it is $9{,}500$ in all.", "9500", 1), ("so 1{,}234{,}567", "1234567", 1), ("\\boxed{1\\,234\\,567}", "1234567", 1), ("#### 9{,}500", "9500", 1), ("9500", "\\$9{,}500", 1),
               ("\\boxed{9{,}500/2}", "9500/2", 1), ("9{,}500", "500", 0), ("\\boxed{28\\,\\text{cm}}", "28", 1), ("\\boxed{28~\\mathrm{cm}}", "28 cm", 1), ("\\boxed{\\text{Monday}}", "Monday", 1), ("\\boxed{\\text{Monday}}", "Sunday", 0),
               ("\\boxed{0{,}125}", "125", 0), ("\\boxed{0{,}125}", "0125", 0), ("\\boxed{(9{,}500)}", "9500", 0), ("\\boxed{1{,}50}", "150", 0), ("\\boxed{1{,}5000}", "15000", 0), ("\\boxed{9500{,}123}", "9500123", 0), ("\\boxed{1.234{,}567}", "1.234567", 0),
               ("in 2020\u00a0300", "300", 1), ("\\boxed{2\\,\\text{pi}}", "2", 0), ("\\boxed{(1{,}2)}", "(1,2)", 0), ("\\boxed{3\\,x}", "3x", 1)]
for minus in "-\u2010\u2011\u2012\u2013\u2212\uFE63\uFF0D":
    AUTO_CASES += [(f"The result is {minus}5", "-5", 1), (f"The result is {minus}5", "5", 0), (f"{minus}5", f"{minus}5", 1), (f"#### {minus}5", "-5", 1), (f"\\boxed{{{minus}5}}", "-5", 1), (f"({minus}5)", "-5", 1), (f"答案是{minus}5", "-5", 1),
                   (f"{minus}$5", "-5", 1), (f"${minus}5$", "-5", 1), (f"it is {minus}.5", "-0.5", 1), (f"{minus}3/4", "-3/4", 1), (f"3{minus}5", "5", 1), (f"3{minus}5", "-5", 0), (f"10%{minus}20%", "20", 1), (f"$3{minus}$5", "5", 1),
                   (f"model{minus}4", "4", 1), (f"3 {minus} 5", "5", 1), (f"2 {minus} {minus}5", "-5", 1), (f"\\boxed{{3{minus}5}}", "3-5", 1), (f"x = {minus}5", f"#### {minus}5", 1)]


def check_own_rules():
    got = ask([{"kind": MATH, "rule": AUTO, "completion": c, "answer": a} for c, a, _ in AUTO_CASES])
    for (completion, answer, value), (score, *_) in zip(AUTO_CASES, got):
        assert score == value, f"auto: {completion!r} for {answer!r}: {score}, expected {value}"
    # Of one class: the same answer.
    classes = [entry[2] for entry in ask([{"kind": MATH, "rule": AUTO, "completion": c, "answer": ""} for c in ("$18.", "#### 18", "\\boxed{18.0}", "I think 18", "19", "nothing")])]
    assert len(set(classes[:4])) == 1 and classes[4] not in classes[:4] and classes[5] is None, classes
    print(f"auto: {len(AUTO_CASES)} cases")


def check_exact_and_regex(pairs):
    spaces = [chr(c) for c in range(0x3100) if chr(c).isspace()] + ["\u200b", "\u180e", "\ufeff"]
    rng = random.Random(5)
    texts = [(rng.choice(spaces) + c + rng.choice(spaces), rng.choice(spaces) + rng.choice([a, c]) + rng.choice(spaces)) for c, a in pairs[:1500]]
    for (completion, answer), (score, found, _) in zip(texts, ask([{"kind": EXACT, "completion": c, "answer": a} for c, a in texts])):
        assert found == completion.strip() and score == float(completion.strip() == answer.strip()), (completion, answer, score, found)
    # To Python's \s the four separators of ASCII are spaces, to Unicode's not.
    pairs = [(re.sub("[\x1c-\x1f]", " ", c), a) for c, a in pairs]
    patterns = [r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"\$(.*?)\$", r"answer is (\S+)", r"(?i)THE|\bwe\b", r"x*(\d?)", r"(?s)\\boxed\{(.*)\}", r"[.]\s*$", r"(\w)(?=\W*$)"]
    for pattern in patterns:
        for last in (False, True):
            got = ask([{"kind": REGEX, "pattern": pattern, "last": last, "completion": c, "answer": a} for c, a in pairs[:1500]])
            oracle = FILTERS.RegexFilter(pattern, -1 if last else 0, fallback="\0none")
            for (completion, answer), (score, found, _) in zip(pairs, got):
                if re.compile(pattern).groups == 0:
                    assert score == float(re.search(pattern, completion) is not None), (pattern, completion, score)
                    continue
                value = oracle.apply([[completion]], [{}])[0][0]
                wanted = None if value in ("\0none", "") else value
                assert found == wanted and score == float(wanted is not None and wanted == answer.strip()), (pattern, last, completion, answer, score, found, wanted)
    faults = ask([{"kind": REGEX, "pattern": p, "completion": "a" * 40, "answer": ""} for p in ("(", "", "[z-a]", "(a+)+$b", "\\p{Nope}")])
    assert "does not compile" in faults[0] and "is empty" in faults[1] and faults[3][0] == 0.0 and "does not compile" in faults[2] and "does not compile" in faults[4], faults
    # Too many ways to match: no match, where it was an error of the whole job.
    prose = "the answer of all of these many words is " * 3 + "x = 5"
    for last in (False, True):
        score, found, _ = ask([{"kind": REGEX, "pattern": "(?:[a-z ]+)+=([0-9])", "last": last, "completion": prose, "answer": "5"}])[0]
        assert (score, found) == (0.0, None), (score, found)
    print(f"exact: 1500 equal; regex: {len(patterns)} patterns x 2 x 1500 equal")


def main():
    pairs = cases(6000, 20)
    compare_with_lm_eval(pairs)
    check_own_rules()
    check_exact_and_regex(pairs)


if __name__ == "__main__":
    main()
