"""A service of its own process, and what the tests that ask it share."""
import http.client
import json
import re
import signal
import subprocess
import tempfile
import unittest

from tiny_world import PROGRAM, World, wait_until

SLOW = {"MAGISTER_FAIL_POINT": "generate.pass:slow"}  # a thousand passes of 0.1 s
TEXTS = """name: {name}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    dataset: {{path: {data}, key: id, limit: {limit}}}
    max_new_tokens: {tokens}
    max_prompt_length: 512
    ignore_eos: true
"""


class Service:
    """A service of its own process; `ask` sends one request."""

    def __init__(self, world, root, *options, launcher="mpirun --oversubscribe --bind-to none -np 2", restore_signals=True, **environment):
        self.process = subprocess.Popen([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--root", str(root), "--folder", str(world.folder),
                                         "--launcher", launcher, *options],
                                        env={**world.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True, restore_signals=restore_signals)
        first = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+)/", first)[1]) if first else None

    def ask(self, method, path, body=None, **headers):
        """-> (status, JSON or text)."""
        status, reply, content = self.bytes_of(method, path, body, **headers)
        text = content.decode()
        return status, json.loads(text) if "json" in reply["Content-Type"] else text

    def bytes_of(self, method, path, body=None, **headers):
        """-> (status, headers, bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()
        finally:
            connection.close()

    def submit(self, text, **headers):
        return self.ask("POST", "/v1/jobs", text, Content_Type="application/yaml", **headers)

    def state(self, job):
        return self.ask("GET", f"/v1/jobs/{job}")[1]["state"]

    def ended(self, job):
        wait_until(lambda: self.state(job) in ("done", "failed", "cancelled"))
        return self.ask("GET", f"/v1/jobs/{job}")[1]

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


class ServiceTests(unittest.TestCase):
    """Tests of services in the folders of one tiny world; a service that a test leaves behind is killed."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = World(scratch.name, records=20)

    def service(self, name, *options, **environment):
        service = Service(self.world, self.world.folder / name, *options, **environment)
        self.addCleanup(lambda: service.process.poll() is None and service.end(signal.SIGKILL))
        return service

    def texts(self, name, tokens=5, limit=3, data=None):
        return TEXTS.format(name=name, model=self.world.model, data=data or self.world.data, tokens=tokens, limit=limit)
