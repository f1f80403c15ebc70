"""Tasks that are repeated - rounds and a matrix - against the same experiment written out: the same bytes, on any number of ranks and after kills;
a task's own seed; more tasks than are open at once."""
import hashlib
import re
import subprocess
import sys
import tempfile
import unittest

from safetensors.numpy import load_file

import tiny_world

HEAD = tiny_world.EXPERIMENT.split("tasks:")[0].replace("name: {name}\n", "name: {name}\nseed: 5\n") + "tasks:\n"
START = "  - {{task: train, name: model-0, dataset: {{path: {data}, limit: 6}}, train: {{steps: 1, max_length: 64}}}}\n"
REPEATED = HEAD + START + """  - rounds: 2
    tasks:
      - matrix: {{sampling: [{{name: cool, temperature: 0.5}}, {{name: hot, temperature: 1.5}}], seed: [1, 2]}}
        tasks:
          - task: generate
            name: texts-{{round}}-{{sampling.name}}-{{seed}}
            model: {{task: "model-{{round-1}}"}}
            seed: "{{seed}}"
            dataset: {{path: {data}, limit: 4}}
            max_new_tokens: 5
            temperature: "{{sampling.temperature}}"
      - {{task: train, name: "model-{{round}}", model: {{task: "model-{{round-1}}"}}, dataset: {{path: {data}, limit: 6}}, train: {{steps: 1, max_length: 64}}}}
"""
GENERATE = """  - task: generate
    name: texts-{round}-{name}-{seed}
    model: {{{{task: model-{before}}}}}
    seed: {seed}
    dataset: {{{{path: {{data}}, limit: 4}}}}
    max_new_tokens: 5
    temperature: {temperature}
"""


def written_out():
    text = HEAD + START
    for round_number in (1, 2):
        for name, temperature in (("cool", 0.5), ("hot", 1.5)):
            for seed in (1, 2):
                text += GENERATE.format(round=round_number, before=round_number - 1, name=name, temperature=temperature, seed=seed)
        text += START.replace("model-0,", f"model-{round_number}, model: {{{{task: model-{round_number - 1}}}}},")
    return text


class Groups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = tiny_world.World(scratch.name, records=5, text=REPEATED, results=("model-2.h5",))

    def files(self, name):
        """sha256 of all results, students' weights among them."""
        folder = self.world.results(name).parent
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*"))
                if path.suffix in (".h5", ".safetensors") and ".checkpoints" not in str(path)}

    def test_same_bytes_as_written_out(self):
        self.world.text = written_out()
        self.world.complete("whole", 1)
        self.world.text = REPEATED
        whole = self.files("whole")
        self.assertEqual(len(whole), 11 + 3)  # 8 texts, 3 curves; 3 models
        for ranks, point in ((2, ""), (0, "generate.pass@30:kill")):
            self.world.forget("whole")
            if point:
                self.assertNotEqual(self.world.run("whole", ranks, MAGISTER_FAIL_POINT=point).returncode, 0)
            self.world.complete("whole", ranks)
            self.assertEqual(self.files("whole"), whole, point)
        # The seeds of the texts are theirs alone.
        try:
            self.world.text = HEAD + START + "".join(START.replace("model-0,", f"model-{i}, model: {{{{task: model-{i - 1}}}}},") for i in (1, 2))
            self.world.complete("alone", 0)
        finally:
            self.world.text = REPEATED
        self.assertEqual(self.files("alone")["model-2/model.safetensors"], whole["model-2/model.safetensors"])
        self.assertEqual(len({whole[f"texts-1-hot-{seed}.h5"] for seed in (1, 2)}), 2)
        for name in ("texts-2-hot-2.h5", "model-2.h5"):
            done = subprocess.run([tiny_world.PROGRAM, "check", str(self.world.results("whole").with_name(name))], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_shared_seed_decides_nothing_of_a_task_with_its_own(self):
        self.world.text = HEAD + START.replace("model-0,", "model-0, seed: 3,") + START.replace("model-0,", "model-1,")
        try:
            self.assertEqual(self.world.run("shared", 0, "seed=5").returncode, 0)
            folder = self.world.results("shared").parent
            (folder / "model-1.h5").unlink()
            done = self.world.run("shared", 0, "seed=6")
            self.assertIn("model-0.h5 is complete already", done.stderr)
        finally:
            self.world.text = REPEATED

    def test_plan_shows_every_task(self):
        done = subprocess.run([tiny_world.PROGRAM, "plan", "--ranks", "2", str(self.world.experiment("planned"))], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("task ")]
        self.assertEqual((len(found), found[0], found[1], found[-1]), (11, "model-0", "texts-1-cool-1", "model-2"))
        needs = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("  needs ")]
        self.assertEqual(needs, [["model-0"]] * 5 + [["model-1"]] * 5)
        order = done.stdout[done.stdout.index("\norder over 2 groups of 1 rank"):].splitlines()[3:]
        steps = {task: (int(step), int(groups)) for step, groups, task in map(str.split, order)}
        self.assertEqual(set(steps), set(found))
        self.assertEqual(steps["model-0"], (1, 2))
        self.assertEqual([steps[name][1] for name in ("texts-1-cool-1", "texts-2-hot-2", "model-2")], [1, 1, 1])  # as a run has it: at_once_test.py
        for name, before in (("texts-1-hot-2", "model-0"), ("model-1", "model-0"), ("texts-2-cool-1", "model-1"), ("model-2", "model-1")):
            self.assertGreater(steps[name][0], steps[before][0], order)
        alone = subprocess.run([tiny_world.PROGRAM, "plan", "--ranks", "1", str(self.world.experiment("planned"))], env=self.world.environment, capture_output=True, text=True, check=False)
        self.assertTrue(alone.stdout.endswith("\norder: one after the other, each over all ranks\n"), alone.stdout[-500:])
        # What is computed: 6 FLOPs a parameter and token of 1 step of 8 sequences, 2 for each that is read or written.
        parameters = sum(tensor.size for tensor in load_file(self.world.model / "model.safetensors").values())
        model, texts = ({line.split(None, 1)[0]: line.split(None, 1)[1] for line in task.splitlines()[1:]} for task in done.stdout.split("\ntask ")[:2])
        for task, flops in ((model, 6 * 8 * int(model["tokens"]) / int(model["samples"])), (texts, 2 * (int(texts["tokens"]) + 5 * int(texts["samples"])))):
            self.assertRegex(task["time"], rf"\d:\d\d:\d\d or more: {re.escape(f'{parameters * flops:.2g}')} FLOPs on 1 host of ")

    def test_a_seed_where_nothing_is_drawn(self):
        done = self.world.run("planned", 0, "tasks.0.task=judge", "tasks.0.seed=3")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("tasks.0.seed: unknown key", done.stderr)
        done = self.world.run("planned", 0, "tasks.1.tasks.1.model.task=model-{round}")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("model-1 is this task itself", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
