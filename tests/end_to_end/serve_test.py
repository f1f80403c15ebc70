"""The service: jobs over HTTP against what the files hold; tokens and roles; a service that is killed while jobs are submitted and run."""
import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import unittest

import h5py

from service_process import SLOW, ServiceTests
from tiny_world import PROGRAM, wait_until


class Serve(ServiceTests):
    def test_a_job_from_submit_to_results(self):
        service = self.service("plain")
        status, job = service.submit(self.texts("answers"))
        self.assertEqual((status, job["name"], job["state"]), (201, "answers", "queued"))
        done = service.ended(job["id"])
        self.assertEqual((done["state"], done["exit_code"], done["starts"]), ("done", 0, 1))
        with h5py.File(self.world.folder / f"plain/jobs/{job['id']}/answers/answers.h5") as file:
            self.assertEqual(len(file["generate/text"]), 3)
        self.assertIn("is complete", service.ask("GET", f"/v1/jobs/{job['id']}/log")[1])
        events = service.ask("GET", f"/v1/jobs/{job['id']}/events")[1]
        self.assertIn('event: state\ndata: {"state":"done"}', events)
        self.assertIn("is complete", events)
        self.assertEqual([one["id"] for one in service.ask("GET", "/v1/jobs")[1]["jobs"]], [job["id"]])
        self.assertIn('magister_jobs{state="done"} 1', service.ask("GET", "/metrics")[1])
        as_json = json.dumps({"experiment": {"name": "as-json", "model": {"path": str(self.world.model)}, "layout": {"devices": "cpu"}, "tasks": [
            {"task": "teacher_logits", "dataset": {"path": str(self.world.data)}, "max_length": 512, "top_k": 4}]}})
        status, job = service.ask("POST", "/v1/jobs", as_json, Content_Type="application/json")
        self.assertEqual(service.ended(job["id"])["state"], "done", status)
        self.assertEqual(service.end(), 0)

    def test_what_is_refused(self):
        service = self.service("refused")
        status, fault = service.submit(self.texts("typo").replace("max_new_tokens", "max_new_tokenz"))
        self.assertEqual(status, 422)
        self.assertIn("did you mean max_new_tokens?", fault["error"]["message"])
        link = self.world.folder / "refused/link"
        link.symlink_to("/etc")
        for data in ("/etc/hostname", "../../../etc/hostname", "link/hostname", "link/host*"):
            status, fault = service.submit(self.texts("elsewhere", data=data))
            self.assertEqual(status, 403, (data, fault))
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
        for body, expected in (("", 400), ("[", 422), ("\0", 422), (bomb, 422), ("x" * (9 << 20), 413)):
            self.assertEqual(service.submit(body)[0], expected, body[:20])
        for path, expected in (("/v1/jobs/7", 404), ("/v1/jobs/999999999999999999", 404), ("/v1/jobs/x", 404), ("/v1/jobs/../../etc/passwd", 404),
                               ("/nothing", 404), ("/v1/jobs?limit=0", 400), ("/v1/jobs?before=x", 400)):
            self.assertEqual(service.ask("GET", path)[0], expected, path)
        status, fault = service.ask("GET", "/v1/jobs/7/results/" + 10_000 * "x")
        self.assertEqual((status, fault["error"]["message"]), (414, "the path is longer than the service reads"))
        self.assertIn("414", service.ask("GET", "/openapi.json")[1]["paths"]["/v1/jobs/{id}/results/{file}"]["get"]["responses"])
        for headers in ({"Origin": "http://elsewhere.example"}, {"Origin": "null"}, {"Host": "elsewhere.example"}, {"Host": "localhost.elsewhere.example:8000"}):
            status, fault = service.submit(self.texts("page-of-another-site"), **headers)
            self.assertEqual((status, "without --tokens" in fault["error"]["message"]), (403, True), (headers, fault))
        self.assertEqual(service.ask("GET", "/v1/jobs", Host="localhost", Origin="http://localhost")[0], 200)
        self.assertEqual(service.ask("POST", "/v1/jobs/7/cancel")[0], 404)
        self.assertEqual(service.ask("GET", "/v1/jobs")[1]["jobs"], [])
        self.assertEqual([name for name in os.listdir(self.world.folder / "refused") if name.startswith("check.")], [])

    def test_tokens_and_roles(self):
        tokens = self.world.folder / "tokens"
        add = lambda who: subprocess.run([PROGRAM, "serve", "--tokens", str(tokens), "--add-token", who], capture_output=True, text=True,
                                         env=self.world.environment, check=False)
        submit, read = (add(who).stdout.strip() for who in ("ann:submit", "bob:read"))
        self.assertEqual((add("ann:read").returncode, add("eve:admin").returncode), (78, 78))
        self.assertNotIn(submit, tokens.read_text())
        self.assertEqual(tokens.stat().st_mode & 0o777, 0o600)
        service = self.service("tokens-root", "--tokens", str(tokens), "--rate", "60")
        bearer = lambda token: {"Authorization": f"Bearer {token}"}
        self.assertEqual(service.ask("GET", "/v1/jobs")[0], 401)
        self.assertEqual(service.ask("GET", "/v1/jobs", **bearer(submit[:-1]))[0], 401)
        self.assertEqual(service.ask("GET", "/v1/jobs", **bearer(read))[0], 200)
        self.assertEqual(service.submit(self.texts("texts"), **bearer(read))[0], 403)
        status, job = service.submit(self.texts("texts"), **bearer(submit), Idempotency_Key="one")
        self.assertEqual((status, job.get("owner")), (201, "ann"), job)
        self.assertEqual(service.submit(self.texts("texts"), **bearer(submit), Idempotency_Key="one")[1]["id"], job["id"])
        statuses = [service.ask("GET", "/v1/jobs", **bearer(read))[0] for _ in range(70)]
        self.assertIn(429, statuses)
        self.assertEqual(service.ask("GET", "/v1/health")[0], 200)
        audit = [json.loads(line) for line in (self.world.folder / "tokens-root/audit.log").read_text().splitlines()]
        self.assertEqual([(line["token"], line["status"]) for line in audit], [("ann", 201), ("ann", 201)])
        refused = subprocess.run([PROGRAM, "serve", "--listen", "0.0.0.0:0", "--root", str(self.world.folder / "open")], capture_output=True,
                                 text=True, env=self.world.environment, check=False, timeout=60)
        self.assertEqual((refused.returncode, "without --tokens" in refused.stderr), (78, True), refused.stderr)

    def test_tls(self):
        certificate, key = self.world.folder / "certificate.pem", self.world.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
        service = self.service("tls", "--certificate", str(certificate), "--key", str(key))
        trusted = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", service.port, timeout=60, context=trusted)
        connection.request("GET", "/v1/health")
        self.assertEqual(json.loads(connection.getresponse().read())["status"], "ok")
        connection.close()
        self.assertEqual(service.end(), 0)
        for wrong in ([str(certificate)], [str(certificate), "--key", str(certificate)]):
            refused = subprocess.run([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--root", str(self.world.folder / "tls"), "--certificate", *wrong],
                                     capture_output=True, text=True, env=self.world.environment, check=False, timeout=60)
            self.assertEqual(refused.returncode, 78, refused.stderr)

    def test_cancel_and_resume(self):
        service = self.service("cancel", **SLOW)
        long = service.submit(self.texts("long", tokens=400))[1]["id"]
        waits = service.submit(self.texts("waits"))[1]["id"]
        log = self.world.folder / f"cancel/jobs/{long}/long/run.jsonl"
        wait_until(lambda: log.exists() and '"event":"start"' in log.read_text())
        self.assertEqual(service.state(waits), "queued")
        self.assertEqual(service.ask("POST", f"/v1/jobs/{waits}/cancel")[1]["state"], "cancelled")
        self.assertEqual(service.ask("POST", f"/v1/jobs/{long}/cancel")[1]["state"], "stopping")
        ended = service.ended(long)
        self.assertEqual((ended["state"], ended["exit_code"]), ("cancelled", 75), service.ask("GET", f"/v1/jobs/{long}/log")[1][-2000:])
        self.assertEqual(service.ask("POST", f"/v1/jobs/{long}/cancel")[0], 409)
        self.assertEqual(service.end(), 0)
        service = self.service("cancel")
        self.assertEqual(service.ask("POST", f"/v1/jobs/{long}/resume")[1]["state"], "queued")
        ended = service.ended(long)
        self.assertEqual((ended["state"], ended["starts"]), ("done", 2))
        self.assertEqual(service.state(waits), "cancelled")

    def test_a_killed_service_loses_and_doubles_nothing(self):
        known, lock = [], threading.Lock()
        service = self.service("killed", **SLOW)
        running = service.submit(self.texts("running", tokens=60))[1]["id"]
        wait_until(lambda: service.state(running) == "running")

        def submit(number):
            for attempt in range(3):
                try:
                    status, job = service.submit(self.texts(f"job-{number}-{attempt}"))
                except (OSError, http.client.HTTPException):
                    return
                if status == 201:
                    with lock:
                        known.append((job["id"], job["name"]))
        clients = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
        for client in clients:
            client.start()
        wait_until(lambda: len(known) >= 3)
        service.end(signal.SIGKILL)
        for client in clients:
            client.join()
        service = self.service("killed")  # the job that ran goes on, and is not started again
        names = {one["id"]: one["name"] for one in service.ask("GET", "/v1/jobs?limit=1000")[1]["jobs"]}
        for job, name in known:
            self.assertEqual(names[job], name)
        self.assertEqual(len(set(names.values())), len(names))
        for job in names:
            self.assertEqual(service.ended(job)["state"], "done", service.ask("GET", f"/v1/jobs/{job}/log")[1][-2000:])
            folder = self.world.folder / f"killed/jobs/{job}/{names[job]}"
            self.assertTrue((folder / "answers.h5").exists())
        # Started once more if it ended while there was no service; then it finds its results and computes nothing.
        events = [json.loads(line)["event"] for line in (self.world.folder / f"killed/jobs/{running}/running/run.jsonl").read_text().splitlines()]
        self.assertEqual(events.count("start"), 1, events)

    def test_the_document_names_every_path(self):
        service = self.service("document")
        document = service.ask("GET", "/openapi.json")[1]
        self.assertEqual(document["openapi"], "3.1.0")
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                status, body = service.ask(method.upper(), re.sub(r"{\w+}", "7", path))
                self.assertIn(str(status), operation["responses"], (method, path, body))
        self.assertIn("text/event-stream", document["paths"]["/v1/jobs/{id}/events"]["get"]["responses"]["200"]["content"])
        submission = document["paths"]["/v1/jobs"]["post"]
        status, job = service.ask("POST", "/v1/jobs", json.dumps(submission["requestBody"]["content"]["application/json"]["example"]), Content_Type="application/json")
        self.assertEqual((status, job["name"]), (201, "example"), job)
        for name, link in submission["responses"]["201"]["links"].items():
            path, method = link["operationRef"].removeprefix("#/paths/").rsplit("/", 1)
            self.assertIn(method, document["paths"][path.replace("~1", "/")], name)
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
        self.assertEqual(references - set(document["components"]["schemas"]), set())

    def test_a_disk_without_space(self):
        """A stand-in: the service may write no byte of a file. What it acknowledged is there, nothing else is taken, and it goes on when it may write again."""
        tokens = self.world.folder / "full-tokens"
        token = subprocess.run([PROGRAM, "serve", "--tokens", str(tokens), "--add-token", "ann:submit"], capture_output=True, text=True, env=self.world.environment,
                               check=True).stdout.strip()
        service = self.service("full", "--tokens", str(tokens), launcher="env", restore_signals=False)  # SIGXFSZ stays ignored, as Python has it
        bearer = {"Authorization": f"Bearer {token}"}
        texts = self.texts("nothing").replace(str(self.world.model), "nothing")
        first = service.submit(texts, **bearer)[1]["id"]
        state = lambda job: service.ask("GET", f"/v1/jobs/{job}", **bearer)[1]["state"]
        wait_until(lambda: state(first) == "failed")
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for status, fault in (service.submit(texts, **bearer), service.ask("POST", f"/v1/jobs/{first}/resume", **bearer),
                              service.ask("POST", "/multigpu/config", json.dumps({"gpu_ids": [0]}), Content_Type="application/json", **bearer)):
            self.assertEqual((status, "nothing was changed" in json.dumps(fault)), (503, True), fault)
        self.assertEqual([one["id"] for one in service.ask("GET", "/v1/jobs", **bearer)[1]["jobs"]], [first])
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        status, job = service.submit(texts, **bearer)
        self.assertEqual(status, 201)
        wait_until(lambda: state(job["id"]) == "failed")
        audit = [json.loads(line)["status"] for line in (self.world.folder / "full/audit.log").read_text().splitlines()]
        self.assertEqual((audit[0], audit[-1]), (201, 201))
        self.assertEqual(service.end(), 0)

    def test_clients_that_never_finish_hold_up_nobody(self):
        """More of them than the service has threads, each of which sends a byte now and then: the library alone would wait for all of them."""
        service = self.service("slow", **SLOW)
        job = service.submit(self.texts("long", tokens=400))[1]["id"]
        watching = socket.create_connection(("127.0.0.1", service.port))
        watching.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        slow, stop = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(300)], threading.Event()

        def drip():
            for number, client in enumerate(slow):
                client.sendall(b"GET /v1/jobs HTTP/1.1\r\nX-Slow: " if number % 2 else b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 100000\r\n\r\nname:")
            while not stop.wait(0.5):
                for client in slow:
                    with contextlib.suppress(OSError):
                        client.send(b"a")
        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            for _ in range(3):
                self.assertEqual(service.ask("GET", "/v1/health")[0], 200)
            self.assertIn(b"event: state", watching.recv(1 << 16) + watching.recv(1 << 16))  # an answer at work is not cut
            self.assertEqual(service.end(), 0)
        finally:
            stop.set()
            dripping.join()
            for client in [watching, *slow]:
                client.close()
        service = self.service("slow")
        service.ask("POST", f"/v1/jobs/{job}/cancel")
        self.assertEqual(service.ended(job)["state"], "cancelled")


if __name__ == "__main__":
    unittest.main()
