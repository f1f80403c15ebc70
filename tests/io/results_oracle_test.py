"""Results files against readers that are not ours: h5py and h5dump read what several ranks wrote; export and merge hold what
h5py reads; one flipped byte anywhere is found by check; runs killed at random times end in the uninterrupted run's bytes.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"]) / "tests/end_to_end"))
from tiny_world import left_of, wait_until  # noqa: E402

PROBE = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/results_probe"
KILLS = 12
COLUMNS = {"samples/key": None, "samples/source_index": "u8", "samples/offset": "u8", "tokens/id": "i4", "teacher/top_id": "i4",
           "teacher/top_logprob": "f4", "teacher/logsumexp": "f4", "teacher/target_logprob": "f4", "teacher/entropy": "f4",
           "teacher/tail_mass": "f4", "commit/unit_begin": "u8", "commit/done": "u1", "commit/crc32c": "u4",
           "commit/input_crc32c": "u4"}
ROOT = {"format", "format_version", "software", "software_version", "experiment", "config_sha256", "model_sha256", "tokenizer_sha256",
        "dataset_sha256", "plan_sha256", "complete", "num_samples", "num_tokens"}


def mpirun(ranks, *arguments):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), PROBE, *map(str, arguments)]


def probe(*arguments, ranks=0, code=0):
    command = mpirun(ranks, *arguments) if ranks else [PROBE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.whole = cls.folder / "whole.h5"
        probe("run", cls.whole, "samples=200", ranks=2)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_h5py_reads_the_contract(self):
        with h5py.File(self.whole) as file:
            self.assertLessEqual(ROOT, set(file.attrs))
            self.assertEqual(file.attrs["complete"], 1)
            n, tokens, units = int(file.attrs["num_samples"]), int(file.attrs["num_tokens"]), file["commit/done"].shape[0]
            sizes = {"samples/offset": (n + 1,), "teacher/top_id": (tokens, 4), "teacher/top_logprob": (tokens, 4), "commit/unit_begin": (units + 1,)}
            for name, kind in COLUMNS.items():
                data = file[name]
                room = name.split("/")[0]
                self.assertEqual(data.shape, sizes.get(name, {"samples": (n,), "commit": (units,)}.get(room, (tokens,))), name)
                if kind:
                    self.assertEqual(data.dtype, numpy.dtype(f"<{kind}"), name)
                self.assertTrue(data.attrs["comment"], name)
            self.assertEqual(h5py.check_string_dtype(file["samples/key"].dtype).encoding, "utf-8")
            self.assertEqual(file["samples/key"][2].decode(), "café-数2")
            self.assertTrue((file["commit/done"][:] == 1).all())
            self.assertTrue(numpy.isnan(file["teacher/target_logprob"][:][file["samples/offset"][1:][numpy.diff(file["samples/offset"]) > 0] - 1]).all())

    def test_h5dump_reads_it(self):
        text = subprocess.run(["h5dump", "-d", "/teacher/top_id", self.whole], capture_output=True, text=True, check=True).stdout
        with h5py.File(self.whole) as file:
            first = ", ".join(map(str, file["teacher/top_id"][0]))
        self.assertIn(f"(0,0): {first}", text)

    def test_export_holds_what_h5py_reads(self):
        for options in ((), ("half=1",)):
            path, out = self.folder / f"export{len(options)}.h5", self.folder / f"export{len(options)}.jsonl"
            probe("run", path, *options)
            probe("export", path, out)
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            with h5py.File(path) as file:
                self.assertEqual(len(lines), file.attrs["num_samples"])
                for i, line in enumerate(lines):
                    begin, end = file["samples/offset"][i], file["samples/offset"][i + 1]
                    self.assertEqual(line["key"], file["samples/key"][i].decode())
                    self.assertEqual(line["token_ids"], file["tokens/id"][begin:end].tolist())
                    self.assertEqual(line["top_id"], file["teacher/top_id"][begin:end].tolist())
                    for name in ("top_logprob", "logsumexp", "entropy", "tail_mass"):
                        numpy.testing.assert_array_equal(numpy.array(line[name], "f4").reshape(file["teacher/" + name][begin:end].shape), file["teacher/" + name][begin:end].astype("f4"), name)
                    target = [float("nan") if x is None else x for x in line["target_logprob"]]
                    numpy.testing.assert_array_equal(numpy.array(target, "f4"), file["teacher/target_logprob"][begin:end])
            self.assertIn("exists", probe("export", path, out, code=74))

    def test_merged_slices_hold_what_one_run_holds(self):
        parts = [self.folder / f"part{i}.h5" for i in range(3)]
        for i, part in enumerate(parts):
            probe("run", part, "samples=200", f"slice={i}/3", ranks=1 + i)
        merged = self.folder / "merged.h5"
        probe("merge", merged, parts[2], parts[0], parts[1])
        self.assertEqual(probe("check", merged), "")
        with h5py.File(merged) as ours, h5py.File(self.whole) as whole:
            for name in COLUMNS:
                if not name.startswith("commit"):  # units end where slices end
                    numpy.testing.assert_array_equal(ours[name][:], whole[name][:], name)
            self.assertEqual(ours.attrs["num_tokens"], whole.attrs["num_tokens"])
        again = self.folder / "again.h5"
        probe("merge", again, parts[0], parts[2], code=65)  # records are left out
        self.assertFalse(list(self.folder.glob("again*")))
        probe("merge", again, parts[0], parts[0], parts[1], parts[2], code=65)
        # A kill when all units are copied, and a byte of a result, then of a key, that changes before the same command goes on.
        for name in ("teacher/entropy", "samples/key"):
            path = self.folder / f"damaged-{name.split('/')[1]}.h5"
            done = subprocess.run([PROBE, "merge", path, *parts], env={**os.environ, "MAGISTER_FAIL_POINT": "results.complete.begin@1:kill"}, capture_output=True)
            self.assertEqual(done.returncode, -signal.SIGKILL)
            partial = path.with_name(path.name + ".partial")
            with h5py.File(partial) as file:
                at = file[name].id.get_offset() + 5
            damaged = bytearray(partial.read_bytes())
            damaged[at] ^= 1
            partial.write_bytes(damaged)
            if name == "samples/key":
                self.assertIn("what unit 0 is computed from", probe("merge", path, *parts, code=65))
                partial.unlink()
            else:
                self.assertIn("the bytes of unit 0 are not those that were committed", probe("merge", path, *parts))
                self.assertEqual(digest(path), digest(merged))
        other = self.folder / "other.h5"
        probe("run", other, "samples=200", "slice=2/3", "asked=8")
        self.assertIn("top_k", probe("merge", again, parts[0], parts[1], other, code=65))
        self.assertFalse(list(self.folder.glob("again*")))

    def test_one_flipped_byte_is_found(self):
        rng, good = random.Random(3), self.whole.read_bytes()
        bad = self.folder / "bad.h5"
        with h5py.File(self.whole) as file:
            places = {name: (file[name].id.get_offset(), file[name].id.get_storage_size()) for name in COLUMNS}
        for name, (offset, size) in places.items():
            for _ in range(3):
                damaged = bytearray(good)
                # In a checksum or a row any bit counts; a key may be any text, so its length is damaged instead.
                at = offset + rng.randrange(size)
                damaged[at] ^= 0x80 if name != "commit/done" else 1
                bad.write_bytes(damaged)
                self.assertTrue(probe("check", bad, code=65), f"{name} at {at}")
        for cut in (1, 512, len(good) // 2, len(good) - 1):
            bad.write_bytes(good[:cut])
            probe("check", bad, code=65)

    def test_kills_at_random_times(self):
        rng = random.Random(11)
        options, reference = ("samples=300", "pause_ms=2"), self.folder / "reference.h5"
        probe("run", reference, *options)
        want, kills = digest(reference), 0
        path = self.folder / "killed.h5"
        while kills < KILLS:
            ranks = rng.choice((1, 2, 3))
            job = subprocess.Popen(mpirun(ranks, "run", path, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(rng.uniform(0.2, 0.9))
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                kills += 1
            job.wait()
            if path.exists():
                self.assertEqual(digest(path), want)
                path.unlink()
        probe("run", path, *options, ranks=2)
        self.assertEqual(digest(path), want)
        self.assertFalse(list(self.folder.glob("killed.h5.*")), "nothing but the results stays")

    def test_hosts_behind_nfs_clients_keep_each_others_bytes(self):
        """Each rank with a page cache of its own, as on hosts that mount one NFS export (nfs_client.c says what is emulated).
        The control: a client that extends writes to whole pages whatever is locked does lose bytes."""
        options = ("samples=200", "pause_ms=1")
        client = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/libnfs_client.so"

        def run(name, ranks, **environment):
            path = self.folder / f"nfs-{name}.h5"
            variables = {"LD_PRELOAD": client, "NFS_CLIENT_FOLDER": self.folder, **environment}
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), "env"]
            command += [f"{key}={value}" for key, value in variables.items()] + [PROBE, "run", path, *options]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            return path, done.returncode, done.stdout + done.stderr
        for ranks in (2, 3, 4):
            path, code, said = run(f"locked-{ranks}", ranks)
            self.assertEqual(code, 0, said)
            self.assertEqual(digest(path), digest(self.whole), "with the shared lock")
        path, code, said = run("synchronous", 3, MAGISTER_FAIL_POINT=",".join(["results.range_lock:enospc"] * 6))
        self.assertEqual(code, 0, said)
        self.assertEqual(digest(path), digest(self.whole), "with O_DSYNC")
        self.assertEqual(said.count("refuses range locks: No locks available"), 1, said)
        path, code, said = run("careless", 3, NFS_CLIENT_CARELESS=1)
        self.assertTrue(code != 0 or digest(path) != digest(self.whole), "the emulation finds nothing")

    def test_a_merged_experiment_has_no_slice_but_all_else(self):
        parts = [self.folder / f"words-{i}.h5" for i in range(2)]
        for i, part in enumerate(parts):
            probe("run", part, "samples=60", f"slice={i}/2", "words=1", ranks=2)
        probe("merge", self.folder / "words.h5", *parts)
        with h5py.File(parts[0]) as part, h5py.File(self.folder / "words.h5") as whole:
            text = part.attrs["experiment"].decode()
            self.assertEqual(text.count("slice:"), 3)
            self.assertEqual(whole.attrs["experiment"].decode(), text.replace("    slice: 0/2\n", ""))

    def test_a_long_experiment_is_a_dataset(self):
        """Beyond the 64 KiB of an attribute: every tool reads it, info, merge and a restart know it."""
        parts = [self.folder / f"long-{i}.h5" for i in range(2)]
        for i, part in enumerate(parts):
            probe("run", part, "samples=60", "yaml_bytes=200000", f"slice={i}/2", ranks=2)
        probe("merge", self.folder / "long.h5", *parts)
        for path in (*parts, self.folder / "long.h5"):
            with h5py.File(path) as file:
                self.assertNotIn("experiment", file.attrs)
                text = file["experiment"][()].decode()
            self.assertGreater(len(text), 200000)
            self.assertEqual("slice" in text, path in parts)
            self.assertEqual(json.loads(probe("json", path))["attributes"]["experiment"], text)
            probe("check", path)
            dumped = subprocess.run(["h5dump", "-d", "/experiment", path], capture_output=True, text=True, check=True).stdout
            self.assertIn("H5T_CSET_UTF8", dumped)
        killed = self.folder / "long-killed.h5"
        options = ("samples=60", "yaml_bytes=200000", "slice=0/2")
        done = subprocess.run([PROBE, "run", killed, *options], capture_output=True,
                              env={**os.environ, "MAGISTER_FAIL_POINT": "results.commit.synced@2:kill"})
        self.assertEqual(done.returncode, -signal.SIGKILL)
        probe("run", killed, *options, ranks=2)
        self.assertEqual(digest(killed), digest(parts[0]))

    def test_the_lock_names_its_holder(self):
        path = self.folder / "locked.h5"
        with subprocess.Popen([PROBE, "lock", path, "200"], stdout=subprocess.PIPE, text=True) as holder:
            self.assertEqual(holder.stdout.readline(), "locked\n")
            self.assertIn(f"process {holder.pid} on ", probe("run", path, code=74))
            holder.kill()
        probe("run", path)

    def test_ranks_that_lock_after_their_launcher_was_killed_are_waited_for(self):
        """They have another parent by then; as long as they live they would be taken for a run at work."""
        path, lock = self.folder / "orphaned.h5", self.folder / "orphaned.h5.lock"
        job = subprocess.Popen(mpirun(1, "lock", path, "200"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                               env={**os.environ, "MAGISTER_FAIL_POINT": ",".join(["results.lock.flock:slow"] * 5)})
        wait_until(lock.exists)
        job.kill()
        job.wait()
        wait_until(lambda: lock.exists() and lock.read_text() or not left_of(job))
        orphans = left_of(job)  # none, where it ended before it could lock
        self.signal(orphans, signal.SIGSTOP)  # else it would end by itself before the next one looks
        said = ""
        with subprocess.Popen([PROBE, "run", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            for line in run.stderr:
                said += line
                if "waiting for the last processes of a killed run" in line:
                    self.signal(orphans, signal.SIGKILL)
        self.signal(orphans, signal.SIGKILL)
        self.assertEqual(run.returncode, 0, said)

    def signal(self, processes, number):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


if __name__ == "__main__":
    unittest.main(verbosity=2)
