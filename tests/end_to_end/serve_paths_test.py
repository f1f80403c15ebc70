"""Paths of the service beyond the queue: the lines of a training service's manual as they are printed, results by range, jobs that Slurm starts (a
stand-in for it), and what a machine's GPUs say (a stand-in for NVML)."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from service_process import SLOW, ServiceTests
from tiny_world import PROGRAM, ROOT, wait_until

FAKE_NVML = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/monitor/fake_nvml"
HEALTHY = "gpus 2\nutilization 93\nmemory_total 4294967296\nmemory_used 1073741824\ntemperature 61\npower 412500\nenergy 5000\n"
# As the manual prints them.
LINES = r"""
# Configure GPU settings
curl -X POST http://localhost:8000/multigpu/config \
  -H "Content-Type: application/json" \
  -d '{
    "use_multi_gpu": true,
    "gpu_ids": [0, 1, 2, 3],
    "batch_size_per_gpu": 8,
    "mixed_precision": true
  }'

# Start DataParallel training
curl -X POST http://localhost:8000/multigpu/training/dataparallel \
  -H "Content-Type: application/json" \
  -d '{
    "model_name": "gpt2",
    "dataset_config": {
      "texts": ["sample text 1", "sample text 2"],
      "max_length": 512
    },
    "training_config": {
      "epochs": 3,
      "learning_rate": 5e-5
    },
    "user_id": 123,
    "training_type": "dataparallel"
  }'

# Monitor GPU stats
curl http://localhost:8000/multigpu/stats
"""
# A Slurm of one job at a time: number 77, whose script runs in a session of its own.
SBATCH = """#!/bin/sh
for word; do case $word in --output=*) log=${word#--output=};; --chdir=*) cd "${word#--chdir=}";; esac; script=$word; done
echo "77;cluster"
rm -f STATE/code
setsid sh -c 'echo $$ > STATE/pid; sh "$1" >> "$2" 2>&1 & echo $! > STATE/pid; wait $!; echo $? > STATE/code' x "$script" "$log" < /dev/null > /dev/null 2>&1 3>&- &
until [ -e STATE/code ]; do sleep 0.1; done
exit "$(cat STATE/code)"
"""
SQUEUE = """#!/bin/sh
[ -e STATE/pid ] && [ ! -e STATE/code ] && echo RUNNING
exit 0
"""
SCANCEL = """#!/bin/sh
echo "$@" >> STATE/scancel
[ "$1 $2 $3" = "--batch --signal=USR1 77" ] && kill -USR1 "$(cat STATE/pid)"
"""


def make_gpt2(world, folder):
    """The model that the manual names, a tiny one."""
    from transformers import GPT2Config, GPT2LMHeadModel
    tokens = json.loads((world.model / "config.json").read_text())["vocab_size"]
    GPT2LMHeadModel(GPT2Config(vocab_size=tokens, n_embd=48, n_layer=2, n_head=4, n_positions=512, bos_token_id=0, eos_token_id=0)).save_pretrained(folder)
    shutil.copy(world.model / "tokenizer.json", folder)


class ServePaths(ServiceTests):
    def test_the_lines_of_the_manual(self):
        root = self.world.folder / "manual"
        make_gpt2(self.world, root / "gpt2")
        service = self.service("manual")
        answer = service.ask("GET", "/multigpu/gpu/recommendations")[1]
        self.assertEqual((answer["job"], answer["recommendations"]), (None, []))
        (self.world.folder / ".curlrc").write_text(f"silent\nshow-error\nfail\nwrite-out = \"\\n\"\nconnect-to = \"localhost:8000:127.0.0.1:{service.port}\"\n")
        done = subprocess.run(["bash", "-eu"], input=LINES, capture_output=True, text=True, env={**os.environ, "CURL_HOME": str(self.world.folder)}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        config, training, stats = map(json.loads, filter(None, done.stdout.splitlines()))
        self.assertEqual((config["config"]["gpu_ids"], config["config"]["batch_size_per_gpu"]), ([0, 1, 2, 3], 8))
        self.assertTrue(any("without a GPU" in note for note in config["notes"]), config)
        self.assertEqual((stats["available_gpus"], stats["gpu_info"]), (0, []))
        self.assertIn("libnvidia-ml.so.1", stats["without_gpus_because"])
        train = training["experiment"]["tasks"][0]
        self.assertEqual((train["train"]["global_batch"], train["train"]["epochs"], train["train"]["optimizer"]["lr"]), (16, 3, 5e-5))
        job = training["job"]["id"]
        ended = service.ended(job)
        self.assertEqual(ended["state"], "done", service.ask("GET", f"/v1/jobs/{job}/log")[1][-3000:])
        self.assertTrue((root / f"jobs/{job}/training/student/config.json").exists())
        history = service.ask("GET", "/multigpu/training/history")[1]["history"]
        self.assertIn("training", json.dumps(history))
        metrics = service.ask("GET", "/multigpu/performance/metrics")[1]["jobs"]
        self.assertEqual((metrics[0]["job"], metrics[0]["state"]), (job, "done"))
        self.assertIn("loss", json.dumps(metrics[0]["status"]))
        plan = service.ask("GET", f"/multigpu/gpu/recommendations?job={job}")[1]
        self.assertRegex("\n".join(plan["recommendations"]), r"(?i)memory|bytes")
        self.assertTrue(service.ask("POST", "/multigpu/gpu/test")[1]["test"]["ok"])

    def test_what_has_no_meaning_is_said(self):
        service = self.service("meaning")
        post = lambda path, body: service.ask("POST", f"/multigpu/{path}", json.dumps(body), Content_Type="application/json")
        for path, body, word in (("config", {"gpu_memory": 1}, "known: use_multi_gpu"), ("config", {"gpu_ids": ["a"]}, "gpu_ids"), ("config", [], "no object"),
                                 ("config", {"memory_fraction": 2}, "at most 1"), ("config", {"backend": "mpi"}, "nccl or gloo"),
                                 ("training/config", {"epoch": 2}, "known: epochs"), ("resources/manage", {"action": "cleanup"}, "action manages nothing"),
                                 ("training/auto", {"dataset_config": {}}, "model_name"), ("training/auto", {"model_name": "m", "dataset_config": {"texts": [1]}}, "no text"),
                                 ("training/auto", {"model_name": "m", "dataset_config": {"texts": ["a"]}, "training_config": {"lr": 1}}, "training_config.lr")):
            status, fault = post(path, body)
            self.assertEqual(status, 422, (path, fault))
            self.assertIn(word, fault["error"]["message"])
        self.assertEqual(post("training/config", {"epochs": 2})[1]["training"]["epochs"], 2)
        self.assertEqual(post("resources/manage", {"gpu_ids": [0]})[1]["config"]["gpu_ids"], [0])
        self.assertEqual(service.end(), 0)
        service = self.service("meaning")
        kept = service.ask("GET", "/multigpu/config")[1]
        self.assertEqual((kept["config"]["gpu_ids"], kept["training"]["epochs"]), ([0], 2))
        status, fault = service.ask("GET", "/multigpu/gpu/0/stats")
        self.assertEqual((status, "libnvidia-ml" in fault["error"]["message"]), (404, True), fault)
        self.assertEqual(service.ask("GET", "/multigpu/health")[1]["status"], "healthy")
        self.assertEqual(service.ask("GET", "/multigpu/training/history")[1]["history"], [])
        status = service.ask("GET", "/multigpu/resources/status")[1]
        self.assertGreater(status["disk_free_bytes"], 0)
        self.assertGreater(status["host"]["resident_memory_bytes"], 0)

    def test_gpus_of_the_machine(self):
        if not FAKE_NVML.exists():
            self.skipTest("the stand-in for NVML is not built")
        answers = self.world.folder / "nvml.txt"
        answers.write_text(HEALTHY)
        service = self.service("gpus", MAGISTER_FAKE_NVML=str(answers), LD_LIBRARY_PATH=f"{FAKE_NVML}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        stats = service.ask("GET", "/multigpu/stats")[1]
        self.assertEqual(([gpu["uuid"] for gpu in stats["gpu_info"]], stats["without_gpus_because"]), (["GPU-0", "GPU-1"], None))
        one = service.ask("GET", "/multigpu/gpu/1/stats")[1]
        self.assertEqual((one["index"], one["values"]["power_watts"], one["values"]["utilization_ratio"]), (1, 412.5, 0.93))
        status, fault = service.ask("GET", "/multigpu/gpu/2/stats")
        self.assertEqual((status, "2 GPUs" in fault["error"]["message"]), (404, True), fault)

    def test_results_by_range(self):
        service = self.service("ranges")
        job = service.submit(self.texts("answers"))[1]["id"]
        self.assertEqual(service.ended(job)["state"], "done")
        files = {one["file"]: one["bytes"] for one in service.ask("GET", f"/v1/jobs/{job}/results")[1]["files"]}
        path = self.world.folder / f"ranges/jobs/{job}/answers/answers.h5"
        content, at = path.read_bytes(), f"/v1/jobs/{job}/results/answers/answers.h5"
        self.assertEqual(files["answers/answers.h5"], len(content))
        get = lambda path, **headers: service.bytes_of("GET", path, **headers)
        status, headers, body = get(at)
        self.assertEqual((status, body == content, headers["Accept-Ranges"]), (200, True, "bytes"))
        for asked, expected in (("bytes=0-7", content[:8]), ("bytes=100-", content[100:]), ("bytes=-5", content[-5:]), (f"bytes=5-{len(content) + 9}", content[5:])):
            status, headers, body = get(at, Range=asked)
            self.assertEqual((status, body == expected), (206, True), asked)
            self.assertTrue(headers["Content-Range"].endswith(f"/{len(content)}"))
        for asked in (f"bytes={len(content)}-", f"bytes={len(content) + 5}-{len(content) + 9}"):
            status, headers, _ = get(at, Range=asked)
            self.assertEqual((status, headers["Content-Range"]), (416, f"bytes */{len(content)}"))
        status, _, body = get(f"/v1/jobs/{job}", Range="bytes=0-3")  # JSON has no ranges
        self.assertEqual((status, json.loads(body)["id"]), (200, job))
        (path.parent / "link").symlink_to("/etc/hostname")
        for wrong in ("answers/link", "../../jobs.sqlite", "..%2f..%2fjobs.sqlite", "%2fetc%2fhostname", "answers", "nothing", "answers/%00"):
            status, _, body = get(f"/v1/jobs/{job}/results/{wrong}")
            self.assertEqual(status, 404, (wrong, body))

    def test_kills_during_submits(self):
        done = subprocess.run([sys.executable, ROOT / "tests/bench/serve_kills.py", PROGRAM, "--kills", "3"], capture_output=True, text=True, check=False,
                              env=self.world.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"3 kills .* 0 lost, 0 doubled; exit code 0")

    def stand_in(self):
        """Slurm's commands -> (their variables, the folder of their state)."""
        state = pathlib.Path(tempfile.mkdtemp(dir=self.world.folder))
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
            (state / name).write_text(text.replace("STATE", str(state)))
            (state / name).chmod(0o755)
        return {"PATH": f"{state}:{os.environ['PATH']}"}, state

    def test_jobs_that_slurm_starts(self):
        variables, state = self.stand_in()
        service = self.service("slurm", "--sbatch", "sbatch --ntasks 2", **variables, **SLOW)
        job = service.submit(self.texts("it's", tokens=3).replace("it's", "short"))[1]["id"]
        self.assertEqual(service.ended(job)["state"], "done", service.ask("GET", f"/v1/jobs/{job}/log")[1][-2000:])
        self.assertEqual((self.world.folder / f"slurm/jobs/{job}/slurm_job").read_text(), "77;cluster\n")
        self.assertIn("exec 'mpirun' '--oversubscribe'", (self.world.folder / f"slurm/jobs/{job}/job.sh").read_text())
        long = service.submit(self.texts("long", tokens=400))[1]["id"]
        log = self.world.folder / f"slurm/jobs/{long}/long/run.jsonl"
        wait_until(lambda: log.exists() and '"event":"start"' in log.read_text())
        self.assertEqual(service.ask("POST", f"/v1/jobs/{long}/cancel")[1]["state"], "stopping")
        ended = service.ended(long)
        self.assertEqual((ended["state"], ended["exit_code"]), ("cancelled", 75), service.ask("GET", f"/v1/jobs/{long}/log")[1][-2000:])
        self.assertIn("--batch --signal=USR1 77", (state / "scancel").read_text())

    def test_slurm_goes_on_without_the_service(self):
        variables, _ = self.stand_in()
        service = self.service("orphans", "--sbatch", "sbatch", **variables, **SLOW)
        job = service.submit(self.texts("goes-on", tokens=60))[1]["id"]
        log = self.world.folder / f"orphans/jobs/{job}/goes-on/run.jsonl"
        wait_until(lambda: log.exists() and '"event":"start"' in log.read_text())
        service.end(signal.SIGKILL)
        with contextlib.closing(sqlite3.connect(self.world.folder / "orphans/jobs.sqlite")) as database:
            (waiting,), = database.execute("SELECT pid FROM jobs")
        os.kill(waiting, signal.SIGKILL)
        service = self.service("orphans", "--sbatch", "sbatch", **variables)
        time.sleep(1)
        self.assertEqual(service.ask("GET", f"/v1/jobs/{job}")[1]["starts"], 1)
        self.assertEqual(service.ended(job)["state"], "done")
        self.assertEqual(log.read_text().count('"event":"phases"'), 1)  # it was computed once


if __name__ == "__main__":
    unittest.main()
