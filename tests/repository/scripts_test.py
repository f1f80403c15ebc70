"""The scripts' promises that can be shown without a bare machine: the closing line counts honestly, setup.sh without root
names every missing package at once and touches nothing, and every shell script parses.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])

CASE = '<testcase name="{}" status="{}">{}</testcase>'
PASSED = CASE.format("a/b", "run", "")
FAILED = CASE.format("a/c", "fail", "<failure message=''/>")
NOT_RUN = CASE.format("a/d", "notrun", "<skipped message='Unable to find executable'/>")
SKIPPED = CASE.format("gpu/kernels", "notrun", "<skipped message='SKIP_RETURN_CODE=77'/><system-out>skipped: no GPU\n</system-out>")
# A test that passed, but not all of it ran: as GoogleTest and unittest, with and without -v, say it.
GOOGLETEST = CASE.format("a/f", "run", "<system-out>[ RUN      ] A.B\n[  SKIPPED ] A.B (0 ms)\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n</system-out>")
COLOURED = CASE.format("a/f", "run", "<system-out>[NON-XML-CHAR-0x1B][0;32m[  SKIPPED ] [NON-XML-CHAR-0x1B][mA.B (0 ms)\n</system-out>")
UNITTEST = CASE.format("a/g", "run", "<system-out>test_x (__main__.X.test_x) ... skipped 'no man'\nOK (skipped=1)\n</system-out>")
QUIET = CASE.format("a/h", "run", "<system-out>..ss\nOK (skipped=2)\n</system-out>")
DISABLED = CASE.format("a/e", "disabled", "")


class ClosingLine(unittest.TestCase):
    def close(self, content, status):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "tests.xml"
            if content is not None:
                report.write_text(content)
            result = subprocess.run([sys.executable, str(ROOT / "scripts/count_tests.py"), str(report), str(status)],
                                    capture_output=True, text=True, check=False)
        self.said = result.stdout.splitlines()[:-1]
        return result.stdout.splitlines()[-1], result.returncode

    def test_counts(self):
        suite = "<testsuite>{}</testsuite>"
        self.assertEqual(self.close(suite.format(PASSED * 3), 0), ("3 passed, 0 failed, 0 skipped", 0))
        self.assertEqual(self.close(suite.format(PASSED * 3 + FAILED), 8), ("3 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(self.close(suite.format(PASSED + NOT_RUN), 8), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(self.close(suite.format(PASSED + DISABLED), 0), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertEqual(self.close(suite.format(PASSED + SKIPPED), 0), ("1 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(self.close(suite.format(SKIPPED), 0), ("0 passed, 0 failed, 1 skipped", 1))
        self.assertEqual(self.close(suite.format(PASSED), 8), ("1 passed, 0 failed, 0 skipped", 1))

    def test_what_is_skipped_is_counted_and_named(self):
        suite = "<testsuite>{}</testsuite>"
        self.assertEqual(self.close(suite.format(SKIPPED + GOOGLETEST + UNITTEST + QUIET), 0), ("3 passed, 0 failed, 5 skipped", 0))
        told = self.said
        self.assertEqual(self.close(suite.format(COLOURED), 0), ("1 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(told, ["skipped: gpu/kernels: no GPU", "skipped: a/f: A.B", "skipped: a/g: test_x: no man",
                                     *["skipped: a/h: a case that is not named"] * 2])

    def test_no_tests_is_a_failure(self):
        self.assertEqual(self.close("<testsuite></testsuite>", 0), ("0 passed, 0 failed, 0 skipped", 1))
        self.assertEqual(self.close(None, 0), ("0 passed, 0 failed, 0 skipped", 1))
        self.assertEqual(self.close("<testsuite><testcase", 8), ("0 passed, 0 failed, 0 skipped", 1))


class Setup(unittest.TestCase):
    def refused(self, arguments=(), **stubs):
        """setup.sh in a copy of the scripts, with these programs instead of the machine's -> its one message; nothing is touched."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
            (root / "stubs").mkdir()
            for name, body in stubs.items():
                (root / "stubs" / name.replace("_", "-")).write_text(f"#!/bin/sh\n{body}\n")
                (root / "stubs" / name.replace("_", "-")).chmod(0o755)
            before = sorted(str(path) for path in root.rglob("*"))
            result = subprocess.run([str(root / "scripts/setup.sh"), *arguments], capture_output=True, text=True, check=False,
                                    env={**os.environ, "PATH": f"{root}/stubs:{os.environ['PATH']}", "MAGISTER_SKIP_PACKAGES": "0"})
            after = sorted(str(path) for path in root.rglob("*"))
        self.assertEqual(result.returncode, 64 if "unknown set" in result.stderr else 78, result)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertEqual(before, after)
        return result.stderr

    def test_without_root_names_all_packages_and_touches_nothing(self):
        # A machine where only cmake is installed, the user is nobody, and sudo asks for a password.
        nobody = {"dpkg_query": "echo 'ii cmake'; exit 1", "id": "echo 65534", "sudo": "exit 1"}
        message = self.refused(**nobody)
        for package in ("g++", "ninja-build", "libopenmpi-dev", "libhdf5-openmpi-dev", "libpcre2-dev", "python3-venv", "slurmd", "libgtest-dev"):
            self.assertIn(package, message)
        self.assertNotIn(" cmake ", message)
        for_runs = self.refused(["run"], **nobody)
        self.assertIn("libopenmpi-dev", for_runs)
        self.assertNotIn("slurmd", for_runs)
        self.assertNotIn("libgtest-dev", for_runs)
        self.assertEqual(self.refused(["data"], **nobody), for_runs)
        self.assertNotIn("libclang-rt-dev", message)
        self.assertIn("libclang-rt-dev", self.refused(["fuzz"], **nobody))
        self.assertIn("slurmd", self.refused(["fuzz"], **nobody))

    def test_other_machines_are_refused_before_anything_is_fetched(self):
        self.assertIn("aarch64", self.refused(uname='[ "$1" = -m ] && echo aarch64 || echo Linux'))
        self.assertIn("Darwin", self.refused(uname="echo Darwin"))
        self.assertIn("has no avx2", self.refused(awk="echo fpu sse2"))
        self.assertIn("known: run, data, test, fuzz", self.refused(["tests"]))

    def test_every_wheel_is_pinned_by_its_hash(self):
        """What the lists in scripts/requirements name by hand and what is installed are the same; every package has hashes."""
        for wanted in (ROOT / "scripts/requirements").glob("*.in"):
            pins = [line for line in wanted.read_text().splitlines() if line and not line.startswith("#")]
            self.assertTrue(all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", pin) for pin in pins), wanted)
            lock = wanted.with_suffix(".txt").read_text()
            self.assertEqual(re.findall(r"^([a-z0-9-]+==[0-9.]+) \\$", lock, re.M), pins, "run scripts/lock_requirements.py")
            for entry in re.split(r"^(?=[a-z])", lock, flags=re.M)[1:]:
                self.assertRegex(entry, r"--hash=sha256:[0-9a-f]{64}")


class Uv(unittest.TestCase):
    def said(self, options):
        sys.path.insert(0, str(ROOT / "scripts/setup"))
        import uv_install  # pylint: disable=import-outside-toplevel,import-error
        return uv_install.as_uv_says(options)

    def test_uv_asks_where_pip_would(self):
        variables, arguments, unknown = self.said({"index-url": "https://a/simple", "extra-index-url": "https://b/simple\nhttps://c/simple", "proxy": "http://p:1",
                                                   "find-links": "/ /not/there https://d/", "no-index": "1", "no-cache-dir": "0", "timeout": "9"})
        self.assertEqual(variables, {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_DEFAULT_INDEX": "https://a/simple", "UV_INDEX": "https://b/simple https://c/simple",
                                     "HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1", "UV_FIND_LINKS": "/,https://d/", "UV_HTTP_TIMEOUT": "9"})
        self.assertEqual((arguments, unknown), (["--no-index", "--system-certs"], []))
        self.assertEqual(self.said({"cert": "/c.pem"})[1], ["--cert", "/c.pem"])

    def test_what_uv_has_no_words_for_is_left_to_pip(self):
        self.assertEqual(self.said({"constraint": "c.txt", "client-cert": "c.pem", "quiet": "1"})[2], ["constraint", "client-cert"])


class Shell(unittest.TestCase):
    def test_every_script_parses(self):
        scripts = [*ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/setup/*.sh"), *ROOT.glob("findings/*.sh"), ROOT / "scripts/bundle/magister", ROOT / "scripts/bundle/mpirun", *ROOT.glob("jobs/*.sbatch"), *ROOT.glob("jobs/*.sh"), ROOT / ".ci/run"]
        self.assertGreater(len(scripts), 4)
        for script in scripts:
            result = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""), script)
            self.assertTrue(os.access(script, os.X_OK), f"{script} is not executable")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
