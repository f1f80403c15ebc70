"""Few records are divided over all groups: who comes first holds no more than its equal part, and takes more when others do not come. Ranks stand still
while they load their weights until the first has begun, and all of them in their first pass, so what each computes is no matter of time.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import tiny_world

HEAD = tiny_world.EXPERIMENT.split("layout:")[0] + "seed: 3\ntasks:\n"
ON_HOST = {"MAGISTER_GPU_CODE_ON_HOST": "1"}
TASKS = {
    "generate": {"task": "generate", "max_new_tokens": 4, "max_prompt_length": 64, "n": 2, "ignore_eos": True},
    "judge": {"task": "judge", "mode": "reference", "prompt": {"user": "{{ text }} Is it right?"}, "max_prompt_length": 64},
    "pairs": {"task": "judge", "mode": "pairwise", "prompt": {"user": "{{ answer_a }} or {{ answer_b }}?"}, "max_prompt_length": 64},
    "replies": {"task": "judge", "mode": "reference", "method": "decode", "read": "score", "max_new_tokens": 4, "prompt": {"user": "{{ text }} Is it right?"}, "max_prompt_length": 64},
    "rollout": {"task": "rollout", "max_new_tokens": 4, "max_prompt_length": 64, "cuts": 2, "n": 2, "ignore_eos": True, "reward": {"verifier": "regex", "pattern": "a"}},
}


class Shares(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = tiny_world.World(scratch.name, records=1)
        cls.world.data.write_text("".join(json.dumps({"id": f"r{i}", "text": "plan unit shard", "answer_a": "the logit", "answer_b": "the year"}) + "\n" for i in range(48)))

    def prepare(self, name, kind, records):
        task = {**TASKS[kind], "name": "results", "dataset": {"path": str(self.world.data), "key": "id", "limit": records}}
        self.world.names = ("results.h5",)
        self.world.text = HEAD + "  - " + json.dumps(task).replace("{", "{{").replace("}", "}}") + "\n"
        self.world.forget(name)
        return task["task"]

    def stand(self, process, count):
        """Until so many ranks stand still -> their process ids by rank."""
        tiny_world.wait_until(lambda: len(tiny_world.stopped_ranks(process)) == count or process.poll() is not None, seconds=240)
        found = {}
        for pid in tiny_world.stopped_ranks(process):
            variables = dict(entry.split("=", 1) for entry in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry)
            found[int(variables["OMPI_COMM_WORLD_RANK"])] = pid
        return found

    def tokens(self, name):
        """By group, of the units that it committed."""
        lines = (self.world.results(name).parent / "run.jsonl").read_text().splitlines()
        (phases,) = [event for event in map(json.loads, lines) if event["event"] == "phases"]
        return [group["tokens"] for group in phases["groups"]]

    def divided(self, kind, records, ranks, *overrides, **environment):
        name = f"{kind}-{records}"
        task = self.prepare(name, kind, records)
        points = [f"{task}.pass:stop", *(f"model.load.tensor/{rank}:stop" for rank in range(1, ranks))]
        with self.world.start(name, ranks, *overrides, MAGISTER_FAIL_POINT=",".join(points), **environment) as process:
            try:
                for rank, pid in self.stand(process, ranks).items():  # rank 0 has begun, the others have not
                    if rank > 0:
                        os.kill(pid, signal.SIGCONT)  # it runs as soon as this returns
                self.stand(process, ranks)
            finally:
                _, errors = tiny_world.let_go(process)
        self.assertEqual(process.returncode, 0, errors[-3000:])
        return self.tokens(name)

    def test_every_group_has_its_part(self):
        for kind, records, all_ranks in (("generate", 24, (2, 3, 4)), ("generate", 48, (3,)), ("judge", 24, (2, 4)), ("judge", 48, (3,)), ("pairs", 48, (3,)), ("replies", 24, (2,)), ("rollout", 24, (3,))):
            for ranks in all_ranks:
                tokens = self.divided(kind, records, ranks, "layout.devices=cpu")
                print(f"   {kind}, {records} records, {ranks} ranks: {tokens}", flush=True)
                self.assertEqual(len(tokens), ranks)
                self.assertLess(max(tokens) / (sum(tokens) / ranks), 1.1, f"{kind}, {records} records: {tokens}")

    def test_idle_groups_are_told(self):
        """A unit is computed by one group: who has fewer records than groups reads why some have stood still."""
        for records, words in ((1, "there was 1 unit for all of them; fewer ranks are enough for so few records"), (24, None)):
            self.prepare("idle", "generate", records)
            done = self.world.run("idle", 2, "run.schedule=static")
            self.assertEqual("of 2 groups computed nothing" in done.stderr, records == 1, done.stderr[-2000:])
            if words:
                self.assertIn(f"results: 1 of 2 groups computed nothing: {words}", done.stderr)

    def test_every_gpu_has_its_part(self):
        for kind, ranks in (("generate", 2), ("judge", 3)):
            tokens = self.divided(kind, 24, ranks, **ON_HOST)
            self.assertLess(max(tokens) / (sum(tokens) / ranks), 1.1, f"{kind}, {ranks} GPUs: {tokens}")

    def test_nobody_waits_for_a_group_that_does_not_come(self):
        """Rank 1 stands still while it loads its weights: rank 0 computes all, though it held no more than half at first."""
        self.prepare("alone", "generate", 24)
        with self.world.start("alone", 2, "layout.devices=cpu", MAGISTER_FAIL_POINT="model.load.tensor/1:stop") as process:
            try:
                self.stand(process, 1)
                status = [tiny_world.PROGRAM, "status", str(self.world.results("alone").parent)]
                done = tiny_world.wait_until(lambda: "24/24" in (said := subprocess.run(status, env=self.world.environment, capture_output=True, text=True, check=False).stdout) and said, seconds=240, pause=0.2)
                self.assertIn("24/24", done)
                self.assertEqual(len(tiny_world.stopped_ranks(process)), 1)
            finally:
                _, errors = tiny_world.let_go(process)
        self.assertEqual(process.returncode, 0, errors[-3000:])
        tokens = self.tokens("alone")
        self.assertEqual(tokens[1], 0)
        self.assertGreater(tokens[0], 0)

    def test_the_same_bytes(self):
        found = set()
        for ranks in (1, 3):
            self.prepare("same", "generate", 24)
            found.add(tuple(self.world.complete("same", ranks, "layout.devices=cpu")))
        self.assertEqual(len(found), 1)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
