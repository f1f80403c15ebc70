"""cmake --install: a tree that works from another place, with its job scripts, man page, completions and modulefile.

The tree is moved after its installation. Nothing is read from the repository but what the tree's program was linked with.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT, BUILD = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]), pathlib.Path(os.environ["MAGISTER_BUILD_DIR"])
EXPERIMENT = """name: mine
output: {{directory: out}}
model: {{path: {root}/.deps/models/SmolLM2-135M-Instruct.Q4_1.gguf}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    name: teacher
    dataset: {{path: {tree}/share/magister/configs/data/quickstart.jsonl, key: id, limit: 2}}
    max_length: 16
"""
# What a batch system does with a script: a copy of it, in the folder of the submission.
SPOOL = "cp {script} spooled.sh && SLURM_SUBMIT_DIR=$PWD bash spooled.sh my.yaml"


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="magister_install_")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        cls.log = subprocess.run(["cmake", "--install", BUILD, "--prefix", folder / "first"], capture_output=True, text=True, check=False)
        assert cls.log.returncode == 0, cls.log.stderr
        cls.tree = folder / "second place"
        shutil.move(folder / "first", cls.tree)
        cls.work = folder / "work"
        cls.work.mkdir()

    def call(self, *arguments, path=None, **environment):
        """In an environment of its own, so that nothing of this one helps."""
        clean = {name: value for name, value in os.environ.items() if name in ("HOME", "TMPDIR") or name.startswith("OMPI_ALLOW")}
        clean["PATH"] = path or "/usr/bin:/bin"
        done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, cwd=self.work, env={**clean, **environment}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def test_program_and_what_it_prints(self):
        program = self.tree / "bin/magister"
        self.assertIn("magister 0.", self.call(program, "--version"))
        for name, arguments in (("man/man1/magister.1", ["--man"]), ("bash-completion/completions/magister", ["--completion", "bash"]),
                                ("zsh/site-functions/_magister", ["--completion", "zsh"])):
            self.assertEqual((self.tree / "share" / name).read_text(), self.call(program, *arguments), name)
        for folder in ("jobs", "configs"):
            here, there = ROOT / folder, self.tree / "share/magister" / folder
            self.assertEqual(sorted(p.relative_to(here) for p in here.rglob("*")), sorted(p.relative_to(there) for p in there.rglob("*")))
        self.assertTrue(os.access(self.tree / "share/magister/jobs/run-and-requeue.sh", os.X_OK))

    def test_a_job_script_of_the_tree_runs_its_program(self):
        (self.work / "my.yaml").write_text(EXPERIMENT.format(root=ROOT, tree=self.tree))
        script = self.tree / "share/magister/jobs/one-node.sbatch"
        module = f"{self.tree}/share/magister/jobs:{self.tree}/bin:/usr/bin:/bin"  # as the modulefile sets it
        self.call("bash", "-c", SPOOL.format(script=f"'{script}'"), path=module, OMPI_MCA_rmaps_base_oversubscribe="1",
                  OMPI_MCA_hwloc_base_binding_policy="none", SLURM_JOB_ID="none")
        self.assertIn("complete", self.call(self.tree / "bin/magister", "info", "out/mine/teacher.h5"))

    def test_modulefile(self):
        """Read by the language that modules are written in."""
        tclsh = shutil.which("tclsh")
        module = next((self.tree / "share/modulefiles/magister").iterdir())
        text = module.read_text()
        self.assertTrue(text.startswith("#%Module"))
        if tclsh is None:
            self.assertIn("prepend-path PATH $root/bin", text)
            return
        probe = ("proc module-whatis args {}; proc conflict args {}; proc prepend-path {name value} {puts \"$name=$value\"}; "
                 f"set ModulesCurrentModulefile {{{module}}}; source {{{module}}}")
        (self.work / "probe.tcl").write_text(probe)
        self.assertIn(f"PATH={self.tree}/bin", self.call(tclsh, self.work / "probe.tcl"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
