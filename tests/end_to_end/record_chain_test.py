"""Texts of an earlier task as records: a prompt over their fields gives the texts that the same prompt gives when it is written out by
jinja2; verdicts and finish reasons leave records out; any number of ranks gives the same bytes; faults are named.
"""
import json
import tempfile
import unittest

import h5py
import jinja2

import tiny_world

SYSTEM = "Write about {{ topic }}."
USER = "{% for word in words %}{{ word }}, {% endfor %}{{ topic }}:"
CHAIN = """name: {name}
seed: 3
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    name: draft
    dataset: {{path: {data}, key: id}}
    prompt: {{system: "%s", user: "%s"}}
    max_new_tokens: 6
    n: 2
  - task: judge
    name: opinion
    dataset: {{task: draft, key: key}}
    prompt: {{system: "Judge.", user: "{{{{ topic }}}} {{{{ text }}}} {{{{ words[0] }}}}"}}
  - task: generate
    name: second
    dataset: {{task: opinion, keep: {{verdict: "yes", log_odds: ">= 0"}}}}
    prompt: {{user: "{{{{ text }}}} {{{{ verdict }}}} {{{{ words | length }}}} {{{{ log_odds }}}}"}}
    max_new_tokens: 4
  - task: generate
    name: finished
    dataset: {{task: draft, keep: {{finished: "false", text_index: "!= 1"}}}}
    prompt: {{user: "{{{{ key }}}} {{{{ text }}}}"}}
    max_new_tokens: 3
""" % (SYSTEM.replace("{", "{{").replace("}", "}}"), USER.replace("{", "{{").replace("}", "}}"))

PLAIN = """name: {name}
seed: 3
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    name: draft
    dataset: {{path: {data}.texts.jsonl, key: id}}
    max_new_tokens: 6
    n: 2
"""
FILES = ("draft.h5", "opinion.h5", "second.h5", "finished.h5")


def texts(path, *columns):
    with h5py.File(path) as file:
        return [[value.decode() if isinstance(value, bytes) else value for value in file[column][:].tolist()] for column in columns]


class RecordChain(unittest.TestCase, tiny_world.Refusals):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.world = tiny_world.World(cls.scratch.name, text=CHAIN, results=FILES)
        cls.records = [{"id": f"r{i}", "topic": f"{word} \"{i}\" ü", "words": tiny_world.WORDS[i:i + 1 + i % 3]} for i, word in enumerate(tiny_world.WORDS[:12])]
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in cls.records))
        with open(f"{cls.world.data}.texts.jsonl", "w", encoding="utf-8") as file:
            for record in cls.records:
                text = "\n\n".join(jinja2.Template(part).render(**record) for part in (SYSTEM, USER))
                file.write(json.dumps({"id": record["id"], "text": text}) + "\n")
        cls.digests = cls.world.complete("chain", 0)
        cls.runs = cls.world.folder / "runs"

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_prompts_are_those_that_jinja2_writes(self):
        self.world.text, self.world.names = PLAIN, FILES[:1]
        try:
            self.world.complete("plain", 0)
        finally:
            self.world.text, self.world.names = CHAIN, FILES
        columns = ("generate/text", "generate/prompt_tokens", "samples/key", "generate/logprob", "tokens/id")
        self.assertEqual(texts(self.runs / "chain/draft.h5", *columns), texts(self.runs / "plain/draft.h5", *columns))

    def test_fields_of_the_records_are_in_the_results(self):
        topic, words = texts(self.runs / "chain/draft.h5", "record/topic", "record/words")
        self.assertEqual(topic, [record["topic"] for record in self.records for _ in range(2)])
        self.assertEqual([json.loads(one) for one in words], [record["words"] for record in self.records for _ in range(2)])

    def test_only_what_the_verdicts_let_through_is_written_anew(self):
        with h5py.File(self.runs / "chain/opinion.h5") as file:
            verdict, odds = file["judge/verdict"][:], file["judge/log_odds"][:]
        text, topic = texts(self.runs / "chain/opinion.h5", "record/text", "record/topic")
        self.assertEqual(topic, [record["topic"] for record in self.records for _ in range(2)])
        self.assertEqual(text, texts(self.runs / "chain/draft.h5", "generate/text")[0])
        kept = [one for one, v, o in zip(text, verdict, odds) if v == 0 and o >= 0]
        self.assertTrue(0 < len(kept) < len(text), "the test needs both verdicts")
        self.assertEqual(texts(self.runs / "chain/second.h5", "record/text")[0], kept)
        self.assertEqual(set(texts(self.runs / "chain/second.h5", "record/verdict")[0]), {"yes"})
        written = [float(str(one)) for one in odds[(verdict == 0) & (odds >= 0)]]  # numpy writes a float32 in the fewest digits, too
        self.assertEqual([float(one) for one in texts(self.runs / "chain/second.h5", "record/log_odds")[0]], written)
        self.assertNotEqual(written, odds[(verdict == 0) & (odds >= 0)].astype(float).tolist())

    def test_only_texts_that_were_cut_off(self):
        draft, reason, index = texts(self.runs / "chain/draft.h5", "generate/text", "generate/finish_reason", "generate/text_index")
        kept = [one for one, why, number in zip(draft, reason, index) if why == 1 and number != 1]
        self.assertTrue(kept)
        self.assertEqual(texts(self.runs / "chain/finished.h5", "record/text")[0], kept)

    def test_any_number_of_ranks_and_restarts_give_the_same_bytes(self):
        for ranks in (1, 2):
            self.world.forget("chain")
            self.assertEqual(self.world.complete("chain", ranks), self.digests)
        self.assertEqual(self.world.complete("chain", 0), self.digests)
        self.world.forget("chain")
        self.world.run("chain", 0, MAGISTER_FAIL_POINT="generate.record.done:kill:9")
        self.assertEqual(self.world.complete("chain", 2), self.digests)

    def test_faults_are_named(self):
        self.refused("nobody", 78, "no task before this one is named drafts", "did you mean draft?", overrides=("tasks.1.dataset.task=drafts",))
        self.refused("field", 78, '"topik" is not a field of the records', 'did you mean "topic"?', overrides=('tasks.0.prompt.user="{{ topik }}"',))
        self.refused("both", 78, "is given together with `prompt`", overrides=("tasks.0.dataset.text=topic",))
        self.refused("alone", 78, "is given without `task`", overrides=("tasks.0.dataset.keep.verdict=yes",))
        self.refused("none", 65, "dataset.keep leaves none of its 24 samples", overrides=("tasks.3.dataset.keep.text_index=7",))
        self.refused("unknown", 65, 'dataset.keep names the field "verdict"', overrides=("tasks.3.dataset.keep.verdict=yes",))


if __name__ == "__main__":
    unittest.main()
