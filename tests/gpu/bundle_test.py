"""scripts/bundle.sh: the folder that it makes takes nothing from this machine but the C library and the torch wheel, two of its ranks
run a teacher on the tiny model with an empty environment, its tests say that there is no GPU, and the check writes its report.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
OF_THE_C_LIBRARY = re.compile(r"(ld-linux-x86-64|linux-vdso|libstdc\+\+|libgcc_s|lib(c|m|pthread|dl|rt|resolv|util|nsl|anl))\.so")
EXPERIMENT = """name: bundled
output: {{directory: {runs}}}
model: {{path: {bundle}/tiny/model, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    dataset: {{path: {bundle}/tiny/data.jsonl, key: id}}
    max_length: 512
    top_k: 8
    unit_tokens: 64
"""


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.bundle = cls.folder / "gpu-bundle"
        made = subprocess.run([str(ROOT / "scripts/bundle.sh"), str(cls.bundle)], capture_output=True, text=True, check=False, timeout=2000,
                              env={**os.environ, "BUILD": os.environ["MAGISTER_BUILD_DIR"]})
        assert made.returncode == 0, made.stdout + made.stderr
        cls.said = made.stdout
        assert not cls.bundle.exists(), "the folder would be carried beside its archive"
        subprocess.run(["tar", "-C", str(cls.folder), "-xJf", f"{cls.bundle}.tar.xz"], check=True)
        cls.environment = {"PATH": "/usr/bin:/bin", "HOME": str(cls.folder), "MAGISTER_PYTHON": sys.executable}

    def run_there(self, *command, seconds=1200, **environment):
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=seconds, cwd=self.folder,
                              env={**self.environment, **environment})

    def test_archive_can_be_carried(self):
        archive = (self.folder / "gpu-bundle.tar.xz").stat().st_size
        unpacked = sum(path.stat().st_size for path in self.bundle.rglob("*") if path.is_file() and not path.is_symlink())
        self.assertLess(archive, unpacked)
        self.assertLess(archive, 48 << 20)  # far from the 64 MiB above which it comes in parts
        self.assertIn(f"{archive / 2**20:.1f} MiB", self.said)

    def test_libraries_are_its_own(self):
        programs = [*self.bundle.glob("libexec/*"), *self.bundle.glob("openmpi/bin/*"), *self.bundle.rglob("mca_*.so")]
        self.assertGreater(len(programs), 50)
        trace = f'here={self.bundle}/bin; . "$here/environment.sh"; ldd "$@"'
        found = self.run_there("sh", "-c", trace, "sh", *programs)
        wheels = str(pathlib.Path(sys.executable).parents[1])  # not resolved: the environment's interpreter is a link
        for name, path in re.findall(r"^\s*(\S+) => (.*?)(?: \(0x\w+\))?$", found.stdout, re.MULTILINE):
            own = path.startswith((str(self.bundle), wheels, os.path.realpath(wheels)))
            self.assertTrue(own or OF_THE_C_LIBRARY.match(name), f"{name} => {path}")

    def test_two_ranks_run(self):
        experiment = self.folder / "bundled.yaml"
        experiment.write_text(EXPERIMENT.format(runs=self.folder / "runs", bundle=self.bundle))
        done = self.run_there(self.bundle / "bin/mpirun", "--oversubscribe", "-np", 2, self.bundle / "bin/magister", "run", experiment)
        self.assertEqual(done.returncode, 0, done.stderr)
        checked = self.run_there(self.bundle / "bin/magister", "check", self.folder / "runs/bundled/teacher.h5")
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_another_torch_is_refused(self):
        (self.bundle / "bin/torch_version").rename(self.bundle / "bin/torch_version.kept")
        self.addCleanup(lambda: (self.bundle / "bin/torch_version.kept").rename(self.bundle / "bin/torch_version"))
        (self.bundle / "bin/torch_version").write_text("1.0.0\n")
        done = self.run_there(self.bundle / "bin/magister", "--version")
        self.assertEqual(done.returncode, 78)
        self.assertIn("was built with 1.0.0", done.stderr)

    def test_check_without_time(self):
        done = self.run_there(self.bundle / "scripts/gpu_check.sh", "--seconds", 0, OUT=str(self.folder))
        self.assertIn(done.returncode, (0, 77), done.stderr)
        self.assertIn("not measured", (self.folder / "gpu_report.md").read_text())

    def test_tests_say_that_there_is_no_gpu(self):
        done = self.run_there(self.bundle / "bin/test_gpu", CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stdout), (77, "skipped: no GPU\n"))
        done = self.run_there(self.bundle / "bin/mpirun", "-np", 1, self.bundle / "bin/test_gpu_nccl", CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (77, "skipped: no GPU"))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
