"""The program from outside: usage, help, manual, completions, configuration faults, signals before work, many ranks.

Needs no model: what computes is tested in tests/end_to_end. MAGISTER names the program.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["MAGISTER"]
ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
GOOD = """name: quick
model: {path: absent.gguf}
layout: {devices: cpu}
tasks:
  - task: teacher_logits
    dataset: {path: absent.jsonl}
"""
GRAMMAR = re.compile(r"^magister: .+ \(.+\); .+$")


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="magister_app_"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "good.yaml").write_text(GOOD)

    def call(self, *arguments, ranks=0, stdin="", expect=0):
        """-> (standard output, lines of standard error without mpirun's own)."""
        command = [PROGRAM, *map(str, arguments)]
        if ranks:
            command = ["mpirun", "--oversubscribe", "-np", str(ranks), *command]
        result = subprocess.run(command, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=1000)
        self.assertEqual(result.returncode, expect, f"{arguments}: {result.stdout} {result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith("magister: ")]
        if not ranks:
            self.assertEqual(lines, result.stderr.splitlines(), "every line of standard error is a message")
        return result.stdout, lines

    def refused(self, *arguments, code, ranks=0, lines=1):
        """-> the one message of a refusal; nothing on standard output, nothing left behind."""
        before = sorted(self.folder.rglob("*.h5*"))
        output, messages = self.call(*arguments, ranks=ranks, expect=code)
        self.assertEqual(output, "")
        self.assertEqual(len(messages), lines, messages)
        for message in messages:
            self.assertRegex(message, GRAMMAR)
        self.assertEqual(sorted(self.folder.rglob("*.h5*")), before)
        return "\n".join(messages)

    def test_usage(self):
        self.assertIn("did you mean run?", self.refused("rnu", "good.yaml", code=64))
        self.assertIn("no command", self.refused(code=64))
        self.assertIn("MODEL is missing (bench teacher computes one)", self.refused("bench", "teacher", code=64))
        self.assertIn("of export that is --out;", self.refused("export", "x.h5", "--output", "y.csv", code=64))
        self.assertIn("name that file, OUT.h5, before the parts", self.refused("merge", ".", "a.h5", "b.h5", code=64))
        self.assertIn("did you mean --fresh?", self.refused("run", "good.yaml", "--frehs", code=64))
        self.assertIn("HH:MM:SS", self.refused("run", "good.yaml", "--max-wall", "1h", code=64))
        self.assertIn("1 to 1000000", self.refused("plan", "good.yaml", "--ranks", "0", code=64))
        self.assertIn("FILE.yaml is missing", self.refused("run", code=64, ranks=3))

    def test_the_help_of_export_names_every_format(self):
        known = re.search(r"known: ([^)]*)\)", self.refused("export", "x.h5", code=64)).group(1).split(", ")
        text = " ".join(self.call("export", "--help")[0].split())
        self.assertIn("jsonl", known)
        self.assertEqual([name for name in known if f"{name}: " not in text], [])

    def test_help_and_version(self):
        for arguments in (["--help"], ["run", "--help"], ["help", "merge"]):
            output, messages = self.call(*arguments)
            self.assertIn("usage:", output)
            self.assertEqual(messages, [])
        version = self.call("--version")[0]
        self.assertRegex(version, r"^magister \d+\.\d+\.\d+")
        report = json.loads(self.call("--version", "--json")[0])
        for name in ("magister", "mpi", "hdf5", "libtorch", "cuda_runtime", "nccl", "yaml-cpp", "spdlog", "fmt", "cli11", "pcre2", "compiler"):
            self.assertTrue(report[name], name)
        self.assertEqual(self.call("--version", ranks=3)[0], version, "rank 0 alone speaks")

    def test_help_explains_a_key(self):
        combine = self.call("help", "judge.combine")[0]
        self.assertRegex(combine, r"^judge\.combine\n  default: \S.*\n  range: .*mean.*\n  how the verdicts .*\n( +\S.*\n|\n)+  page: configs/keys/judge\.md\n$")
        self.assertIn("under unanimous one such row leaves the text undecided", combine.replace("\n  ", " "))
        self.assertEqual(self.call("help", "tasks.3.judge.combine", ranks=2)[0], combine, "as an error of an experiment names it")
        several = self.call("help", "top_k")[0]
        self.assertIn("teacher_logits.top_k\n", several)
        self.assertIn("generate.top_k\n", several)
        self.assertIn("default: none, it must be given", self.call("help", "tasks")[0])
        self.assertRegex(self.call("help", "optimizer")[0], r"^optimizer is a section; .*:\n(.*\n)*  train\.train\.optimizer\.lr: .+\n")
        self.assertIn("did you mean judge.combine?", self.refused("help", "judge.combin", code=64))
        self.assertIn("configs/README.md", self.refused("help", "zzzzzzzzzzzzzzz", code=64))

    def test_help_says_all_that_the_pages_say_of_a_key(self):
        """The paragraphs below a table, their lists and second paragraphs too, without Markdown's marks."""
        path = self.call("help", "model.path")[0]
        self.assertIn("\n  - a .gguf file; for a model in parts", path)
        self.assertIn("\n\n  Checkpoints quantised by GPTQ", path)
        dtype = self.call("help", "model.dtype")[0]
        self.assertIn("on AMD; see limits), else f32. f16 is", dtype.replace("\n  ", " "))
        self.assertIn(r"'answer is (\S+)'", self.call("help", "score.score.pattern")[0])
        self.assertIn("\n  - js: beta p ln(p/m)", self.call("help", "train.distill.loss")[0])
        self.assertIn("eval_loss of Hugging Face's Trainer", self.call("help", "train.train.evaluate.dataset.*")[0])
        for text in (path, dtype):
            self.assertNotRegex(text, r"\]\(|`|\*\*")

    def test_page_of_commands_is_what_the_program_says(self):
        checked = subprocess.run([ROOT / "scripts/commands_page.py", PROGRAM, "--check"], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_processes_without_a_launcher_share_nothing(self):
        """Neither a daemon nor a session folder of MPI's, which several at once would take from each other: here none could be made."""
        (self.folder / "no_folder").touch()
        environment = {**os.environ, "TMPDIR": str(self.folder / "no_folder")}
        at_once = [subprocess.Popen([PROGRAM, "schema"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for process in at_once:
            self.assertEqual(process.communicate()[1], "")
            self.assertEqual(process.returncode, 0)

    @unittest.skipUnless(shutil.which("man"), "no man here to read the manual page with")
    def test_man_reads_the_manual_without_a_warning(self):
        shown = subprocess.run(["man", "-l", "--warnings", "-"], input=self.call("--man")[0], capture_output=True, text=True)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))

    def test_manual_and_completion(self):
        self.assertIn(".SH EXIT STATUS", self.call("--man")[0])
        script = self.call("--completion", "bash")[0]
        probe = script + "\nCOMP_WORDS=(magister pl); COMP_CWORD=1; _magister; echo ${COMPREPLY[@]}\n" \
                         "COMP_WORDS=(magister run x --fr); COMP_CWORD=3; _magister; echo ${COMPREPLY[@]}\n"
        self.assertEqual(subprocess.run(["bash", "-c", probe], capture_output=True, text=True).stdout, "plan\n--fresh\n")
        self.assertIn("compdef", self.call("--completion", "zsh")[0])

    def test_print_config(self):
        once = self.call("--print-config", "good.yaml", "seed=7")[0]
        self.assertIn("seed: 7\n", once)
        self.assertIn("max_length: auto\n", once)
        (self.folder / "again.yaml").write_text(once)
        for arguments in (["--print-config", "again.yaml"], ["run", "again.yaml", "--print-config"], ["plan", "again.yaml", "--print-config"]):
            self.assertEqual(self.call(*arguments)[0], once)
        self.assertEqual(self.call("run", "again.yaml", "--print-config", ranks=2)[0], once)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["again.yaml", "good.yaml"], "nothing is made")

    def test_configuration_faults_are_said_once(self):
        (self.folder / "bad.yaml").write_text("name: a b\nmodel: {pth: m}\ntasks:\n  - task: teacher_logits\n    topk: 010\n")
        for ranks in (0, 1, 3):
            messages = self.refused("run", "bad.yaml", code=78, ranks=ranks, lines=5)
            self.assertIn("magister: bad.yaml:1:7: name: ", messages)
            self.assertIn("magister: bad.yaml:2:9: model.pth: ", messages)
            self.assertIn("magister: bad.yaml:5:5: tasks.0.topk: ", messages)
        for ranks in (0, 2):
            self.assertIn("No such file", self.refused("run", "absent.yaml", code=78, ranks=ranks))
            self.assertIn("not a regular file", self.refused("plan", ".", code=78, ranks=ranks))
        self.assertIn("argument seed=x: seed: ", self.refused("run", "good.yaml", "seed=x", code=78, ranks=2))
        self.assertFalse((self.folder / "runs").exists())

    def test_faults_of_all_ranks_are_said_once(self):
        for command in ("run", "plan"):
            begin = time.monotonic()
            messages = self.refused(command, "good.yaml", code=74, ranks=3)
            self.assertIn("absent.gguf", messages)
            self.assertNotIn("rank", messages)
            self.assertLess(time.monotonic() - begin, 200)

    def test_tokenize_faults(self):
        self.assertIn("absent.gguf", self.refused("tokenize", "absent.gguf", code=74))
        (self.folder / "empty").mkdir()
        self.assertIn("tokenizer.json", self.refused("tokenize", "empty", code=65))

    def test_doctor(self):
        report = json.loads(self.call("doctor", "--json", ranks=3)[0])
        self.assertTrue(report["ok"])
        self.assertEqual([row["rank"] for row in report["ranks"]], [0, 1, 2])
        self.assertEqual([row["local_rank"] for row in report["ranks"]], [0, 1, 2])
        self.assertEqual(report["files"]["lock"], "ok")
        self.assertTrue(report["links"]["intact"])
        self.assertIn("lock ok", self.call("doctor")[0])
        # Why a rank sees no GPU: what hides them, and what could be missing.
        hidden = subprocess.run([PROGRAM, "doctor"], cwd=self.folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=True).stdout
        self.assertRegex(hidden, r"\n0 +\S+ +0 +\d+ +none \(CUDA_VISIBLE_DEVICES=\)\nno GPUs: ")
        emulated = subprocess.run([PROGRAM, "doctor"], cwd=self.folder, env={**os.environ, "MAGISTER_GPUS_ON_HOST": "8192"}, capture_output=True, text=True, check=True).stdout
        self.assertNotIn("no GPUs: ", emulated)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["good.yaml"], "the test file is removed")
        output, messages = self.call("doctor", "--directory", "nowhere", ranks=2, expect=74)
        self.assertEqual(len(messages), 1)
        self.assertIn("nowhere", messages[0])

    def test_doctor_sees_hosts_overwrite_each_others_bytes(self):
        """Ranks with page caches of their own (tests/io/nfs_client.c): what is locked is kept, a client that does not care is found."""
        client = os.path.join(os.environ["MAGISTER_BUILD_DIR"], "tests/io/libnfs_client.so")
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "3", "env", f"LD_PRELOAD={client}",
                   f"NFS_CLIENT_FOLDER={self.folder}"]
        doctor = [PROGRAM, "doctor", "--directory", self.folder]
        sound = subprocess.run([*command, *doctor], capture_output=True, text=True)
        self.assertEqual(sound.returncode, 0, sound.stderr)
        careless = subprocess.run([*command, "NFS_CLIENT_CARELESS=1", *doctor], capture_output=True, text=True)
        self.assertEqual(careless.returncode, 74, careless.stdout)
        self.assertIn("hosts overwrite each other's bytes", careless.stderr)

    def test_closed_pipe_and_full_disk(self):
        result = subprocess.run(f"'{PROGRAM}' --man | true; exit ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash", cwd=self.folder,
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "--man"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 74)
        self.assertRegex(result.stderr, r"^magister: standard output: No space left on device \(.*\); .*\n$")

    def test_control_characters_do_not_reach_the_terminal(self):
        for arguments in (["\x1b[31m"], ["run", "a\x1b]0;x\x07.yaml"], ["run", "good.yaml", "na\x1bme=1"]):
            result = subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True)
            self.assertIn(result.returncode, (64, 78))
            self.assertNotIn(b"\x1b", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
