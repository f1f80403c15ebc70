#!/usr/bin/env python3
"""The rule math_verify against Math-Verify itself (PyPI, pinned) on generated pairs of every kind that it is for (math_pairs.py): at least 97 of 100 verdicts
alike, and at most 3 of 1,000 where Math-Verify says no and the rule yes, but for what stands in MISTAKES, where Math-Verify is wrong; then pairs whose
verdict is written down: the forms of GSM8K, MATH, AIME and multiple choice, mistakes of Math-Verify, bounds, texts that are none.
usage: math_verify_test.py [NUMBER OF PAIRS [SEED]]. Without a number 640, which take Math-Verify about ten seconds; 3,200 are asked for before a release.
MAGISTER_TEST_SEED chooses others.   math_verify_test.py --own FOLDER: on the pairs of Math-Verify's own tests, in a clone of its repository; not part of CI."""
import ast
import collections
import json
import logging
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import math_pairs
from math_verify import parse, verify

PROBE = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests", "text", "verifier_probe")
MATH, MATH_VERIFY = 1, 0
MILLISECONDS = 30  # at most, for any pair: 10 where nothing else runs, and tests run beside each other
# Where Math-Verify says no to what is right: in which texts, and what it does there.
MISTAKES = [
    (r"[a-zA-Z]\(\d", "f(3) = n is n: a number stands left of ="),
    (r"\\[\[(] .*(text|mbox|mathrm)\{", "a unit in \\[ \\] or \\( \\) is a variable"),
    ("\u20ac", "a euro sign in a formula"),
    (r"\\(times|cdot) 10\^", "a decimal times a power of ten that is a whole number"),
    (r"dollars\}", "the unit `dollars` is a product of letters"),
]


def oracle(gold, text):
    def too_long(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    try:
        return bool(verify(parse(gold, parsing_timeout=None), parse(text, parsing_timeout=None), timeout_seconds=None))
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)


def ask(pairs):
    lines = "".join(json.dumps({"kind": MATH, "rule": MATH_VERIFY, "completion": text, "answer": gold}) + "\n" for gold, text in pairs)
    done = subprocess.run([PROBE], input=lines.encode(), stdout=subprocess.PIPE, check=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(pairs), (len(answers), len(pairs))
    return answers


def judge(pairs):
    """-> (score, why it was not compared, milliseconds of CPU time) of each."""
    lines = "".join(json.dumps({"kind": MATH, "rule": MATH_VERIFY, "completion": text, "answer": gold, "judge": True}) + "\n" for gold, text in pairs)
    done = subprocess.run([PROBE], input=lines.encode("utf-8", "surrogatepass"), stdout=subprocess.PIPE, check=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(pairs), (len(answers), len(pairs))
    return answers


def check_time_and_verdicts(pairs, what):
    """Twice: the same, and no pair takes longer than it may (another process may take the CPU's caches meanwhile: the faster of two or three)."""
    first, second = judge(pairs), judge(pairs)
    assert [one[:2] for one in first] == [one[:2] for one in second]
    times = [min(a[2], b[2]) for a, b in zip(first, second)]
    slow = [i for i, time_of in enumerate(times) if time_of > MILLISECONDS]
    for i, again in zip(slow, judge([pairs[i] for i in slow])):
        times[i] = min(times[i], again[2])
    worst = max(range(len(pairs)), key=times.__getitem__)
    print(f"{len(pairs)} {what}: the slowest took {times[worst]:.2f} ms, all {sum(times) / 1000:.2f} s")
    assert times[worst] <= MILLISECONDS, (times[worst], pairs[worst][0][:200], pairs[worst][1][:200])
    return first


def compare_with_math_verify(count, seed):
    pairs = math_pairs.pairs(count, seed)
    begin = time.process_time()
    theirs = [oracle(gold, text) for gold, text, *_ in pairs]
    spent = time.process_time() - begin
    ours = [bool(score) for score, *_ in ask([(gold, text) for gold, text, *_ in pairs])]
    alike, unlike, faults = 0, [], collections.Counter()
    for (gold, text, meant, kind), one, other in zip(pairs, theirs, ours):
        alike += bool(one) == other
        if bool(one) == other:
            continue
        why = next((why for pattern, why in MISTAKES if other and meant and re.search(pattern, gold + text)), None)
        if why:
            faults[why] += 1
        else:
            unlike.append((gold, text, kind, other))
    for gold, text, kind, other in unlike:
        print(f"  {kind}: {gold!r} and {text!r}: {'yes' if other else 'no'}, Math-Verify the other way")
    too_kind = sum(other for *_, other in unlike)
    print(f"{count} pairs of {len(math_pairs.KINDS)} kinds, {sum(map(bool, theirs))} right by Math-Verify: {alike} alike ({alike / count:.2%}), {sum(faults.values())} of its mistakes, {too_kind} others where only this rule says yes; it took {spent:.0f} s")
    for why, number in faults.most_common():
        print(f"  {number}: {why}")
    assert alike >= 0.97 * count, (alike, count)
    assert too_kind <= max(0.003 * count, 1), unlike
    right = sum(map(bool, theirs))
    assert 0.35 * count < right < 0.65 * count, right


# Gold answer, text, whether it is right. Of these Math-Verify says the opposite, and is wrong.
AGAINST_MATH_VERIFY = [
    ("$2(3)$", "6", 1, "2(3) is read as 2 + 3"), ("$(2)(3)$", "6", 1, "(2)(3) as 2 + 3"), ("$1\\,000$", "1000", 1, "as 1 times 0"), ("$2 1/3$", "7/3", 1, "as 1"), ("$0.1x+0.2x$", "$0.3x$", 1, "floating-point numbers"),
    ("$\\log_2 x$", "$\\ln x/\\ln 2$", 1, "ln x / ln 2 is read as ln(x / ln 2)"), ("$1<x<2$", "$2>x>1$", 1, "a chain turned round"), ("$x\\ne5$", "$5\\ne x$", 1, "turned round"), ("$(0,3)\\cap(1,4)$", "$(1,3)$", 1, "intersections"),
    ("$\\lg 100$", "2", 1, "lg is not read"), ("$(1+i)^2$", "$2i$", 1, "i is a variable"), ("$e^{i\\pi}$", "$-1$", 1, "i is a variable"), ("$7$", "$\u20ac7$", 1, "the sign of money"), ("$5$", "$5$ people", 1, ""), ("$x^2=4$", "$4$", 0, ""),
    ("\\frac{1}{2}", "$0.5$", 1, "a gold answer without dollars"), ("x^2+1", "\\boxed{1+x^2}", 1, "a gold answer without dollars"), ("(3, \\frac{\\pi}{2})", "$\\left(3, \\pi/2\\right)$", 1, "a gold answer without dollars"),
]
# The forms of data sets.
PLANTED = [("We add.\n#### 1,234", "So it is $1,234."), ("#### -7", "The answer is -7"), ("#### 18", "He pays $18.00"), ("The sum is $\\boxed{\\frac{3}{4}}$.", "Thus $\\boxed{0.75}$"), ("Then $x = \\boxed{2\\sqrt{3}}$.", "\\boxed{\\sqrt{12}}"), ("204", "\\boxed{204}"),
           ("025", "\\boxed{25}"), ("73", "**Final Answer**\n\\boxed{073}"), ("C", "The answer is (C)."), ("(B)", "so the answer is B"), ("D", "\\boxed{D}"), ("\\text{(E)}", "\\boxed{\\text{(E)}}"), ("$\\textbf{(A)}$", "\\boxed{A}"), ("B", "Answer: B"), ("A", "**A**")]
BOUNDS = ["a_", "5\\text{cm}^", "10^{10^{10}}", "1000000!", "((10!)!)!", "2^{2^{2^{2^{2^{2}}}}}", "\\sin(10^{1000})", "\\sum_{k=1}^{1000000}k", "\\binom{1000000}{500000}", "\\frac{1}{0}", "(" * 3000 + "1" + ")" * 3000, "-" * 60000 + "1", "1+" * 30000 + "1", "x" * 60000, "{" * 30000, "\\sqrt{" * 500 + "2" + "}" * 500,
          "2^" * 1000 + "2", "|" * 500 + "x" + "|" * 500, "9" * 60000, "0." + "3" * 60000, ",".join(map(str, range(3000))), "\\frac" * 5000, "\\begin{pmatrix}" * 200, "\\max(" + ",".join("x" for _ in range(1000)) + ")", "x^{x^{x^{x}}}", "\\tan(\\pi/2)", "0^{-1}", "0^0", "\\ln 0", "(-1)^{x}", "1/(x-x)", "\\gcd(0,0)",
          "5\\mod 0", "\\log_1 5", "\\sqrt[0]{5}", "(-5)!", "\\lfloor i \\rfloor", "\\infty-\\infty", "0\\cdot\\infty", "[\\infty,1]", "\\{\\}", "()", "\ufffd\u0000", "\\", "$", "\\frac{}{}", "^2", "_", "\\left(", "\\text{", "a_{b_{c_{d}}}", "\\mathbb{R}^2", "\\int_0^1 x dx"]


def planted(seed):
    rng = random.Random(seed)
    pairs = [(gold, text, True) for gold, text in PLANTED]
    for _ in range(100):
        n = rng.randint(0, 999)
        pairs += [(f"Some steps.\n#### {n * 37:,}", f"We add.\n#### {n * 37}", True), (f"Some steps.\n#### {n}", f"The answer is {n + 1}.", False), (f"{n:03d}", f"Hence the answer is $\\boxed{{{n}}}$.", True), (f"{n}", f"\\boxed{{{n + 1}}}", False),
                  (f"It is $\\boxed{{\\frac{{{n + 1}}}{{7}}}}$.", f"\\boxed{{{n + 1}/7}}", True), (f"It is $\\boxed{{\\frac{{{n + 1}}}{{7}}}}$.", f"\\boxed{{{n}/7}}", False)]
        a, b = rng.sample("ABCDE", 2)
        pairs += [(a, f"The correct answer is ({a}).", True), (a, f"The correct answer is ({b}).", False), (f"({a})", f"\\boxed{{{a}}}", True), (a, f"\\boxed{{\\text{{({b})}}}}", False)]
    return pairs


def check_written_pairs():
    for gold, text, value, why in AGAINST_MATH_VERIFY:
        assert ask([(gold, text)])[0][0] == value, (gold, text, why)
    pairs = planted(7)
    wrong = [(pair, score) for pair, (score, *_) in zip(pairs, ask([pair[:2] for pair in pairs])) if bool(score) != pair[2]]
    assert not wrong, wrong[:5]
    print(f"{len(AGAINST_MATH_VERIFY)} mistakes of Math-Verify, {len(pairs)} planted pairs")


def check_bounds():
    answers = check_time_and_verdicts([(f"${one}$", f"\\boxed{{{other}}}") for one in BOUNDS for other in (one, "1", "x")], "pairs at bounds")
    for gold, text, value, why in [("$10^{10^{10}}$", "$10^{10^{10}}$", 1, "compared"), ("$10^{10^{10}}$", "$10^{10^{11}}$", 0, "not_computed"), ("$1000000!$", "$1000001!$", 0, "not_computed"), ("$\\sin(10^{1000})$", "$0$", 0, "not_computed"),
                                   ("$5$", "none here", 0, "nothing_found"), ("$5$", "$\\frac{1}{}$", 0, "not_read"), ("$5$", "\\boxed{" + "(" * 300 + "5" + ")" * 300 + "}", 0, "too_long"), ("$5$", "5 " * 40000, 0, "too_long"),
                                   ("about five people, I think", "5", 0, "gold_not_read"), ("$5$", "$(1,2)$", 0, "not_comparable"), ("$5$", "$\\frac{1}{0}$", 0, "not_computed"), ("$5$", "$6$", 0, "compared"), ("$\\{1, 10^{10^{10}}\\}$", "$\\{1, 10^{10^{11}}\\}$", 0, "not_computed"),
                                   ("$\\{1, 2\\}$", "$\\{1, 3\\}$", 0, "compared"), ("$x=5$", "$x>5$", 0, "compared")]:
        score, reason, _ = judge([(gold, text)])[0]
        assert (score, reason) == (value, why), (gold[:80], text[:80], score, reason)
    return answers


# What grows with a text where it is written again and again, closes or does not.
FRAGMENTS = ["$", "$$", "\\[", "\\(", "\\boxed{", "\\boxed{1}", "\\boxed{1} and ", "{", "}", "(", ")", "(1+", "1+", "(1)", "-", "- ", "1 ", "1,", "1/", "/", "\\frac{", "\\frac{1}{", "2\\frac{", "\\frac12", "2\\frac{2}{3}", "\\sqrt{", "\\sqrt[", "\\text{", "\\text{a}", "\\mathrm", "\\left",
             "\\left(", "\\begin{pmatrix}", "\\begin{pmatrix}1&", "&", "\\\\", "|", "|x|", "x", "x^", "x_", "x_{", "x!", "5%", "\\%", "x/", "x+", "f(x", "f(", "f(x)", "\\sin", "\\sin(", "\\sin x ", "\\log_", "\\ln ", "2^", "2^{", "10^{", "99999!", "99999999", "1.5e5", "e", "\\cup", "[1,2]\\cup", "(1,2),", "\\{1,", "\\{", "x=1,", "x<", "x<1<",
             "x=", "=", "\\pm", "\\pm x", "answer ", "The answer is ", "Final answer: 1 ", "#### ", "####1", "\u2212", "\u20135", "\u00e9", "\U0001F600", "\u6570", " ", "\n", "\t1", "\\", "\\$", "A ", "(A) ", "\\sum_{k=1}^{999}", "\\binom{1048576}{2000}", "2000!,", "\\lcm(", "\\tan(10^{99}i)", "\\arcsin(", "\\overline{", "0.\\overline{3}", "\\cdot", "5\\text{cm}", "1{,}", "1\\,"]


def mutated(rng, text):
    for _ in range(rng.randint(1, 6)):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        part = rng.choice([rng.choice(FRAGMENTS), text[at:end], chr(rng.choice([rng.randint(0, 127), rng.randint(0, 0x2fff), rng.randint(0x1f300, 0x1f6ff)]))])
        choice = rng.random()
        text = text[:at] + text[end:] if choice < 0.3 else text[:at] + part + text[at:] if choice < 0.9 else text[:at] + part * rng.randint(2, 60) + text[at:]
    return text[:70000]


def check_any_text(seed):
    """No text ends a run, none takes long: fragments over and over up to the bound of 64 kB, mixtures of them, and pairs that are spoilt."""
    rng = random.Random(seed)
    long_ones = [one * (65000 // len(one.encode("utf-8", "surrogatepass"))) for one in FRAGMENTS] + ["".join(rng.choices(rng.sample(FRAGMENTS, rng.randint(2, 6)), k=3000))[:20000] for _ in range(150)]
    pairs = [pair for one in long_ones for pair in ((one, one), ("$x^2$", f"\\boxed{{{one}}}"), (f"${one[:20000]}$", f"${one[:20001]}$"))]
    check_time_and_verdicts(pairs, "long texts")
    spoilt = [(mutated(rng, gold) if rng.random() < 0.5 else gold, mutated(rng, text)) for gold, text, *_ in math_pairs.pairs(3000, seed + 1)]
    reasons = collections.Counter(reason for _, reason, _ in check_time_and_verdicts(spoilt, "spoilt pairs"))
    assert all(reasons[one] > 10 for one in ("compared", "nothing_found", "not_read", "gold_not_read", "not_comparable")), reasons
    print(f"  {dict(reasons)}")


def check_classes():
    """Texts of one answer are of one class: what a majority is taken over."""
    one = ["\\boxed{0.5}", "$\\frac{1}{2}$", "the answer is 1/2", "$x = \\frac{2}{4}$"]
    other = ["$x^2+2x+1$", "\\boxed{(x+1)^2}"]
    third = ["$1, 2$", "\\boxed{\\{2, 1\\}}"]
    entries = [{"kind": MATH, "rule": MATH_VERIFY, "completion": text, "answer": "1"} for text in one + other + third + ["nothing here"]]
    done = subprocess.run([PROBE], input="".join(json.dumps(entry) + "\n" for entry in entries).encode(), stdout=subprocess.PIPE, check=True)
    classes = [json.loads(line)[2] for line in done.stdout.splitlines()]
    # Where the right answer is the letter of a choice, texts vote for letters, whatever numbers stand in them.
    entries = [{"kind": MATH, "rule": MATH_VERIFY, "completion": text, "answer": gold} for text in ("Of 3 options the answer is (B).", "\\boxed{\\text{(B)}}", "\\boxed{B}", "Answer: B", "Of 3 options the answer is (C).", "\\boxed{E}", "\\boxed{\\text{(E)}}", "the answer is E") for gold in ("B", "(B)", "$\\text{(B)}$")]
    done = subprocess.run([PROBE], input="".join(json.dumps(entry) + "\n" for entry in entries).encode(), stdout=subprocess.PIPE, check=True)
    letters = [json.loads(line)[2] for line in done.stdout.splitlines()]
    assert len(set(letters[:12])) == 1 and len(set(letters[12:15])) == 1 and len(set(letters[15:])) == 1 and len(set(letters)) == 3, letters
    assert len(set(classes[:4])) == 1 and len(set(classes[4:6])) == 1 and len(set(classes[6:8])) == 1 and len(set(classes)) == 4 and classes[8] is None, classes


def own_pairs(folder):
    """What its tests are parametrized with: every tuple that begins with two texts."""
    out = []
    for path in sorted(pathlib.Path(folder, "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple) and len(node.elts) >= 3 and all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in node.elts[:2]) and isinstance(node.elts[2], ast.Constant):
                out.append((node.elts[0].value, node.elts[1].value))
    return out


def compare_on_its_own_tests(folder):
    pairs = own_pairs(folder)
    theirs, ours = [oracle(*pair) for pair in pairs], [bool(score) for score, *_ in ask(pairs)]
    unlike = [(pair, other) for pair, one, other in zip(pairs, theirs, ours) if bool(one) != other]
    for (gold, text), other in unlike:
        print(f"  {gold[-80:]!r} and {text[-80:]!r}: {'yes' if other else 'no'}, Math-Verify the other way")
    print(f"{len(pairs)} pairs of its own tests: {len(pairs) - len(unlike)} alike")
    assert len(pairs) > 150 and len(unlike) <= 0.03 * len(pairs)


def main():
    if sys.argv[1:2] == ["--own"]:
        return compare_on_its_own_tests(sys.argv[2])
    logging.disable(logging.CRITICAL)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 640
    seed = int(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MAGISTER_TEST_SEED", "1"))
    check_written_pairs()
    check_bounds()
    check_any_text(seed)
    check_classes()
    compare_with_math_verify(count, seed)


if __name__ == "__main__":
    main()
