"""The life of a task, the same for all of them: what makes two runs the same experiment, whose files may be touched, where a stop is
honoured, what is refused before any task computes, and that `plan` says what `run` would do.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py

from tiny_world import CHAIN, PROGRAM, World, let_go, make_model, ranks_of, stopped_ranks, wait_until

CHAT_TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
CHATS = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - {{task: teacher_logits, dataset: {{path: {data}, messages: messages}}, max_length: 64, top_k: 4, unit_tokens: 64}}
"""
TOKENS = CHATS.replace("messages: messages", "tokens: ids")


TWO_MODELS = CHATS.split("  - ")[0] + """  - {{task: teacher_logits, name: one, dataset: {{path: {data}, key: id}}, max_length: 64, top_k: 4, unit_tokens: 64}}
  - {{task: teacher_logits, name: two, model: {{path: {runs}/../second, dtype: f32}}, dataset: {{path: {data}, key: id}}, max_length: 64, top_k: 4, unit_tokens: 64}}
"""
TRAINING = CHATS.split("  - ")[0] + """  - {{task: train, name: student, dataset: {{path: {data}, key: id}}, train: {{steps: 3, global_batch: 4, max_length: 64, save_every: 1}}}}
"""


class Lifecycle(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def world(self, text=None, results=("teacher.h5",), records=40):
        world = World(self.folder, records=records, **({} if text is None else {"text": text, "results": results}))
        self.env = world.environment
        return world

    def plan(self, world, name, *arguments):
        return subprocess.run([PROGRAM, "plan", str(world.experiment(name)), *arguments], env=self.env, cwd=self.folder, text=True,
                              capture_output=True, check=False, timeout=1200)

    def refused(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stderr[-2000:])
        for word in words:
            self.assertIn(word, result.stderr)


class Identity(Lifecycle):
    """Number 4: every file that decides the content is part of it."""

    def changed_meanwhile(self, world, point, change, *words):
        """Exit code 74 where files are changed while the run stands at `point`."""
        process = world.start("x", 2, "run.at_once=1", MAGISTER_FAIL_POINT=f"{point}:stop")
        wait_until(lambda: stopped_ranks(process) or process.poll() is not None)
        change()
        _, message = let_go(process)
        self.assertEqual(process.returncode, 74, message[-2000:])
        for word in ("since this job opened it", "run the same command again", *words):
            self.assertIn(word, message)

    def test_a_later_task_s_model_that_changes_while_the_job_runs(self):
        """All models are opened at the start and hashed when their task begins. What was hashed would name numbers of another model."""
        world = self.world(TWO_MODELS, ("one.h5", "two.h5"))
        second, other = self.folder / "second", make_model(self.folder / "other", seed=9)
        for name, change, words in (
                ("renamed", lambda: os.replace(shutil.copy(other / "model.safetensors", second / "new"), second / "model.safetensors"), ("model.safetensors: was changed",)),
                ("written over", lambda: (second / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes()), ("model.safetensors: was changed",)),
                ("with its time", lambda: (shutil.copy2(other / "model.safetensors", second / "new"),
                                           os.utime(second / "new", ns=((second / "model.safetensors").stat().st_mtime_ns,) * 2),
                                           os.replace(second / "new", second / "model.safetensors")), ("model.safetensors: was changed",)),
                ("another config", lambda: (second / "config.json").write_text((second / "config.json").read_text() + "\n"), ("config.json: was changed",)),
                ("another tokenizer", lambda: os.replace(second / "tokenizer.json", second / "old"), ("tokenizer.json: is gone",)),
                ("another folder", lambda: (shutil.rmtree(second), shutil.copytree(other, second)), ("second/",))):
            with self.subTest(name):
                shutil.rmtree(second, ignore_errors=True)
                shutil.copytree(world.model, second)
                self.changed_meanwhile(world, "teacher.unit.begin", change, *words)
                self.assertEqual([path.name for path in world.results("x").parent.glob("two*")], [])
                if name == "another tokenizer":
                    os.replace(second / "old", second / "tokenizer.json")
                found = world.complete("x", 2)
                world.forget("x")
                self.assertEqual(found, world.complete("x", 1))
                world.forget("x")

    def test_a_model_s_config_that_changes_while_it_is_trained(self):
        """It is read once more for the student's folder."""
        world = self.world(TRAINING, ("student.h5",))
        config = world.model / "config.json"
        whole = config.read_text()
        self.changed_meanwhile(world, "train.step.begin@2", lambda: config.write_text(whole.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 0.5')), "config.json: was changed")
        self.assertIn('"rms_norm_eps": 0.5', config.read_text())
        self.refused(world.run("x", 2), 78, "model_sha256")
        config.write_text(whole)
        world.complete("x", 1)
        self.assertNotIn('"rms_norm_eps": 0.5', (world.results("x").with_suffix("") / "config.json").read_text())

    def chats(self):
        world = self.world(CHATS)
        with open(world.data, "w", encoding="utf-8") as file:
            for i in range(30):
                file.write(json.dumps({"messages": [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": "answer"}]}) + "\n")
        (world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE, "eos_token": "<|end|>"}))
        return world

    def test_chat_template_of_teacher_logits(self):
        world = self.chats()
        world.complete("x", 2)
        config = world.model / "tokenizer_config.json"
        # Another end token that the vocabulary does not mark becomes a token of its own: other ids, so the tokenizer is another one.
        for changed, differs in (({"chat_template": CHAT_TEMPLATE.replace("<", "["), "eos_token": "<|end|>"}, "chat_template_sha256"),
                                 ({"chat_template": CHAT_TEMPLATE}, "chat_template_sha256"),
                                 ({"chat_template": CHAT_TEMPLATE, "eos_token": "!"}, "tokenizer_sha256")):
            config.write_text(json.dumps(changed))
            self.refused(world.run("x", 1), 78, differs)
            self.refused(self.plan(world, "x"), 78, differs)

    def test_slices_made_with_two_templates_do_not_merge(self):
        world = self.chats()
        world.complete("a", 1, "tasks.0.slice=0/2")
        (world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE.replace("<", "["), "eos_token": "<|end|>"}))
        world.complete("b", 1, "tasks.0.slice=1/2")
        merged = subprocess.run([PROGRAM, "merge", str(self.folder / "m.h5"), str(world.results("a")), str(world.results("b"))],
                                env=self.env, capture_output=True, text=True, check=False)
        self.assertNotEqual(merged.returncode, 0)
        self.assertIn("chat_template_sha256", merged.stderr)

    def test_end_tokens_of_generation_config(self):
        world = self.world(CHAIN, ("answers.h5",))
        (world.model / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
        world.run("x", 1, "tasks.0.max_new_tokens=3")
        with h5py.File(world.results("x")) as file:
            self.assertEqual(file.attrs["end_tokens"], b"7")
        (world.model / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
        self.refused(world.run("x", 1, "tasks.0.max_new_tokens=3"), 78, "end_tokens", "7 9")

    def test_token_ids_need_no_tokenizer(self):
        """Number 7."""
        world = self.world(TOKENS)
        world.data.write_text("".join(json.dumps({"ids": [i % 50, 3, 5, 8]}) + "\n" for i in range(20)))
        (world.model / "tokenizer.json").unlink()
        world.complete("x", 2)
        with h5py.File(world.results("x")) as file:
            self.assertEqual(file.attrs["tokenizer_sha256"], b"none")
            self.assertEqual(list(file["/tokens/id"][:8]), [0, 3, 5, 8, 1, 3, 5, 8])
        text = CHATS.replace("messages: messages", "text: text")
        (self.folder / "text.yaml").write_text(text.format(name="text", runs=self.folder / "runs", model=world.model, data=world.data))
        self.refused(subprocess.run([PROGRAM, "run", str(self.folder / "text.yaml")], env=self.env, capture_output=True, text=True, check=False),
                     65, "tokenizer.json")


class Files(Lifecycle):
    def test_generate_leaves_another_tasks_partial_file_alone(self):
        """Number 3."""
        world = self.world(records=200)
        self.assertEqual(world.interrupted("teacher.unit.begin@3", signal.SIGTERM, "x", 1).returncode, 75)
        partial = world.results("x").with_suffix(".h5.partial")
        before = partial.read_bytes()
        world.text = CHAIN.replace("  - task: generate\n", "  - task: generate\n    name: teacher\n").split("  - task: judge")[0]
        self.refused(world.run("x", 1), 78, "nothing is overwritten")
        self.refused(self.plan(world, "x"), 78, "nothing is overwritten")
        self.assertEqual(partial.read_bytes(), before)

    def test_requeued_job_does_not_start_over(self):
        """Number 10: the scheduler repeats the command line, --fresh included."""
        world = self.world(records=200)
        self.assertEqual(world.interrupted("teacher.unit.begin@3", signal.SIGTERM, "x", 1, "--fresh").returncode, 75)
        again = world.run("x", 1, "--fresh", SLURM_RESTART_COUNT="1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("--fresh is ignored", again.stderr)
        self.assertEqual([path for path in world.results("x").parent.iterdir() if "previous" in path.name], [])
        world.complete("x", 1, "--fresh", SLURM_RESTART_COUNT="0")
        self.assertEqual(len([path for path in world.results("x").parent.iterdir() if "previous" in path.name]), 1)


class StopsEverywhere(Lifecycle):
    """Number 9: a stop is honoured in every phase, within a few of its small steps: each is slowed down to last for minutes."""

    def stopped(self, world, name, point, ranks, *arguments, when):
        """Stopped once `when` holds and a second more -> what was said."""
        process = world.start(name, ranks, *arguments, MAGISTER_FAIL_POINT=",".join([f"{point}:slow"] * 5))
        wait_until(lambda: when() or process.poll() is not None)
        time.sleep(1)
        self.assertIsNone(process.poll(), f"{point}: the run ended before it could be stopped; make it slower")
        for pid in ranks_of(process):
            with contextlib.suppress(ProcessLookupError):  # one told the others, and they have ended
                os.kill(pid, signal.SIGUSR1)
        _, message = process.communicate(timeout=1200)
        self.assertEqual(process.returncode, 75, f"{point}: {message[-2000:]}")
        self.assertIn("run the same command again", message)

    def test_while_records_are_tokenised(self):
        world = self.world(records=1500)  # 12 minutes at this pace
        folder = self.folder / "runs/x"
        self.stopped(world, "x", "tokenize.record", 2, when=lambda: folder.exists() and any(folder.glob("*.lock")))
        self.assertEqual([path.name for path in folder.iterdir() if ".h5" in path.name and "lock" not in path.name], [])
        world.complete("x", 1)

    def test_while_the_model_is_hashed_and_loaded(self):
        model = make_model(self.folder / "deep", num_hidden_layers=40)  # 160 products: 80 s
        world = World(self.folder, records=20, model=model)
        self.env = world.environment
        partial = world.results("x").with_suffix(".h5.partial")
        for ranks, arguments in ((1, ()), (2, ("layout.gpus_per_group=2",)), (1, ("layout.shards_per_rank=3",)),
                                 (1, ("model.quantization=int8", "model.quantization_loss=500"))):
            self.stopped(world, "x", "model.load.tensor", ranks, *arguments, when=partial.exists)
            self.assertTrue(partial.exists())
            world.forget("x")

    def test_groups_of_several_shards_stop_between_passes(self):
        world = self.world(CHAIN, ("answers.h5", "verdicts.h5"))
        running = self.folder / "runs/x/answers.running.h5.partial"
        for ranks, arguments in ((1, ("layout.shards_per_rank=3",)), (3, ("layout.gpus_per_group=3",))):
            long = ("tasks.0.max_new_tokens=900", "tasks.0.n=1", "tasks.0.ignore_eos=true", *arguments)
            self.stopped(world, "x", "generate.pass", ranks, *long, when=running.exists)
            self.assertTrue(running.exists())
            world.forget("x")

    def test_while_texts_are_packed_and_verdicts_summed_up(self):
        world = self.world(CHAIN, ("answers.h5", "verdicts.h5"))
        reference = world.complete("x", 2)
        folder = self.folder / "runs/x"
        for point, begun in (("task.pack.block", lambda: "answers: time by phase" in self.log()), ("judge.summary.row", (folder / "answers.h5").exists)):
            world.forget("x")
            self.stopped(world, "x", ",".join([f"{point}:slow"] * 15) + f",{point}", 2, when=begun)
            self.assertEqual(world.complete("x", 1), reference)

    def log(self):
        path = self.folder / "runs/x/run.jsonl"
        return "answers: time by phase" if path.exists() and '"phases"' in path.read_text() else ""

    def test_signal_to_one_of_several_ranks_while_another_works(self):
        world = self.world(records=4000)
        process = world.start("x", 2, MAGISTER_FAIL_POINT="teacher.unit.begin@2:slow")
        wait_until(lambda: world.results("x").with_suffix(".h5.partial").exists() or process.poll() is not None)
        os.kill(ranks_of(process)[0], signal.SIGUSR1)
        _, message = process.communicate(timeout=1200)
        self.assertEqual(process.returncode, 75, message)


class Watchdog(Lifecycle):
    def test_waiting_ranks_do_not_end_a_healthy_job(self):
        """Number 8: one record of three times the watchdog's patience, computed by one rank while the others have nothing to do. A machine that
        stands still for two seconds is not yet a stall."""
        text = CHAIN.split("  - task: judge")[0].replace("limit: 5", "limit: 1").replace("n: 4", "n: 1\n    ignore_eos: true")
        world = self.world(text, ("answers.h5",))
        result = world.run("x", 3, "run.watchdog_seconds=4", "tasks.0.max_new_tokens=120", MAGISTER_FAIL_POINT="generate.pass:slow")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_long_unit_of_teacher_logits(self):
        model = make_model(self.folder / "deep", num_hidden_layers=30)
        world = World(self.folder, records=1, model=model)
        result = world.run("x", 2, "run.watchdog_seconds=4", MAGISTER_FAIL_POINT=",".join(["teacher.layer:slow"] * 4))
        self.assertEqual(result.returncode, 0, result.stderr)


class BeforeAnyWork(Lifecycle):
    """Number 34: every task is validated whole before the first one starts, and plan refuses the same."""

    def test_faults_of_later_tasks(self):
        cases = [  # (change of the chain, exit code, words)
            (("answers: answers", "answers: answer"), 78, ["did you mean answers"]),
            (("answers: answers", "answers: answers\n    panel: [nobody]"), 78, ["panel", "nobody"]),
            (("answers: answers", "answers: answers\n    max_prompt_length: 5000"), 78, ["4096"]),
            (("{{{{ text }}}} {{{{ answer }}}}", "{{{{ text }}}} {{{{ anser }}}}"), 78, ["anser", "answer"]),
            (("{{{{ text }}}} {{{{ answer }}}}", "{{{{ text "), 78, ["prompt"]),
            (("    answers: answers", "    answers: answers\n    fields: {{question: qestion}}"), 65, ["qestion"]),
            (("  - task: judge", "  - task: generate\n    name: more\n    dataset: {{path: {data}, key: id, limit: 5}}\n    max_prompt_length: 512\n"
              "    constraint: {{regex: \"(a\"}}\n  - task: judge"), 78, ["regex"]),
            (("  - task: judge\n    dataset: {{path: {data}, key: id", "  - task: judge\n    dataset: {{path: {data}, key: idd"), 65, ["idd"]),
            (("  - task: judge\n    dataset: {{path: {data}", "  - task: judge\n    dataset: {{path: {data}.gone.jsonl"), 74, ["gone"]),
        ]
        for (old, new), code, words in cases:
            self.assertIn(old, CHAIN)
            world = self.world(CHAIN.replace(old, new), ("answers.h5", "verdicts.h5"))
            with self.subTest(new):
                self.refused(self.plan(world, "x"), code, *words)
                self.refused(world.run("x", 2), code, *words)
                folder = self.folder / "runs/x"
                left = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
                self.assertEqual([name for name in left if ".h5" in name or ".lock" in name], [])
            shutil.rmtree(self.folder / "runs", ignore_errors=True)


class Plan(Lifecycle):
    """Number 16: plan's exit code is run's."""

    def test_says_what_is_done(self):
        world = self.world(records=200)
        self.assertEqual(world.interrupted("teacher.unit.begin@5", signal.SIGTERM, "x", 1).returncode, 75)
        plan = self.plan(world, "x")
        self.refused(plan, 0)
        self.assertRegex(plan.stdout, r"units +\d+, [1-9]\d* done")
        self.refused(self.plan(world, "x", "tasks.0.top_k=7"), 78, "tasks.0.top_k is 8 in it and 7 in this run")
        world.complete("x", 1)
        self.assertIn("complete: nothing to do", self.plan(world, "x").stdout)
        self.refused(self.plan(world, "x", "tasks.0.top_k=7"), 78, "tasks.0.top_k is 8 in it and 7 in this run")

    def test_needs_no_temporary_folder_of_that_size(self):
        world = self.world(records=400)
        self.env = {**self.env, "TMPDIR": "/dev/shm"}
        self.refused(self.plan(world, "x"), 0)

    @unittest.skipIf(os.geteuid() != 0, "a small file system can be mounted by root only")
    def test_free_space_is_that_of_all_tasks_and_counts_what_is_there(self):
        world = self.world(records=4000)
        one = self.plan(world, "x")
        size = int(one.stdout.split("results")[1].split("(")[1].split()[0])
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={(size + size // 2 + (2 << 20)) // 4096 * 4096}", "tmpfs", disk], check=True)
        try:
            world.text = world.text.replace("{runs}", str(disk))
            self.refused(self.plan(world, "x"), 0)
            both = world.text + world.text.split("tasks:\n")[1].replace("- task: teacher_logits", "- task: teacher_logits\n    name: second").replace(
                "unit_tokens: 64", "unit_tokens: 128")
            first, world.text = world.text, both
            self.refused(self.plan(world, "x"), 74, "bytes are free")  # neither alone is too much
            world.text = first
            self.assertEqual(world.run("x", 1).returncode, 0)
            self.refused(self.plan(world, "x"), 0)  # complete: needs nothing, though its size is not free any more
        finally:
            subprocess.run(["umount", "-l", disk], check=False)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
