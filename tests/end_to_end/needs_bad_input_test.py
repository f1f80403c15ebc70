"""Experiments of several tasks that cannot be run, a table: `plan` and `run` refuse each before any work with its exit code, file:line:column of the value that
is wrong and what to do, and no results stand there. `@` marks where the message must point.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import score_test
import tiny_world

HEAD = "name: {name}\noutput: {{directory: {runs}}}\nmodel: {{path: {model}, dtype: f32}}\nlayout: {{devices: cpu}}\ntasks:\n"
TRAIN = "  - {{task: train, name: %s, dataset: {{path: {data}}}, train: {{steps: 1, max_length: 32}}%s}}\n"
WORTH = TRAIN.replace("path: {data}}}", "path: {pairs}}}, objective: reward")
TEXTS = "  - {{task: generate, name: %s, dataset: {{path: {data}}}, max_new_tokens: 3%s}}\n"
JUDGE = "  - {{task: judge, name: %s, dataset: {{path: {data}}}, mode: simpleqa, prompt: {{user: hello}}%s}}\n"
SCORE = "  - {{task: score, name: %s, dataset: {{path: {data}}}, score: {{verifier: exact}}%s}}\n"
ROLLOUT = "  - {{task: rollout, name: %s, dataset: {{path: {data}}}, max_new_tokens: 3%s}}\n"
DISTILL = "  - {{task: train, name: student, objective: distill, teacher: {{%s}}, train: {{steps: 1, max_length: 32}}}}\n"
TEACHER = "  - {{task: teacher_logits, dataset: {{path: {data}}}}}\n"
SAMPLED = TEACHER.replace("dataset:", "encoding: sampled, top_k: 4, dataset:")
VALUE = "  - {{task: train, name: value, objective: value, rollouts: {{%s}}, train: {{steps: 1, max_length: 32}}%s}}\n"
POLICY = "  - {{task: train, name: policy, objective: grpo, dataset: {{path: {data}}}, grpo: {{num_generations: 2, max_new_tokens: 2, reward: %s}}, train: {{steps: 1, global_batch: 2, max_length: 32}}}}\n"
GUIDE = ", guide: {{model: %s}}"
GROUP = "  - %s\n    tasks:\n      - {{task: generate, name: %s, dataset: {{path: {data}}}, max_new_tokens: 3%s}}\n"
COUNTED = TEXTS % ("texts", ", n: 3%s") + SCORE % ("score", ", answers: texts") + "  - {{task: evaluate, scores: score, %s}}\n"
MANY = ", ".join(map(str, range(100)))

# What is wrong, the tasks, words of the message; the exit code where it is another than 78.
CASES = [
    ("a cycle of two", TEXTS % ("one", ", needs: @two") + TEXTS % ("two", ", needs: one"), "two comes after this task"),
    ("a cycle of three", TEXTS % ("one", ", needs: @[three]") + TEXTS % ("two", ", needs: one") + TEXTS % ("three", ", needs: two"), "three comes after this task"),
    ("needs itself", TEXTS % ("one", ", needs: @one"), "one is this task itself"),
    ("needs a later one", TEXTS % ("one", "") + TEXTS % ("two", ", needs: @[one, three]") + TEXTS % ("three", ""), "three comes after this task"),
    ("needs nobody", TEXTS % ("texts", "") + TEXTS % ("two", ", needs: @text"), "did you mean texts?"),
    ("the next round", GROUP % ("rounds: 2", '"texts-{{round}}"', ', seed: "{{round}}", needs: @"texts-{{round+1}}"'), "texts-2 comes after this task"),
    ("a round before the first", GROUP % ("rounds: 2", '"texts-{{round}}"', ', seed: "{{round}}", needs: @"texts-{{round-1}}"'), "no task before this one is named texts-0"),
    ("a model of nobody", TRAIN % ("student", "") + TEXTS % ("one", ", model: {{task: @studnet}}"), "did you mean student?"),
    ("a later model", TEXTS % ("one", ", model: {{task: @student}}") + TRAIN % ("student", ""), "student comes after this task"),
    ("a model of texts", TEXTS % ("texts", "") + TEXTS % ("one", ", model: {{task: @texts}}"), "texts is a generate task"),
    ("answers of nobody", TEXTS % ("texts", "") + SCORE % ("score", ", answers: @textes"), "did you mean texts?"),
    ("later answers", SCORE % ("score", ", answers: @texts") + TEXTS % ("texts", ""), "texts comes after this task (its results are read"),
    ("later answers, judged", JUDGE % ("verdicts", ", answers: @texts") + TEXTS % ("texts", ""), "texts comes after this task (its results are read"),
    ("answers of itself", JUDGE % ("verdicts", ", answers: @verdicts"), "verdicts is this task itself"),
    ("a later panel", JUDGE % ("first", "") + JUDGE % ("second", ", panel: [first, @third]") + JUDGE % ("third", ""), "third comes after this task"),
    ("a later teacher", DISTILL % "task: @teacher" + "  - {{task: teacher_logits, dataset: {{path: {data}}}}}\n", "teacher comes after this task"),
    ("later rollouts", VALUE % ("task: @rollouts", "") + ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}"), "rollouts comes after this task"),
    ("answers of nobody, judged", TEXTS % ("texts", "") + JUDGE % ("verdicts", ", answers: @txts"), "did you mean texts?"),
    ("answers of a training", TRAIN % ("student", "") + SCORE % ("score", ", answers: @student"), "student, which is a train task"),
    ("a panel of nobody", JUDGE % ("first", "") + JUDGE % ("second", ", panel: @[frist]"), "did you mean first?"),
    ("a teacher of nobody", "  - {{task: teacher_logits, dataset: {{path: {data}}}}}\n" + DISTILL % "task: @techer", "did you mean teacher?"),
    ("rollouts of nobody", ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}") + VALUE % ("task: @rollout", ""), "did you mean rollouts?"),
    ("a guide of nobody", WORTH % ("worth", "") + TEXTS % ("one", GUIDE % "{{task: @worht}}"), "did you mean worth?"),
    ("a guide without a head", TRAIN % ("student", "") + TEXTS % ("one", GUIDE % "{{task: @student}}"), "no train task of objective reward or value"),
    ("a score's model of nobody", WORTH % ("worth", "") + "  - {{task: score, dataset: {{path: {data}}}, model: {{task: @wort}}}}\n", "did you mean worth?"),
    ("a rollout's reward of nobody", WORTH % ("worth", "") + ROLLOUT % ("rollouts", ", reward: {{model: {{task: @wrth}}}}"), "did you mean worth?"),
    ("an evaluation of nobody", SCORE % ("score", "") + "  - {{task: evaluate, scores: @[scroe]}}\n", "did you mean score?"),
    ("more texts than there are", COUNTED % ("", "evaluate: {{pass_at: @[1, 4]}}"), "asks for 4, and score has 3 texts a record"),
    ("more votes than there are", COUNTED % ("", "evaluate: {{majority_at: @5}}"), "asks for 5, and score has 3 texts a record"),
    ("more texts than a record's own", SCORE % ("score", "") + "  - {{task: evaluate, scores: score, evaluate: {{pass_at: @2}}}}\n", "asks for 2, and score has 1 text a record"),
    ("a reward without a threshold", WORTH % ("worth", "") + "  - {{task: score, dataset: {{path: {data}}}, model: {{task: worth}}}}\n  - {{task: evaluate, scores: score, @evaluate: {{pass_at: 1}}}}\n", "threshold is not given, and score is scored by a model"),
    ("votes about rewards", WORTH % ("worth", "") + "  - {{task: score, dataset: {{path: {data}}}, model: {{task: worth}}}}\n  - {{task: evaluate, scores: score, evaluate: {{majority_at: @1, threshold: 0}}}}\n", "scored by a model (which texts"),
    ("answers of fewer records", COUNTED.replace("{{path: {data}}}", "{{path: {data}, limit: 2}}", 1).replace("answers: ", "answers: @") % ("", "name: rates"), "records 2 to 3 have no text"),
    ("answers of other records", COUNTED.replace("answers: ", "answers: @") % (", slice: 1/2", "name: rates"), "records 0 to 1 have no text"),
    ("answers of fewer records, judged", (TEXTS % ("texts", "")).replace("{data}", "{data}, limit: 2") + JUDGE % ("verdicts", ", answers: @texts"), "records 2 to 3 have no text"),
    ("a panel on other records", (JUDGE % ("first", "")).replace("{data}", "{data}, limit: 2") + JUDGE % ("second", ", panel: @[first]"), "first, which judges records 0 to 2, and this task those from 0 to 4"),
    ("a panel of another mode", JUDGE % ("first", "") + (JUDGE % ("second", ", panel: @[first]")).replace("mode: simpleqa", "mode: rubric, classes: 5"), "first, whose verdicts are correct,incorrect,not_attempted, and this task's are 1,2,3,4,5"),
    ("a tail of samples", SAMPLED + DISTILL.replace("train: {{steps", "distill: {{tail: gold}}, train: {{steps") % "task: @teacher", "the rows of teacher are samples (they have no tail"),
    ("a loss that samples bias", SAMPLED + DISTILL.replace("train: {{steps", "distill: {{loss: reverse_kl}}, train: {{steps") % "task: @teacher", "only that is linear"),
    ("held-out samples", TEACHER + SAMPLED.replace("dataset:", "name: samples, dataset:") + DISTILL.replace("max_length: 32", "max_length: 32, evaluate: {{teacher: {{task: @samples}}}}").replace("train: {{steps", "distill: {{tail: gold}}, train: {{steps") % "task: teacher", "the rows of samples are samples"),
    ("preferences of single texts", ROLLOUT % ("rollouts", ", n: 1, reward: {{verifier: exact}}") + VALUE % ("task: @rollouts", ", value: {{loss: preference}}"), "has one continuation a cut"),
    ("rewards beyond their range", ROLLOUT % ("rollouts", ", reward: {{verifier: exact, scale: 5}}") + VALUE % ("task: rollouts", ", value: {{max_reward: @2.5}}"), "rollouts gives 0 or 5"),
    ("methods on other records", SCORE % ("one", "") + (SCORE % ("two", "")).replace("{data}", "{data}, limit: 2") + "  - {{task: evaluate, scores: @[one, two]}}\n", "two, which scores records 0 to 2, and one those from 0 to 4"),
    ("a name taken twice", TEXTS % ("one", "") + TEXTS % ("@one", ", seed: 1"), "the name one is taken by tasks.0"),
    ("a misspelt variable", (GROUP % ("matrix: {{seed: [1, 2]}}", '"texts-{{sede}}"', ', seed: "{{seed}}"')).replace("name:", "@name:"), "without {seed}"),
    ("a misspelt key of a variable", GROUP % ("matrix: {{way: [{{name: a, t: 0.5}}, {{name: b, t: 1.0}}]}}", '"texts-{{way.name}}"', ', @temperature: "{{way.temp}}"'), "{way.temp} is no variable"),
    ("an empty matrix", GROUP % ("@matrix: {{}}", "texts", ""), "no map of names to lists of values"),
    ("an empty list in a matrix", GROUP % ("matrix: {{@seed: []}}", '"texts-{{seed}}"', ', seed: "{{seed}}"'), "no list of single values"),
    *((f"rounds: {count}", GROUP % (f"@rounds: {count}", '"texts-{{round}}"', ', seed: "{{round}}"'), "give a whole number from 1 to 10000") for count in ("0", "-1", "1.5", "many", "10001")),
    ("a matrix of 10^6", GROUP % (f"@matrix: {{{{a: [{MANY}], b: [{MANY}], c: [{MANY}]}}}}", '"t-{{a}}-{{b}}-{{c}}"', ', seed: "{{a}}{{b}}{{c}}"'), "more than 10000 combinations"),
    ("rounds of a matrix, 10^6", "  - rounds: 1000\n    tasks:\n" + re.sub("(?m)^", "    ", GROUP % (f"matrix: {{{{a: [{MANY}], b: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}}}}", '"t-{{round}}-{{a}}-{{b}}"', ', seed: "{{a}}{{b}}{{round}}"')).rstrip()
     .replace("- {{task", "- @{{task") + "\n", "more than 10000 tasks when all is repeated"),
    ("a guide with another tokenizer", TEXTS % ("one", GUIDE % "@{{path: {foreign}}}"), "has another tokenizer than"),
    ("a trained guide with another tokenizer", WORTH % ("worth", ", model: {{path: {foreign}}}") + TEXTS % ("one", GUIDE % "@{{task: worth}}"), "has another tokenizer than"),
    ("a random guide with another tokenizer", WORTH % ("worth", ", model: {{config: {value}, tokenizer: {foreign}}}") + TEXTS % ("one", GUIDE % "@{{task: worth}}"), "has another tokenizer than"),
    ("rollouts of another tokenizer", ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}") + VALUE % ("task: @rollouts", ", model: {{path: {foreign}}}"), "whose model has another tokenizer"),
    ("a teacher with another tokenizer", "  - {{task: teacher_logits, dataset: {{path: {data}}}, model: {{path: {model}}}}}\n" + DISTILL.replace("name: student", "name: student, model: {{path: {other}}}") % "task: @teacher", "its tokens mean other texts", 65),
    ("candidates above the vocabulary", TEXTS % ("one", ", guide: {{model: {{path: {value}}}, candidates: @321}}"), "the vocabulary has 320 entries"),
    ("no candidates", TEXTS % ("one", ", guide: {{model: {{path: {value}}}, candidates: @0}}"), "candidates: 0 is out of range"),
    ("a guide of a language model", TEXTS % ("one", GUIDE % "@{{path: {model}}}"), "a language model without such a head"),
    ("a reward of a language model", ROLLOUT % ("rollouts", ", reward: {{model: @{{path: {model}}}}}"), "has 0 labels (a reward is one number)"),
    ("a score of a language model", "  - {{task: score, dataset: {{path: {data}}}, model: @{{path: {model}}}}}\n", "is a language model"),
    ("texts of a reward model", TEXTS % ("one", ", model: @{{path: {value}}}"), "is a classifier of 1 labels"),
    ("a rollout's guide with another tokenizer", ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}" + GUIDE % "@{{path: {foreign}}}"), "has another tokenizer than"),
    ("a rollout's candidates above the vocabulary", ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}, guide: {{model: {{path: {value}}}, candidates: @321}}"), "the vocabulary has 320 entries"),
    ("a rollout's judge of a reward model", ROLLOUT % ("rollouts", ", reward: {{judge: {{model: @{{path: {value}}}, mode: rubric}}}}"), "is no language model"),
    ("a policy's reward of a language model", POLICY % "{{model: @{{path: {model}}}}}", "has 0 labels (a reward is one number)"),
    ("a policy's reward of nobody", WORTH % ("worth", "") + POLICY % "{{model: {{task: @wroth}}}}", "did you mean worth?"),
    ("a score of a trained language model", TRAIN % ("student", "") + "  - {{task: score, dataset: {{path: {data}}}, model: @{{task: student}}}}\n", "is a language model"),
    ("a judge of a reward model", JUDGE % ("verdicts", ", model: @{{path: {value}}}"), "is a classifier of 1 labels"),
    ("a histogram from a head of one", ROLLOUT % ("rollouts", ", reward: {{verifier: exact}}") + VALUE % ("task: rollouts", ", value: {{loss: histogram}}, model: @{{path: {value}}}"), "is a classifier of 1 labels (this objective learns a head of 11)"),
    ("an adapter of a head", (WORTH % ("worth", "")).replace("max_length: 32", "max_length: 32, adapter: {{rank: @2}}"), "an adapter's folder cannot hold a head yet"),
    ("a file of a later task", (SCORE % ("score", "")).replace("path: {data}", 'path: @"{runs}/{name}/texts.h5"') + TEXTS % ("texts", ""), "texts comes after this task and writes that file"),
    ("a file of its own", (SCORE % ("score", "")).replace("path: {data}", 'path: @"{runs}/{name}/score.h5"'), "score is this task itself"),
    ("a pattern of files of later tasks", TEXTS % ("texts-1", "") + (SCORE % ("score", "")).replace("path: {data}", 'path: @"{runs}/{name}/texts-*.h5"') + TEXTS % ("texts-2", ""), "texts-2 comes after this task"),
    ("a later model by its path", TEXTS % ("one", ', model: {{path: @"{runs}/{name}/student"}}') + TRAIN % ("student", ""), "student comes after this task"),
]


class NeedsBadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=4, text=HEAD)
        small = dict(vocab_size=320, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, num_labels=1)
        score_test.make_classifier(cls.folder / "value", cls.world.model / "tokenizer.json", "llama", small)
        tokenizer = json.loads((cls.world.model / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
        for source, name in ((cls.folder / "value", "foreign"), (cls.world.model, "other")):
            shutil.copytree(source, cls.folder / name)
            (cls.folder / name / "tokenizer.json").write_text(json.dumps(tokenizer))
        (cls.folder / "pairs.jsonl").write_text('{"prompt": "a", "chosen": " b", "rejected": " c"}\n' * 4)
        cls.world.data.write_text("".join(json.dumps({"text": f"number {i}", "answer": "4", "completion": "4"}) + "\n" for i in range(4)))

    def refused(self, number, tasks, words, code=78):
        name = f"bad-{number}"
        world, folder = self.world, self.folder
        text = (HEAD + tasks).format(name=name, runs=folder / "runs", model=world.model, data=world.data, pairs=folder / "pairs.jsonl", value=folder / "value", foreign=folder / "foreign", other=folder / "other")
        self.assertEqual(text.count("@"), 1)
        before = text[:text.index("@")].split("\n")
        world.text = text.replace("@", "").replace("{", "{{").replace("}", "}}")
        place = f"{folder / name}.yaml:{len(before)}:{len(before[-1]) + 1}: "
        plan = subprocess.run([tiny_world.PROGRAM, "plan", str(world.experiment(name))], env=world.environment, cwd=folder, capture_output=True, text=True, check=False)
        for done in (plan, world.run(name, 0)):
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(place, done.stderr)
            line = next(line for line in done.stderr.splitlines() if place in line)
            self.assertIn(words, line)
            self.assertRegex(line, r"tasks\.[0-9a-z_.]+:? .+ \(.+\); .+$")
        self.assertEqual([str(path) for path in (folder / "runs").rglob("*") if ".h5" in path.name], [])

    def test_every_case(self):
        self.assertEqual(len({name for name, *_ in CASES}), len(CASES))
        for number, (name, tasks, *rest) in enumerate(CASES):
            with self.subTest(name):
                self.refused(number, tasks, *rest)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
