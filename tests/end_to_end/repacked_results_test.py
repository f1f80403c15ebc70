"""Results that another program has packed anew: check, info, export, merge and the tasks that read results give what they give of the files as
they were written. h5repack (Debian's hdf5-tools, which scripts/setup.sh installs) and h5py pack them.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import h5py

import tiny_world

JOB = tiny_world.EXPERIMENT + """  - task: generate
    seed: 5
    dataset: {{path: {data}, key: id, limit: 3}}
    max_new_tokens: 9
    max_prompt_length: 512
    n: 2
"""
STUDENT = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}}}
layout: {{devices: cpu}}
tasks:
  - {{task: train, objective: distill, teacher: {{results: TEACHER}}, train: {{steps: 2, max_length: 64}}}}
"""
# h5repack 1.10 does not pack arrays without rows, which results of some tasks have; those of these two have none.
PACKINGS = {"gzip": ["-f", "GZIP=5"], "shuffled": ["-f", "SHUF", "-f", "GZIP=1", "-f", "FLET"], "compact": ["-l", "COMPA"], "chunks": ["-l", "CHUNK=7"],
            "latest": ["-L", "-f", "GZIP=1"], "block": ["-u", "USER", "-b", "512"]}


class Repacked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=12, text=JOB, results=("teacher.h5", "answers.h5"))
        cls.world.complete("job", 0)
        cls.files = [cls.world.results("job").with_name(name) for name in cls.world.names]
        (cls.folder / "USER").write_bytes(b"a block of another program".ljust(512))

    def magister(self, *arguments, code=0):
        done = subprocess.run([tiny_world.PROGRAM, *map(str, arguments)], cwd=self.folder, env=self.world.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def packed(self, path, name):
        options = [str(self.folder / "USER") if option == "USER" else option for option in PACKINGS[name]]
        to = path.with_name(f"{path.stem}-{name}.h5")
        done = subprocess.run(["h5repack", *options, str(path), str(to)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return to

    def described(self, path):
        all_of_it = json.loads(self.magister("info", path, "--json"))
        for one in all_of_it["datasets"]:
            one.pop("file_offset", None)
            one.pop("packed", None)
        return {key: value for key, value in all_of_it.items() if key not in ("path", "file_bytes")}

    def test_they_are_read(self):
        for path in self.files:
            want, lines = self.described(path), self.magister("export", path, "--to", "jsonl", "--out", "-")
            for name in PACKINGS:
                with self.subTest(path.stem, packing=name):
                    packed = self.packed(path, name)
                    with h5py.File(packed) as file:
                        column = file["tokens/id"]
                        self.assertEqual((column.chunks is not None, column.compression), (name in ("gzip", "shuffled", "chunks", "latest"), "gzip" if name in ("gzip", "shuffled", "latest") else None))
                    self.magister("check", packed)
                    self.assertEqual(self.described(packed), want)
                    self.assertEqual(self.magister("export", packed, "--to", "jsonl", "--out", "-"), lines)

    def test_a_changed_byte_is_found(self):
        packed = self.packed(self.files[0], "gzip")
        with h5py.File(packed, "r+") as file:
            file["teacher/entropy"][3] += 1
        self.assertIn("the check found faults", self.magister("check", packed, code=65))

    def test_a_student_learns_from_it(self):
        students = []
        for number, teacher in enumerate((self.files[0], self.packed(self.files[0], "gzip"))):
            world = tiny_world.World(self.folder, text=STUDENT.replace("TEACHER", str(teacher)), model=self.world.model, results=("student.h5",))
            world.complete(f"student{number}", 0)
            students.append(hashlib.sha256((world.results(f"student{number}").with_suffix("") / "model.safetensors").read_bytes()).hexdigest())
        self.assertEqual(students[0], students[1])

    def test_slices_are_merged(self):
        parts = []
        for i in range(2):
            self.world.complete(f"slice{i}", 0, f"tasks.0.slice={i}/2")
            parts.append(self.world.results(f"slice{i}").with_name("teacher.h5"))
        merged = [self.folder / f"merged{i}.h5" for i in range(2)]
        self.magister("merge", merged[0], *parts)
        self.magister("merge", merged[1], parts[0], self.packed(parts[1], "gzip"))
        self.assertEqual(merged[0].read_bytes(), merged[1].read_bytes())

    def test_a_newer_hdf5_is_said(self):
        if h5py.version.hdf5_version_tuple < (2, 0):
            self.skipTest("this h5py writes nothing that HDF5 1.10 and 1.14 cannot read")
        path = self.folder / "newest.h5"
        with h5py.File(self.files[0]) as old, h5py.File(path, "w", libver="latest") as new:
            new.attrs.update(old.attrs)
            for name in old:
                old.copy(name, new)
            del new["teacher/entropy"]
            entropy = new.create_dataset("teacher/entropy", data=old["teacher/entropy"][:], compression="gzip")
            entropy.attrs.update(old["teacher/entropy"].attrs)
        self.assertIn("a newer HDF5 has written it", self.magister("check", path, code=65))

    def test_a_run_does_not_go_on_in_one(self):
        self.assertNotEqual(self.world.run("stopped", 0, MAGISTER_FAIL_POINT="results.commit.done_written@3:kill").returncode, 0)
        partial = self.world.results("stopped").with_name("teacher.h5.partial")
        self.packed(partial, "gzip").rename(partial)
        content = partial.read_bytes()
        done = self.world.run("stopped", 0)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn("was packed by another program", done.stderr)
        self.assertEqual(partial.read_bytes(), content)


if __name__ == "__main__":
    unittest.main(verbosity=2)
