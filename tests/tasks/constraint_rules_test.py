"""What a constraint lets through against Python's re and jsonschema, both ways: random expressions with optional groups, repetitions,
alternatives and classes, as `regex` and as a schema's `pattern`; and what JSON may look like.
"""
import json
import math
import os
import pathlib
import random
import re
import subprocess
import unittest

from jsonschema import Draft202012Validator

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/tasks/constraint_probe"
PLACES = ("regex", "pattern", "patternProperties", "propertyNames")
# Fault by fault: an optional group that begins or ends in a repetition, and relatives.
KNOWN = [r"^(-b+)?c$", r"^[a-z]{2,6}(\.[a-z]{2,6})?@[a-z]{2,9}\.(com|org)$", r"^(a+b)?c$", r"^(a*b)?c$", r"^(ab*)?c$", r"^(xa+|b){2,}$", r"^(a{2,}|b){2,}c?$",
         r"^((-b+)?c)*$", r"^(?:(ab+)?(ba+)?)+$", r"^(a|)(b+)?$", r"^a??b+?c{2,3}?$", r"^((a+)?b)?$", r"^(a?){3}b$", r"^(ab{3,}){0,2}$", r"^((ab+){2,})?c$", r"^a$|^b+$",
         r"^(\d{1,3}\.){3}\d{1,3}$", r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$", r"^(\w+ )?\w+$", r"^[^a-z]{1,3}$", r"^[\^a-]{1,4}$", r"^[\]\[\\-]+$", r"^é+ü?$", r"^\u00e9{1,2}$", r"^a.c$"]


def answers(requests):
    done = subprocess.run([PROBE], input="".join(json.dumps(one) + "\n" for one in requests), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def schema_of(place, regex):
    if place == "pattern":
        return {"type": "string", "pattern": regex}
    if place == "patternProperties":
        return {"type": "object", "patternProperties": {regex: {"type": "null"}}, "additionalProperties": False, "minProperties": 1, "maxProperties": 1}
    return {"type": "object", "propertyNames": {"type": "string", "pattern": regex}, "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 1}


def request(place, regex, texts, **keys):
    if place == "regex":
        return {"kind": "regex", "text": regex, "accepts": texts, **keys}
    written = [json.dumps(text if place == "pattern" else {text: None}, ensure_ascii=False) for text in texts]
    return {"kind": "json_schema", "text": json.dumps(schema_of(place, regex)), "accepts": written, **keys}


def value(place, text):
    if place == "regex":
        return text
    found = json.loads(text)
    return found if place == "pattern" else next(iter(found))


class Expressions:
    """Random expressions, and texts near what they match."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def atom(self, depth):
        kind = self.draw.randrange(10)
        if kind < 5 or depth > 1:
            return self.draw.choice(["a", "b", "c", "-", r"\.", "1", " "])
        if kind < 7:
            return self.draw.choice(["[ab]", "[^ab]", "[a-c1]", r"[\d-]", r"[^\s.]", r"\d", r"\w", r"\s", r"\S", ".", r"\D", r"\W", "[-.]"])
        return self.draw.choice(["(", "(?:"]) + self.choice(depth + 1) + ")"

    def sequence(self, depth):
        parts = []
        for _ in range(self.draw.randint(1, 3)):
            atom = self.atom(depth)
            # Repetitions of what may be empty have so many derivations that the library's parser takes minutes.
            often = [] if re.fullmatch(atom, "") else ["*", "+", "+", "+?", "{1,}", "{2,}", "{0,2}", "{1,3}"]
            parts.append(atom + self.draw.choice(["", "", "", "?", "?", "??", "{0,1}", *often]))
        return "".join(parts)

    def choice(self, depth):
        return "|".join(self.sequence(depth) if self.draw.random() < 0.9 else "" for _ in range(self.draw.choice([1, 1, 1, 2, 3])))

    def expression(self):
        whole = self.choice(0) or "a"
        return f"^(?:{whole})$" if self.draw.random() < 0.5 else whole

    def texts(self, count):
        return ["".join(self.draw.choices("aaabbbc-.1 é", k=self.draw.randint(0, 7))) for _ in range(count)]


class Patterns(unittest.TestCase):
    def compare(self, cases, samples):
        """cases: (place, expression, texts)"""
        found = answers([request(place, regex, texts, samples=samples, seed=number) for number, (place, regex, texts) in enumerate(cases)])
        ended = 0
        for (place, regex, texts), answer in zip(cases, found, strict=True):
            self.assertNotIn("refused", answer, (place, regex))
            for text in answer["samples"]:
                self.assertIsNotNone(re.fullmatch(regex, value(place, text), re.ASCII), (place, regex, text))
            for text, accepted in zip(texts, answer["accepts"], strict=True):
                self.assertEqual(accepted, re.fullmatch(regex, text, re.ASCII) is not None, (place, regex, text))
            ended += len(answer["samples"])
        return ended

    def near(self, source, expressions):
        """-> for each expression texts of which some match: what a constraint writes, with a character taken out, doubled or changed."""
        every = []
        for answer in answers([request("regex", regex, [], samples=10) for regex in expressions]):
            near = [text for text in answer.get("samples", []) if all(" " <= c and c not in "\"\\\u2028\u2029\x7f\x85" for c in text)]
            for text in list(near):
                at = source.draw.randrange(len(text) + 1)
                near += [text[:at] + text[at + 1:], text[:at] + text[at:at + 1] + text[at:], text[:at] + source.draw.choice("abc-.1") + text[at + 1:]]
            every.append(near + source.texts(10))
        return every

    def test_known_patterns(self):
        source = Expressions(1)
        cases = [(place, regex, texts) for regex, texts in zip(KNOWN, self.near(source, KNOWN), strict=True) for place in PLACES]
        self.assertGreater(self.compare(cases, 12), 5 * len(cases))

    def test_random_patterns(self):
        source = Expressions(2)
        expressions = [source.expression() for _ in range(150)]
        cases = [(place, regex, texts) for regex, texts in zip(expressions, self.near(source, expressions), strict=True) for place in ("regex", "pattern")]
        self.assertGreater(self.compare(cases, 8), 2 * len(cases))

    def test_white_space_is_ascii(self):
        spaces = [" ", "\t", "\n", "\r", "\f", "\v", "\u00a0", "\u2003", "\u3000", "\ufeff", "a"]
        for regex in (r"\s", r"[\s]", r"[\sx]"):
            self.assertEqual(answers([request("regex", regex, spaces)])[0]["accepts"], [True] * 6 + [False] * 5, regex)
        self.assertEqual(answers([request("pattern", r"^\s$", [" ", "\u00a0"])])[0]["accepts"], [True, False])
        for regex in (r"\S", r"[\S]", r"[^\s]"):
            self.assertEqual(answers([request("regex", regex, spaces)])[0]["accepts"], [False] * 10 + [True], regex)

    def test_what_is_no_expression_is_refused_by_its_place(self):
        for regex, words in ((r"a(?=b)", "Lookahead"), (r"(?<!a)b", "Lookbehind"), (r"(a)\1", "Backreference"), (r"a\b", "Word boundary"), (r"\p{L}", "Unicode"), ("(a", "parenthesis"),
                             ("a)", "parenthesis"), ("a**", "two repetitions"), ("*a", "nothing comes before"), ("[a", "not closed"), ("a{2,1}", "at least 2"), ("[z-a]", "in order"),
                             ("a$b", "at the end"), ("a^b", "at the start"), (r"\q", "escape"), ("(?i)a", "flags"), ("a{x}", "count")):
            for place in ("regex", "pattern"):
                answer = answers([request(place, regex, [])])[0]
                self.assertIn(words, answer.get("refused", "accepted"), (place, regex))
                self.assertIn("character", answer["refused"])


class Json(unittest.TestCase):
    def texts(self, schema, samples=40, accepts=(), **keys):
        answer = answers([{"kind": "json_schema", "text": json.dumps(schema), "samples": samples, "accepts": list(accepts), **keys}])[0]
        self.assertNotIn("refused", answer, schema)
        for text in answer["samples"]:
            found = json.loads(text)
            Draft202012Validator(schema).validate(found)
            self.assertEqual(json.dumps(found, ensure_ascii=False), text.replace("\\u007f", "\x7f"), "as json.dumps writes it, but for DEL")
        return answer

    def test_values_are_written_as_json_dumps_writes_them(self):
        values = [{"a": [1, 2, {"b": None}], "c d": {}}, [1, [2, 3], []], "a/b \"x\" é 数 \n\\ 😀", {"x": 1.5, "y": True}, -7, [], {}, {"k\"q": "\t"}, "\x0b\x0e\x0f\x10"]
        for schema in [{"const": one} for one in values] + [{"enum": values}, {"type": ["object", "array"], "enum": [{"a": 1}, [1, 2]]}, {"type": "object", "const": {"a": [1, 2]}},
                                                            {"$defs": {"v": {"enum": [{"a": 1, "b": 2}, "x"]}}, "type": "array", "items": {"$ref": "#/$defs/v"}, "minItems": 2, "maxItems": 2}]:
            wanted = [json.dumps(one, ensure_ascii=False) for one in schema.get("enum", [schema["const"]] if "const" in schema else [])]
            answer = self.texts(schema, accepts=wanted)
            self.assertTrue(all(answer["accepts"]), (schema, answer["accepts"]))
            self.assertGreater(len(answer["samples"]), 10)
            if wanted:
                self.assertLessEqual(set(answer["samples"]), set(wanted))
        compact = answers([{"kind": "json_schema", "text": json.dumps({"const": {"a": [1, 2]}}), "accepts": ['{"a":[1,2]}', '{"a": [1, 2]}']}])[0]
        self.assertEqual(compact["accepts"], [False, True])

    def test_del_in_a_const_is_an_escape(self):
        accepts = ['"a\\u007f"', '"a\x7f"', '"a\\u007F"']
        self.assertEqual(self.texts({"const": "a\x7f"}, samples=3, accepts=accepts)["accepts"], [True, False, False])
        self.assertEqual(self.texts({"type": "string"}, samples=0, accepts=accepts)["accepts"], [True, True, False])

    def test_a_name_has_one_spelling(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": {"type": "null"}}
        accepted = self.texts(schema, samples=0, accepts=['{"a": 0, "\\u0061": null}', '{"a": 0, "b": null}', '{"a": 0, "\\u0062": null}', '{"a": 0, "a": null}', '{"a": 0, "\\n": null}',
                                                          '{"a": 0, "\\u000a": null}', '{"a": 0, "\\u001f": null}', '{"a": 0, "\\u001F": null}', '{"a": 0, "\\/": null}', '{"a": 0, "\\"": null}'])["accepts"]
        self.assertEqual(accepted, [False, True, False, False, True, False, True, False, False, True])
        refused = answers([{"kind": "json_schema", "text": json.dumps({**schema, "properties": {"a\"": {"type": "integer"}}, "required": []})}])[0]
        self.assertIn("twice", refused["refused"])

    def test_free_texts_hold_no_half_of_a_pair(self):
        for schema in ({"type": "string"}, {"type": "string", "maxLength": 9}, {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1}, {"type": "array", "items": {"type": "string"}, "maxItems": 3}):
            texts = self.texts(schema, samples=300, seed=5)["samples"]
            self.assertGreater(len(texts), 30)
            for text in texts:
                json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")  # half a pair has no bytes
        halves = ['"\\ud800"', '"\\uDC00"', '"x\\ud83d y"', '"\\\\ud800"', '"\\\\\\\\ud800"', '"\\n\\\\u"', '"\\u0007"']
        self.assertEqual(self.texts({"type": "string"}, samples=0, accepts=halves)["accepts"], [False, False, False, True, True, True, True])

    def test_keywords_that_change_nothing_are_taken(self):
        for more in ({"uniqueItems": False}, {"x-order": 3}, {"x-ui": {"uniqueItems": True}}, {"items": {"type": "null", "x-note": "n", "uniqueItems": False}}):
            self.texts({"type": "array", "items": {"type": "null"}, "maxItems": 2, **more})
        for more in ({"uniqueItems": True}, {"y-order": 3}, {"uniqueItems": 0}):
            answer = answers([{"kind": "json_schema", "text": json.dumps({"type": "array", "items": {"type": "null"}, **more})}])[0]
            self.assertIn(next(iter(more)), answer.get("refused", "accepted"))


# Characters that JSON escapes, that UTF-8 writes with one to four bytes, and both.
TEXTS = ["", "a", "\"", "\\", "\n", "é", "😀", "数据", "a\"b", "ab\\cd", "\t\b\f\r\n", "\x01\x1f", "\x7f", "".join(map(chr, range(1, 32))), "\"" * 5, "say \"you\"\n", "\\" * 8, "😀😀😀", "é\"é\"é\"é", "abcde", "abcdef",
         *("x" * count for count in (62, 63, 64, 65, 99, 100, 129, 130, 131, 189, 190, 191, 299, 300, 301)), "\n" * 130, "\n" * 131, "😀\"" * 50, "😀\"" * 50 + "\\"]


class Bounds(unittest.TestCase):
    """A bound lets every value through that keeps to it: jsonschema says the same of each text, and validates what is drawn."""

    def compare(self, cases):
        """cases: (schema, values, more of the request)"""
        requests = [{"kind": "json_schema", "text": json.dumps(schema), "samples": 8, "seed": number, "accepts": [json.dumps(one, ensure_ascii=False) for one in values], **more}
                    for number, (schema, values, more) in enumerate(cases)]
        for (schema, values, more), answer in zip(cases, answers(requests), strict=True):
            self.assertNotIn("refused", answer, schema)
            valid = Draft202012Validator(schema)
            for value_, accepted in zip(values, answer["accepts"], strict=True):
                self.assertEqual(accepted, valid.is_valid(value_), (schema, value_, more))
            for text in answer["samples"]:
                valid.validate(json.loads(text))

    def test_lengths_count_characters_with_their_escapes(self):
        cases = []
        for least, most in ((None, 0), (None, 1), (None, 5), (0, 6), (2, 5), (3, None), (1, None), (5, 5), (None, 130), (100, 300), (64, 64), (63, 190), (130, None)):
            text = {"type": "string", **({} if least is None else {"minLength": least}), **({} if most is None else {"maxLength": most})}
            both = {"type": "object", "properties": {"a": text, "b": {"type": ["null", "string"], "maxLength": 4}}, "required": ["a", "b"]}
            for counts in ({"counts": True}, {"counts": False}):  # outside of the grammar, and in it
                cases += [(text, TEXTS, counts), (both, [{"a": one, "b": one[:3]} for one in TEXTS] + [{"a": "a\n", "b": b} for b in ("abcd\"", "ab\"\n", None)], counts),
                          ({"type": "array", "items": text}, [[one, "\"\""] for one in TEXTS], counts),
                          ({"type": "object", "propertyNames": text, "additionalProperties": {"type": "null"}}, [{one: None} for one in TEXTS], counts)]
        self.compare(cases)

    def test_lengths_where_the_schema_has_two_readings(self):
        """Which of two parts a text belongs to is known at its end only; only where one reading is left lengths are counted outside of the grammar."""
        short, named = {"type": "string", "maxLength": 3}, lambda kind, most: {"type": "object", "properties": {"name": {"type": "string", "maxLength": most}, "kind": {"const": kind}},
                                                                                 "required": ["name", "kind"]}
        texts = ["", "abc", "a\"b", "abcd", "long enough", "long enougH", "\"" * 10, "\"" * 9]
        self.compare([({"anyOf": [short, {"enum": ["long enough", "abcd"]}]}, texts, {}), ({"anyOf": [short, {"type": "string", "minLength": 10}]}, texts, {}),
                      ({"anyOf": [short, {"type": "null"}, {"type": "array", "items": short}]}, [*texts, None, ["abc"], ["abcd"]], {}),
                      ({"anyOf": [named("a", 3), named("b", 9)]}, [{"name": text, "kind": kind} for text in texts for kind in "ab"], {}),
                      ({"type": "object", "patternProperties": {"^a+$": short, "^[^a]+b$": {"type": "string", "minLength": 2}}, "additionalProperties": False}, [{"a": "\"\"\"\""}, {"xb": "\"\"\"\""}, {"aa": "\"\""}], {}),
                      ({"$defs": {"s": short}, "type": "array", "items": {"anyOf": [{"$ref": "#/$defs/s"}, {"type": "object", "properties": {"n": {"$ref": "#/$defs/s"}}, "required": ["n"]}]}},
                       [[text, {"n": text}] for text in texts], {})])

    def test_a_name_that_two_patterns_match_is_refused(self):
        """It would be held to one of their schemas."""
        source, texts = Expressions(7), Expressions(8).texts(300)
        pairs = [("^a.*$", "^.*b$"), ("^[a-c]+$", "^c{2,3}$"), ("a", "b"), ("^a{3}$", "^a{4,}$"), ("^(ab)*$", "^b(ab)*$"), ("^x?$", "^y?$"), (r"^\\d$", r"^\\D$"), ("^[^a]$", "^a$"),
                 *((source.expression(), source.expression()) for _ in range(60))]
        made = [{"type": "object", "patternProperties": {one: {"type": "null"}, other: {"type": "integer"}}, "additionalProperties": False} for one, other in pairs if one != other]
        found = answers([{"kind": "json_schema", "text": json.dumps(schema)} for schema in made])
        refused = 0
        for schema, answer in zip(made, found, strict=True):
            one, other = schema["patternProperties"]
            both = [text for text in texts if re.fullmatch(one, text, re.ASCII) and re.fullmatch(other, text, re.ASCII)]
            said = "can match both" in answer.get("refused", "") or "says the same" in answer.get("refused", "")
            self.assertTrue(said or not both, (one, other, both[:3], answer))
            refused += said
        told = ["can match both" in answer.get("refused", "") for answer in found[:8]]
        self.assertEqual(told, [True, True, False, False, False, True, False, False])
        self.assertTrue(8 < refused < len(made), refused)

    def test_patterns_match_what_json_escapes(self):
        texts = [text for text in TEXTS if text.isascii() or len(text) < 9] + ["\"a\"", "x\n", "\n\n", "\\n", "\x00", "a\x00"]
        cases = []
        for regex in ("^.{1,3}$", "^[^a]*$", "^[^ x]+$", r"^\s+$", r'^"[a-z]"$', r"^\\+$", r"^[\x00-\x1f]*$", r"^[\n\t]{2,}$", r"^\W{1,4}$", "^(?:\n|x)+$", r"^\D?$"):
            cases += [(schema_of(place, regex), [text if place == "pattern" else {text: None} for text in texts], {}) for place in PLACES[1:]]
        requests = [{"kind": "json_schema", "text": json.dumps(schema), "samples": 8, "accepts": [json.dumps(one, ensure_ascii=False) for one in values]} for schema, values, _ in cases]
        for (schema, values, _), answer in zip(cases, answers(requests), strict=True):
            self.assertNotIn("refused", answer, schema)
            regex = schema.get("pattern") or next(iter(schema.get("patternProperties", {})), None) or schema["propertyNames"]["pattern"]
            matches = lambda one: re.fullmatch(regex, one if isinstance(one, str) else next(iter(one)), re.ASCII) is not None  # noqa: B023
            self.assertEqual(answer["accepts"], [matches(one) for one in values], schema)
            self.assertTrue(all(matches(json.loads(text)) for text in answer["samples"]), answer["samples"])

    def test_references_written_as_parts_of_a_uri(self):
        """A name with a blank, a slash, a tilde, a percent sign or a letter beyond ASCII; a list's entry; a schema that refers to itself; a name that looks like ours."""
        names = {"n/1 x": "#/$defs/n~11%20x", "a~b": "#/$defs/a~0b", "ü": "#/$defs/%C3%BC", "50%": "#/$defs/50%25", "plain": "#/$defs/plain", "p q": "#/$defs/p q", "reference0": "#/$defs/reference0"}
        for at, (name, reference) in enumerate(names.items()):
            schema = {"$defs": {one: {"type": "integer", "minimum": 10 * i, "maximum": 10 * i + 5} for i, one in enumerate(names)}, "type": "array", "items": {"$ref": reference}, "maxItems": 2}
            self.compare([(schema, [[10 * at], [10 * at + 6], [10 * at - 1], [10 * at + 5, 10 * at]], {})])
        tree = {"$defs": {"a tree": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/a%20tree"}, {"type": "null"}]}}, "required": ["next"], "additionalProperties": False}},
                "$ref": "#/$defs/a%20tree"}
        self.compare([(tree, [{"next": None}, {"next": {"next": None}}, {"next": 1}, {}], {}),
                      ({"type": "object", "properties": {"a b": {"type": "null"}, "c": {"$ref": "#/properties/a%20b"}}, "required": ["a b", "c"]}, [{"a b": None, "c": None}, {"a b": None, "c": 1}], {})])
        for reference in ("#/$defs/n~11%2520x", "#/$defs/%zz", "#/$defs/~2"):
            refused = answers([{"kind": "json_schema", "text": json.dumps({"$defs": {"x": {"type": "null"}}, "$ref": reference})}])[0]
            self.assertIn("$ref", refused.get("refused", "accepted"), reference)

    def test_bounds_of_whole_numbers_may_have_a_fraction(self):
        source, cases = random.Random(9), []
        values = [*range(-12, 13), None, "x", 1.5, -0.5]
        for _ in range(120):
            low, high = sorted(source.choice([round(source.uniform(-8, 8), 1), float(source.randint(-8, 8)), source.randint(-8, 8)]) for _ in range(2))
            one = {**({source.choice(["minimum", "exclusiveMinimum"]): low} if source.random() < 0.8 else {}), **({source.choice(["maximum", "exclusiveMaximum"]): high} if source.random() < 0.8 else {})}
            whole = [value for value in range(-12, 13) if Draft202012Validator({"type": "integer", **one}).is_valid(value)]
            kind = source.choice(["integer", ["integer", "null"], ["string", "integer"], ["number", "integer"]])
            if one and (whole or "null" in kind or "string" in kind):
                # Of a number with a fraction every value has many spellings, of which the plain ones alone are asked for.
                cases.append(({"type": kind, **one}, [value for value in values if "number" not in kind or not isinstance(value, float)], {}))
        cases = [case for case in cases if any(Draft202012Validator({**case[0], "type": "integer"}).is_valid(value) for value in range(-12, 13))]
        self.assertGreater(len(cases), 60)
        self.compare(cases)
        self.compare([({"type": "array", "items": {"type": "null"}, "minItems": 1.0, "maxItems": 2.0}, [[], [None], [None] * 3], {}), ({"type": "string", "minLength": 2.0}, ["a", "ab"], {}),
                      ({"type": "integer", "minimum": 1.5}, [1, 2, 10 ** 17], {}), ({"type": "integer", "exclusiveMinimum": 1.5, "minimum": 3, "maximum": 1e3}, [2, 3, 1000, 1001], {})])

    def test_numbers_have_any_decimals_and_exponents(self):
        """Every number in its plain form, and with one digit but 0 before the point and an exponent; nothing outside of the bounds, as Python reads it."""
        source = random.Random(5)
        bounds = [{"minimum": 0}, {"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0}, {"exclusiveMaximum": 0}, {"maximum": 0}, {"minimum": -1.5, "maximum": 2.25},
                  {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"minimum": 0.1, "maximum": 0.3}, {"minimum": 5, "maximum": 5}, {"minimum": 0, "maximum": 0},
                  {"minimum": 1e-7, "maximum": 1e7}, {"minimum": 1e30}, {"maximum": -1e-30}, {"minimum": 1e-300, "maximum": 1e300}, {"minimum": 99.5, "maximum": 100.5},
                  {"minimum": 9.99, "maximum": 10.01}, {"minimum": 123456789, "maximum": 123456790}, {"minimum": 5e-324, "maximum": 1e-323}, {"exclusiveMinimum": -1, "exclusiveMaximum": -0.999}]
        for _ in range(40):
            low, high = sorted(round(source.uniform(-1, 1) * 10 ** source.randint(-6, 6), source.randint(0, 6)) for _ in range(2))
            one = {**({source.choice(["minimum", "exclusiveMinimum"]): low} if source.random() < 0.8 else {}), **({source.choice(["maximum", "exclusiveMaximum"]): high} if source.random() < 0.8 else {})}
            bounds += [one] if one and low < high else []
        cases = []
        for one in bounds:
            near = [bound * factor for bound in (*one.values(), 1, -1e5, 1e-5) for factor in (0, 1, 1.0000001, 0.9999999, 2, 0.5, -1, 10, 1e-3)]
            near += [step for bound in one.values() for step in (math.nextafter(bound, 9e99), math.nextafter(bound, -9e99), bound + 1, bound - 1e-9)]
            near += [source.uniform(-2, 2) * 10 ** source.randint(-20, 20) for _ in range(20)]
            texts = {form % number for number in near for form in ("%r", "%.3f", "%.12f", "%.15e", "%.2E")} | {str(int(number)) for number in near if abs(number) < 1e20}
            cases.append(({"type": "number", **one}, sorted(texts | {"-0", "0.000", "1E+05", "1e-07", "9e-400", "1e400", "00", "1.", "01", "-", "1e", ".5", "+1"})))
        found = answers([{"kind": "json_schema", "text": json.dumps(schema), "samples": 40, "seed": number, "accepts": texts} for number, (schema, texts) in enumerate(cases)])
        reached = 0
        for (schema, texts), answer in zip(cases, found, strict=True):
            self.assertNotIn("refused", answer, schema)
            valid = Draft202012Validator(schema)
            for text in answer["samples"]:
                valid.validate(json.loads(text))
            for text, accepted in zip(texts, answer["accepts"], strict=True):
                right = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text) is not None and valid.is_valid(json.loads(text))
                self.assertTrue(right or not accepted, (schema, text))
                plain = re.fullmatch(r"-?((0|[1-9]\d{0,23})(\.\d+)?|[1-9](\.\d+)?[eE][+-]?\d+)", text)
                # A text may be read as the bound though its digits are beyond it; and the next doubles beside an excluded one have few.
                edge = plain and (text == "1e400" or text == "9e-400" or any(abs(float(text) - bound) <= max(5e-324, abs(bound) * 2 ** -52) for key, bound in schema.items() if key != "type") and float(text) not in
                                  [float(repr(bound)) for key, bound in schema.items() if key in ("minimum", "maximum") and repr(float(text)) == text])
                if right and plain and not edge:
                    self.assertTrue(accepted, (schema, text))
                    reached += 1
        self.assertGreater(reached, 5000)
        refused = answers([{"kind": "json_schema", "text": json.dumps({"type": "number", **one})} for one in ({"minimum": 2, "maximum": 1}, {"minimum": 1, "exclusiveMaximum": 1}, {"minimum": 9007199254740993})])
        self.assertTrue(all("refused" in one for one in refused), refused)


if __name__ == "__main__":
    unittest.main(verbosity=2)
