"""Pairs of a gold answer and a text with an answer, of every kind that the rule math_verify is for, with random numbers: half right, half wrong as they are
meant. What counts is what the oracle says of them (math_verify_test.py); the last word of each pair names its kind."""
import random
from fractions import Fraction
from math import gcd


def frac(p, q, rng):
    p, q = (p, q) if q > 0 else (-p, -q)
    sign = "-" if p < 0 else ""
    forms = [f"{sign}\\frac{{{abs(p)}}}{{{q}}}", f"\\frac{{{p}}}{{{q}}}", f"{sign}\\dfrac{{{abs(p)}}}{{{q}}}", f"{sign}\\tfrac{{{abs(p)}}}{{{q}}}", f"{p}/{q}"]
    if abs(p) < 10 and q < 10:
        forms.append(f"{sign}\\frac{abs(p)}{q}" if q < 10 and abs(p) < 10 else forms[0])
    return rng.choice(forms)


def around(rng, formula, plain=False):
    """The formula as a model's text ends with it."""
    forms = ["${}$", "\\boxed{{{}}}", "The answer is ${}$.", "So we get $\\boxed{{{}}}$.", "Thus \\[ {} \\]", "Hence the final answer is ${}$. I hope it is correct.",
             "First $a_0 = 17$, and then\n\n$${}$$", "We have 3 cases.\n\nTherefore, \\boxed{{{}}}", "\\( {} \\)", "Final Answer: ${}$"]
    if plain:
        forms += ["{}", "The answer is {}.", "It is {}", "Answer: {}", "We add 2 and 3.\n#### {}"]
    return rng.choice(forms).format(formula)


def gold(rng, formula):
    return rng.choice(["${}$", "\\boxed{{{}}}", "$${}$$", "It follows that the value is $\\boxed{{{}}}$."]).format(formula)


def number(rng):
    return rng.choice([rng.randint(-20, 20), rng.randint(0, 999), rng.randint(-9999, 99999)])


def of_fractions(rng, right):
    p, q = rng.randint(-40, 40) or 1, rng.randint(2, 40)
    k = rng.randint(2, 5)
    other = (p * k, q * k) if right else rng.choice([(q, p), (p + 1, q), (-p, q), (p, q + 1)])
    if not right and Fraction(*other) == Fraction(p, q):
        other = (p + q, q)
    if right and rng.random() < 0.3 and q in (2, 4, 5, 8, 10, 16, 20, 25, 40):
        return frac(p, q, rng), str(p / q), True
    if right and rng.random() < 0.2 and abs(p) > q and gcd(p, q) == 1:
        return frac(p, q, rng), f"{'-' if p < 0 else ''}{abs(p) // q}\\frac{{{abs(p) % q}}}{{{q}}}" if p > 0 else frac(p, q, rng), False
    return frac(p, q, rng), frac(*other, rng), False


def of_integers(rng, right):
    n = number(rng)
    other = n if right else n + rng.choice([1, -1, 10, 100])
    spelled = rng.choice([str(other), f"{other:,}", f"{other}.0" if right else str(other), f"{other}.00"])
    return rng.choice([str(n), f"{n:,}".replace(",", "{,}")]), spelled, True


def of_roots(rng, right):
    a, b = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10, 11])
    c = a if right else a + 1
    return f"{a}\\sqrt{{{b}}}", rng.choice([f"\\sqrt{{{c * c * b}}}", f"\\sqrt {b} \\cdot {c}" if b < 10 else f"\\sqrt{{{b}}} \\cdot {c}", f"{c}\\sqrt{b}" if b < 10 else f"{c}\\sqrt{{{b}}}",
                                               f"\\frac{{{c * b}}}{{\\sqrt{{{b}}}}}", f"{c}\\cdot {b}^{{1/2}}"]), False


def of_surds(rng, right):
    a, b, d = rng.randint(1, 9), rng.choice([2, 3, 5, 7]), rng.randint(2, 6)
    e = a if right else a + 1
    return f"\\frac{{{a}+\\sqrt{{{b}}}}}{{{d}}}", rng.choice([f"\\frac{{\\sqrt{{{b}}}+{e}}}{{{d}}}", f"\\frac{{{e}}}{{{d}}}+\\frac{{\\sqrt{{{b}}}}}{{{d}}}", f"\\frac{{{2 * e}+2\\sqrt{{{b}}}}}{{{2 * d}}}"]), False


def of_polynomials(rng, right):
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    s, t = a + b, a * b
    wrong = 0 if right else rng.choice([1, -1])
    x = rng.choice("xyzntk")
    expanded = [f"{x}^2+{s}{x}+{t + wrong}", f"{t + wrong}+{s}{x}+{x}^2", f"{x}({x}+{s})+{t + wrong}", f"{x}^{{2}} + {s} {x} + {t + wrong}"]
    factored = [f"({x}+{a})({x}+{b})", f"({x}+{b})\\cdot({x}+{a})"]
    return (factored[0], rng.choice(expanded), False) if rng.random() < 0.5 else (f"{x}^2+{s}{x}+{t}", rng.choice(expanded + (factored if right else [])), False)


def of_rationals(rng, right):
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    c = b if right else b + 1
    return f"\\frac{{x+{a}}}{{{b}}}", rng.choice([f"\\frac{{x}}{{{c}}}+\\frac{{{a}}}{{{c}}}", f"\\frac{{{a}+x}}{{{c}}}", f"\\frac{{2x+{2 * a}}}{{{2 * c}}}"]), False


def of_trigonometry(rng, right):
    k = rng.randint(2, 6)
    pairs = [(f"\\sin({2 * k}x)", f"2\\sin({k}x)\\cos({k}x)"), (f"\\cos^2({k}x)", f"1-\\sin^2({k}x)"), (f"\\tan({k}x)", f"\\frac{{\\sin({k}x)}}{{\\cos({k}x)}}"), (f"\\ln({k * k})", f"2\\ln({k})"), (f"e^{{{k}x}}", f"(e^{{x}})^{{{k}}}"),
             (f"\\log_2({2 ** k})", str(k)), (f"2^{{{k}}}", str(2 ** k)), (f"{k}!", str([1, 1, 2, 6, 24, 120, 720][k])), (f"\\binom{{{k + 2}}}{{2}}", str((k + 2) * (k + 1) // 2))]
    a, b = rng.choice(pairs)
    return a, b if right else f"{b}+1", False


def of_sets(rng, right):
    members = rng.sample(range(-20, 20), rng.randint(2, 5))
    other = members[:]
    rng.shuffle(other)
    if not right:
        other[0] += rng.choice([1, 50])
        if rng.random() < 0.3:
            other.pop()
    text = ", ".join(map(str, other))
    return rng.choice(["\\{{{}\\}}", "{}"]).format(", ".join(map(str, members))), rng.choice([f"\\{{{text}\\}}", text, " \\text{ and } ".join(map(str, other)), f"\\left\\{{{text}\\right\\}}"]), False


def of_tuples(rng, right):
    members = rng.sample(range(-20, 20), rng.choice([2, 3, 3, 4]))
    if right:
        other = members
    else:
        other = members[::-1] if rng.random() < 0.5 else members[:-1] + [members[-1] + 1]
    one = f"({', '.join(map(str, members))})"
    return rng.choice([one, f"(x,y)={one}" if len(members) == 2 else one]), rng.choice(["({})", "\\left({}\\right)", "( {} )"]).format(",".join(map(str, other))), False


def of_intervals(rng, right):
    a = rng.randint(-10, 5)
    b = a + rng.randint(1, 9)
    left, close = rng.choice("[("), rng.choice("])")
    one = f"{left}{a},{b}{close}"
    c = b if right else b + 1
    two = f"{left}{a}, {c}{close}"
    if not right and rng.random() < 0.4:
        two = f"{'(' if left == '[' else '['}{a}, {b}{close}"
    if rng.random() < 0.3:
        d = b + 2
        return f"{one} \\cup ({d},\\infty)", rng.choice([f"({d},\\infty) \\cup {two}", f"x \\in {two}\\cup({d},\\infty)"]), False
    if rng.random() < 0.3 and right:
        return f"{a} {'<' if left == '(' else chr(92) + 'le'} x {'<' if close == ')' else chr(92) + 'leq'} {b}", rng.choice([two, f"x \\in {two}"]), False
    return one, rng.choice([two, f"\\left{two[:-1]}\\right{two[-1]}", f"x\\in {two}"]), False


def of_equations(rng, right):
    a, b, k = rng.randint(2, 9), rng.randint(1, 9), rng.randint(2, 4)
    c = b if right else b + 1
    return f"y={a}x+{b}", rng.choice([f"{a}x-y+{c}=0", f"y-{a}x={c}", f"y = {c} + {a}x", f"{k}y={k * a}x+{k * c}", f"{a}x+{c}=y"]), False


def of_assignments(rng, right):
    n = number(rng)
    m = n if right else n + rng.choice([1, -1, 7])
    x = rng.choice(["x", "k", "n", "AB", "f(3)", "a_5"])
    step = rng.randint(1, 9)
    if rng.random() < 0.5:
        return str(n), rng.choice([f"{x} = {m}", f"{x} = {m - step} + {step} = {m}", f"{x} \\approx {m}"]), False
    return f"{x} = {n}", rng.choice([str(m), f"{x} = {m}", f"{x} = {m - step}+{step} = {m}"]), False


def of_several(rng, right):
    a, b = rng.sample(range(-9, 20), 2)
    c = b if right else b + 30
    return rng.choice([(f"x={a}, x={b}", f"x={c}, x={a}", False), (f"{a}, {b}", f"x={a} \\text{{ or }} x={c}", False), (f"x={a}, y={b}", f"y={c}, x={a}", False), (f"{a} \\pm \\sqrt{{{abs(b) + 2}}}", f"{a}+\\sqrt{{{abs(c) + 2}}}, {a}-\\sqrt{{{abs(c) + 2}}}", False)])


def of_inequalities(rng, right):
    a, sign = rng.randint(-9, 20), rng.choice(["<", ">", "\\le", "\\ge"])
    flip = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}[sign]
    b = a if right else a + 1
    used, turned = (sign, flip) if right or rng.random() < 0.5 else (flip, sign)
    interval = {"<": f"(-\\infty,{b})", ">": f"({b},\\infty)", "\\le": f"(-\\infty,{b}]", "\\ge": f"[{b},\\infty)"}[used]
    return f"x {sign} {a}", rng.choice([f"{b} {turned} x", f"x {used} {b}", interval, f"-x {turned} {-b}"]), False


def of_percents(rng, right):
    n = rng.choice([rng.randint(1, 99), rng.randint(10, 999) / 10])
    m = n if right else n + 1
    return rng.choice([f"{n}\\%", str(n)]), rng.choice([f"{m}\\%", f"{m} \\%", str(m)]), False


def of_plain_percents(rng, right):
    n = rng.randint(1, 99)
    return f"{n}\\%", f"{n if right else n + 3}{rng.choice(['%', ' %', ' percent', ' pct'])}", True


def of_decimals(rng, right):
    n = rng.randint(1, 10 ** 6) / 10 ** rng.choice([1, 2, 3, 4])
    m = n if right else n + rng.choice([0.1, 1, -0.01])
    return rng.choice([f"{n:.4f}", str(n)]), f"{m:.4f}", True


def of_rounded(rng, right):
    p, q = rng.randint(1, 20), rng.choice([3, 7, 9, 11, 13])
    return frac(p, q, rng), f"{p / q:.{rng.choice([7, 8, 9]) if right else rng.choice([2, 3, 4])}f}", True


def of_units(rng, right):
    n = rng.randint(1, 999)
    m = n if right else n + 1
    unit = rng.choice(["\\text{ cm}", "\\text{ cm}^2", "\\ \\text{dollars}", " \\mathrm{km}", "^\\circ", "^{\\circ}", "\\text{ apples}", " \\text{ meters}", "\\mbox{ cm}^2", "\\text{ units}"])
    return rng.choice([f"{n}{unit}", str(n)]), rng.choice([f"{m}{unit}", str(m)]), False


def of_plain_units(rng, right):
    n = rng.randint(1, 99999)
    m = n if right else n + 1
    return str(n), rng.choice(["{} dollars", "${}", "{} apples", "{} cm", "€{}", "{}m"]).format(rng.choice([str(m), f"{m:,}", f"{m}.00"])), True


def of_mixed(rng, right):
    w, q = rng.randint(1, 9), rng.randint(2, 9)
    p = rng.randint(1, q - 1)
    return frac(w * q + p, q, rng), f"{w if right else w + 1}\\frac{{{p}}}{{{q}}}", False


def of_powers(rng, right):
    a, n = rng.randint(2, 9), rng.randint(2, 6)
    m = n if right else n + 1
    return f"{a}^{{{n}}}", rng.choice([f"{a}^{{{m}}}", str(a ** m), f"{a}\\cdot {a}^{{{m - 1}}}"]), False


def of_scientific(rng, right):
    a, n = rng.randint(11, 99), rng.randint(2, 8)
    m = n if right else n + 1
    return f"{a / 10} \\times 10^{{{n}}}", rng.choice([f"{a / 10} \\cdot 10^{{{m}}}", str(a * 10 ** (m - 1)), f"{a} \\times 10^{{{m - 1}}}"]), False


def of_pi(rng, right):
    a, b = rng.randint(2, 30), rng.randint(2, 9)
    c = a if right else a + 1
    return rng.choice([(f"{a}\\pi", f"{c} \\pi", False), (f"\\frac{{{a}\\pi}}{{{b}}}", rng.choice([f"\\frac{{{c}}}{{{b}}}\\pi", f"{c}\\pi/{b}", f"\\frac{{{2 * c}\\pi}}{{{2 * b}}}"]), False)])


def of_complex(rng, right):
    a, b = rng.randint(-9, 9), rng.randint(2, 9)
    c = b if right else b + 1
    return f"{a}+{b}i", rng.choice([f"{c}i+{a}" if a >= 0 else f"{c}i{a}", f"{a}+{c}i"]), False


def of_matrices(rng, right):
    rows = [[rng.randint(-9, 9) for _ in range(2)] for _ in range(2)]
    other = [row[:] for row in rows]
    if not right:
        other[rng.randrange(2)][rng.randrange(2)] += 1
    def write(kind, values):
        return f"\\begin{{{kind}}} " + " \\\\ ".join(" & ".join(map(str, row)) for row in values) + f" \\end{{{kind}}}"
    return write("pmatrix", rows), write(rng.choice(["pmatrix", "bmatrix"]), other), False


def of_words(rng, right):
    words = ["yes", "no", "even", "odd", "Evelyn", "Monday", "blue", "true"]
    a, b = rng.sample(words, 2)
    one = a if right else b
    return f"\\text{{{a}}}", rng.choice([f"\\text{{{one}}}", f"\\text{{{one.capitalize()}}}", f"\\textbf{{{one}}}", f"\\mathrm{{{one}}}"]), False


def of_choices(rng, right):
    a, b = rng.sample("ABCDE", 2)
    one = a if right else b
    return rng.choice([f"\\text{{({a})}}", a, f"\\textbf{{({a})}}"]), rng.choice([one, f"\\text{{({one})}}", f"\\text{{{one}}}", f"\\textbf{{({one})}}", f"({one})"]), False


def of_products(rng, right):
    x, y, z = rng.sample("abcmnpqrxyz", 3)
    wrong = "" if right else "+1"
    return rng.choice([(f"{x}{y}{z}", f"{z}{x}{y}{wrong}", False), (f"\\frac{{{x}}}{{{y}}}", f"{x}/{y}{wrong}", False), (f"2{x}+3{y}", f"3{y}+2{x}{wrong}", False), (f"({x}+{y})^2", f"{x}^2+2{x}{y}+{y}^2{wrong}", False), (f"|{x}-{y}|", f"|{y}-{x}|{wrong}", False),
                       (f"\\alpha+{x}", f"{x}+\\alpha{wrong}", False), (f"{x}_1+{x}_2", f"{x}_2+{x}_{{1}}{wrong}", False)])


def of_ratios(rng, right):
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    c = a if right else a + 1
    return f"{a}:{b}", rng.choice([f"{c}:{b}", f"{2 * c}:{2 * b}", f"\\frac{{{c}}}{{{b}}}"]), False


def of_points(rng, right):
    points = [(rng.randint(-9, 9), rng.randint(-9, 9)) for _ in range(rng.randint(2, 4))]
    other = points[:]
    rng.shuffle(other)
    if not right:
        other[0] = (other[0][0] + 40, other[0][1])
    return ", ".join(map(str, points)), rng.choice(["{}", "\\{{{}\\}}"]).format(", ".join(f"({x},{y})" for x, y in other)), False


def of_boxes(rng, right):
    a, b = rng.sample(range(1, 60), 2)
    c = b if right else b + 60
    return f"{a},{b}", None, rng.choice(["\\boxed{{{}}} and \\boxed{{{}}}", "\\boxed{{{}}}, \\boxed{{{}}}", "$\\boxed{{{}}}$ and $\\boxed{{{}}}$", "${}$ and ${}$", "\\boxed{{{}}}\\boxed{{{}}}"]).format(a, c)


KINDS = [of_fractions, of_integers, of_roots, of_surds, of_polynomials, of_rationals, of_trigonometry, of_sets, of_tuples, of_intervals, of_equations, of_assignments, of_several, of_inequalities, of_percents, of_plain_percents, of_decimals, of_rounded,
         of_units, of_plain_units, of_mixed, of_powers, of_scientific, of_pi, of_complex, of_matrices, of_words, of_choices, of_products, of_ratios, of_points, of_boxes]


def pairs(count, seed):
    """(gold, text, whether it is meant to be right, kind)."""
    rng = random.Random(seed)
    out = []
    for i in range(count):
        kind, right = KINDS[i % len(KINDS)], (i // len(KINDS)) % 2 == 0
        one, other, plain = kind(rng, right)
        if other is None:
            text = plain
        elif plain and rng.random() < 0.6:
            text = rng.choice(["{}", "The answer is {}.", "It is {}", "So we have {} in the end.", "Answer: {}", "We add 2 and 3.\n#### {}"]).format(other)
        else:
            text = around(rng, other.replace("%", "\\%").replace("\\\\%", "\\%") if plain else other)
        out.append((gold(rng, one), text, right, kind.__name__[3:]))
    return out
