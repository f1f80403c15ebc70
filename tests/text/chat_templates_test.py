#!/usr/bin/env python3
"""Chat templates against transformers' apply_chat_template, byte for byte: real templates (of the wheel that scripts/setup.sh
fetches, and of trl) times conversations; and a table of small ones against Jinja in its environment. Where Jinja throws, magister throws, with
the same words where the template itself refuses. Then what Jinja has no bounds for, refusals by name, and cut-off templates.

usage: chat_templates_test.py [FOLDER]      with the *.jinja of a folder alone, such as llama.cpp's models/templates (not part of CI; the result is in
tests/README.md)"""
import datetime, glob, importlib.util, json, os, random, subprocess, sys, zipfile
import tokenizers
from transformers import PreTrainedTokenizerFast, tokenization_utils_base
from transformers.utils import chat_template_utils
from jinja2.exceptions import TemplateError
from chat_cases import cases
from chat_conversations import agents, conversations

PROBE = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests", "text", "chat_probe")
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)
STAMP = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
TOKENS = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


class FixedClock:
    """Stands for datetime inside the reference, so that both sides see one day."""
    @staticmethod
    def now():
        return NOW


chat_template_utils.datetime = FixedClock


class Probe:
    def __init__(self):
        self.process = subprocess.Popen([PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the probe died (status {self.process.wait()}) on {str(request)[:2000]}")
        return json.loads(line)


probe = Probe()
faults = []


def check(good, *words):
    if not good:
        faults.append(words)
        if len(faults) <= 40:
            print("FAILS", *(repr(word)[:600] for word in words))
    return good


def reference(render):
    """-> ("text", text), ("refusal", message) for raise_exception, ("error", words) for everything else."""
    try:
        return "text", render()
    except TemplateError as error:
        return ("refusal" if type(error) is TemplateError else "error"), str(error)
    except Exception as error:  # whatever Python throws, a template threw it
        return "error", f"{type(error).__name__}: {error}"


def same(name, want, got):
    kind, words = want
    if kind == "text":
        return check(got.get("text") == words, name, "want", words, "got", got)
    if kind == "refusal":
        return check(got.get("refusal") == words, name, "want refusal", words, "got", got)
    good = "error" in got and "refusal" not in got and got.get("code") == 65 and got["error"].count("\n") == 0
    return check(good, name, "want error", words, "got", got)


def templates_of(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(path, encoding="utf-8") as file: yield os.path.basename(path), file.read()


def real_templates():
    if sys.argv[1:]:
        yield from templates_of(sys.argv[1])
        return
    yield from templates_of(os.path.join(os.path.dirname(importlib.util.find_spec("trl").origin), "chat_templates"))
    path = os.environ.get("MAGISTER_TEMPLATES_WHEEL") or os.path.join(os.environ["MAGISTER_SOURCE_DIR"], ".deps", "templates", "axolotl-0.19.0-py3-none-any.whl")
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith("axolotl/utils/chat_templates/templates/") and name.endswith(".jinja"):
                yield os.path.basename(name), wheel.read(name).decode()


TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **TOKENS)
render_jinja_template = tokenization_utils_base.render_jinja_template


def apply_chat_template(given, template, indices):
    """The text; the spans of generation blocks, which the method keeps to itself, go to indices."""
    def noting_spans(**arguments):
        texts, found = render_jinja_template(**arguments | {"return_assistant_tokens_mask": "{% generation" in template})
        indices.extend(found[0] if found else [])
        return texts, found

    more = {key: value for key, value in given.items() if key not in ("messages", "tools", "documents")}
    arguments = dict(tools=given.get("tools"), documents=given.get("documents"), chat_template=template, **more)
    if not given["messages"]:  # refused there, and by the program before it asks for a text
        return render_jinja_template([[]], **TOKENS, **arguments)[0][0]
    tokenization_utils_base.render_jinja_template = noting_spans
    return TOKENIZER.apply_chat_template(given["messages"], tokenize=False, **arguments)


def compare_real():
    talks = [(*talk, "") for talk in conversations()] + list(agents())
    templates = list(real_templates())
    equal = counts = spans = 0
    kinds = {"text": 0, "refusal": 0, "error": 0}
    for name, template in templates:
        for talk, arguments, word in talks:
            if word not in template: continue
            given = {**TOKENS, **arguments}
            indices = []
            want = reference(lambda: apply_chat_template({**arguments}, template, indices))
            got = probe.ask(template=template, variables=given, now=STAMP, source=name)
            counts += 1
            kinds[want[0]] += 1
            if same(f"{name} x {talk}", want, got):
                equal += 1
                if indices:
                    text = got["text"].encode()
                    ours = [(len(text[:a].decode()), len(text[:b].decode())) for a, b in got["generated"]]
                    spans += check(ours == indices, name, talk, "spans", indices, ours)
    print(f"{len(templates)} templates in conversations: {equal} of {counts} equal ({kinds}), {spans} with equal assistant spans")
    check(len(templates) >= 15 and kinds["text"] > 800, "too few templates", len(templates), kinds)


def compare_small():
    equal = counts = 0
    kinds = {"text": 0, "refusal": 0, "error": 0}
    for template, variables in cases():
        want = reference(lambda: chat_template_utils._compile_jinja_template(template).render(**variables))
        if want[0] == "text" and "object at 0x" in want[1] or want[0] == "text" and want[1].startswith(("<function", "<Macro", "<class")):
            want = ("error", "an address is printed")
        got = probe.ask(template=template, variables=variables, now=STAMP)
        counts += 1
        kinds[want[0]] += 1
        equal += same(template, want, got)
    print(f"{equal} of {counts} small templates equal ({kinds})")
    check(counts >= 150, "too few cases")


def refused(template, words, when=None, **more):
    more.setdefault("max_steps", 1000000)  # a tenth of the default: sanitizers are slow
    got = probe.ask(template=template, variables=more.pop("variables", {}), **more)
    check("error" in got and words in got["error"] and (when is None or got["when"] == when), template[:200], "want", words, "got", str(got)[:400])


def bounds():
    refused("{{ 'a' | striptags }}", "the filter \"striptags\" is not known here")
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper than")
    refused("{% macro f(n) %}{% for i in [1] %}{% if 1 %}{{ f(n + 1) }}{% endif %}{% endfor %}{% endmacro %}{{ f(0) }}", "deeper than")
    refused("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps")
    refused("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "bytes")
    refused("{{ 'x' * 999999999999 }}", "bytes")
    refused("{{ ('x' * 9999999).replace('x', 'y' * 9999) }}", "bytes")
    refused("{{ [0] * 999999999999 }}", "repeated")
    refused("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "bytes", max_steps=10000000)
    refused("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "steps")
    refused("{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}", "nested deeper")
    refused("{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson|length }}", "a")
    refused("{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}", "steps")
    refused("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "cannot be printed")
    refused("{% set ns = namespace(h=0) %}{% for i in range(90000) %}{% set ns.h = namespace(next=ns.h) %}{% endfor %}{{ ns.h }}", "")
    refused("{% set ns = namespace(h=0) %}{% for i in range(90000) %}{% for x in [ns.h] %}{% set ns.h = loop %}{% endfor %}{% endfor %}", "nested deeper")
    refused("{% for i in [1] %}{% set l = [loop] %}{{ loop.changed(l) }}{% endfor %}", "LoopContext")
    refused("{% macro f(" + ", ".join(f"a{i}" for i in range(9000)) + ") %}{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}", "steps")
    refused("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested deeper", "parse")
    refused("{{ 1" + " + 1" * 5000 + " }}", "nested deeper", "parse")
    refused("{{ x" + ".a" * 5000 + " }}", "nested deeper", "parse")
    refused("{{ x" + "|trim" * 5000 + " }}", "nested deeper", "parse")
    refused("{{ " + "not " * 5000 + "1 }}", "nested deeper", "parse")
    refused("{{ " + "[" * 5000 + "]" * 5000 + " }}", "nested deeper", "parse")
    refused("{% if 1 %}" * 5000, "nested deeper", "parse")
    refused("{{ 'aaaa' * 2000000 in 'a' * 9000000 ~ 'b' }}{{ ('a' * 9000000).rfind('b' ~ 'a' * 4000000) }}", "steps")
    refused("{{ ('ab' * 4000000).strip('ba' * 4000000) }}", "steps")
    refused("{% for i in range(9) %}.{% endfor %}", "steps", max_steps=20)
    check(len(probe.ask(template="{{ ('a' * 400000)|wordwrap(1) }}", variables={})["text"]) == 799999, "a long word is wrapped; in quadratic time it took minutes")
    refused("{% for i in range(9) %}.{% endfor %}", "bytes", max_bytes=5)
    refused("{{ x }}", "nested deeper", variables={"x": json.loads("[" * 300 + "]" * 300)})
    refused("{{ strftime_now('%Y') }}", "date")
    check("text" in probe.ask(template="{{ " + "(" * 60 + "1" + ")" * 60 + " }}{{ 1" + " + 1" * 100 + " }}", variables={}), "brackets")
    check(probe.ask(template="{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ f(60) }}", variables={}).get("text") == "end", "recursion")


def names():
    refused("{{ 1|nosuch }}", 'the filter "nosuch"', "parse")
    refused("{% if true %}{{ 1|nosuch }}{% endif %}", 'the filter "nosuch"', "run")
    refused("{% if true %}{{ 1 is nosuch }}{% endif %}", 'the test "nosuch"', "run")
    refused("{{ 1|uper }}", 'did you mean "upper"', "parse")
    refused("{{ 1|urlize }}", '"urlize"', "parse")
    refused("\n\n  {{ 1 is strnig }}", 't:3:', "parse")
    for word in ("include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y", "block x", "autoescape true", "do 1", "wat"):
        refused("{% " + word + " %}", f'the statement "{word.split()[0]}"', "parse")
    refused("{% for i in [] recursive %}{% endfor %}", '"recursive"', "parse")
    refused("{{ 'a'.encode('x') }}", 'the method "encode"', "parse")
    refused("{{ cycler(1) }}", '"cycler"', "run")
    refused("{{ 99999999999999999999 }}", "64 bits", "parse")
    refused("{{ 9223372036854775807 + 1 }}", "64 bits", "run")
    refused("{{ x + 1 }}", "64 bits", "run", variables={"x": 2**64 - 1})
    refused("{{ 'é' ~ é }}", "beyond ASCII", "parse")


def configs():
    ask = lambda value: probe.ask(config=json.dumps(value))
    check(ask({"chat_template": "a{{ 1 }}é"})["text"] == "a{{ 1 }}é", "config text")
    check(ask({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})["text"] == "d", "config list")
    check(ask({"other": 1})["text"] is None and ask({"chat_template": None})["text"] is None, "config none")
    for bad in ({"chat_template": 5}, {"chat_template": [{"name": "x"}]}, [1]):
        check("config" in ask(bad).get("error", ""), "config bad", bad)
    check("not valid JSON" in probe.ask(config="{")["error"], "config broken")


def fuzz():
    """Cut-off and garbled templates: an answer every time, and never an empty error."""
    rng = random.Random(4)
    sources = [template for _, template in real_templates()] + [template for template, _ in cases()]
    talk = dict(conversations())["tool call"]
    count = 0
    for _ in range(3000):
        text = rng.choice(sources)
        begin = rng.randrange(max(1, len(text) - 4000)) if rng.random() < 0.3 else 0
        text = text[begin:begin + rng.randint(1, 5000)]
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(["{%", "%}", "{{", "}}", "{#", "-", "'", "(", "[", "|", ".", "not ", " is ", "~", "\\", "\0", "é", "99", ":"]) + text[at + rng.randint(0, 3):]
        got = probe.ask(template=text, variables={**TOKENS, **talk}, max_steps=200000)
        check("text" in got or got.get("error"), "fuzz", text, got)
        count += 1
    print(f"{count} cut-off or garbled templates without a crash")


def blocks():
    """Where generation blocks stand in the text, for templates whose macros transformers marks from the call's beginning."""
    say = "{% macro say(t) %}say {% generation %}{{ t }}!{% endgeneration %}.{% endmacro %}"
    for template, texts, unplaced in (
            (say + "{% generation %}a{% endgeneration %} {{ say('é') }} {{ say('c') }}", ["a", "é!", "c!"], ""),
            (say + "é{{ say('b') if true }}{% for i in 'xy' %}{{ say(i) }}{% endfor %}", ["b!", "x!", "y!"], ""),
            (say + "{% macro twice(t) %}<{{ say(t) }}{{ say(t ~ t) }}>{% endmacro %}-{{ twice('b') }}{% generation %}{% endgeneration %}", ["b!", "bb!", ""], ""),
            ("{% macro around() %}<{% generation %}{{ caller() }}{% endgeneration %}>{% endmacro %}a{% call around() %}b{% endcall %}", ["b"], ""),
            ("{% macro around() %}<{{ caller() }}>{% endmacro %}a{% call around() %}b{% generation %}c{% endgeneration %}{% endcall %}", ["c"], ""),
            (say + "{% generation %}a{{ say('b') }}{% generation %}c{% endgeneration %}{% endgeneration %}", ["asay b!.c"], ""),
            # No place is known for these, and none is guessed.
            (say + "\n{{ say('b') ~ 'c' }}{{ say('d') }}", ["d!"], "t:1:26"),
            (say + "{{ say('b') | upper }}{% generation %}a{% endgeneration %}", ["a"], "t:1:26"),
            (say + "{{ say(say('b')) }}", ["say b!.!"], "t:1:26"),
            (say + "{% set x = say('b') %}{{ x }}", [], "t:1:26"),
            (say + "{% set x = say('b') %}", [], "t:1:26"),
            ("a\n{% set x %}{% generation %}b{% endgeneration %}{% endset %}{{ x }}", [], "t:2:15"),
            ("{% filter upper %}{% generation %}b{% endgeneration %}{% endfilter %}{% generation %}c{% endgeneration %}", ["c"], "t:1:22"),
            (say + "{% if say('b') %}{% generation %}c{% endgeneration %}{% endif %}", ["c"], "t:1:26"),
            ("{% set x %}{% generation %}{% endgeneration %}{% endset %}{{ x }}", [], "")):
        got = probe.ask(template=template, variables={})
        text = got["text"].encode()
        found = [text[begin:end].decode() for begin, end in got["generated"]]
        check((found, got["unplaced"]) == (texts, unplaced), template, "want", (texts, unplaced), "got", (found, got["unplaced"]), got["text"])


def main():
    compare_small()
    compare_real()
    blocks()
    bounds()
    names()
    configs()
    fuzz()
    print(f"{len(faults)} failures")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
