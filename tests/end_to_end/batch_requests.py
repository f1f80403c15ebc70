"""What the tests of batch files of OpenAI's form share: requests, a tiny world that answers them, its answers."""
import json
import subprocess
import tempfile
import unittest

from openai.types.chat import ChatCompletion

import tiny_world
from tiny_world import PROGRAM, World

TEXT = """name: {name}
seed: 11
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: generate
    dataset: {{path: {data}}}
    max_prompt_length: 512
"""
REQUESTS = "tasks.0.requests=openai_batch"
BOUNDS = ["tasks.0.max_new_tokens=24", "tasks.0.top_logprobs=3"]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def request(number, **keys):
    messages = [{"role": "system", "content": "You answer."}, {"role": "user", "content": f"Question {number}?"}]
    return {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny", "messages": messages, **keys}}


class BatchTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = World(scratch.name, text=TEXT, results=("answers.h5",), model=tiny_world.make_model(
            tiny_world.pathlib.Path(scratch.name) / "model", eos_token_id=0, bos_token_id=None))
        (cls.world.model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend", "chat_template": TEMPLATE}))

    def data(self, requests):
        path = self.world.folder / "batch.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in requests))
        return f"tasks.0.dataset.path={path}"

    def exported(self, name, to="openai_batch"):
        done = subprocess.run([PROGRAM, "export", self.world.results(name), "--to", to], capture_output=True, text=True, env=self.world.environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def choices(self, name):
        bodies = [ChatCompletion.model_validate(answer["response"]["body"], strict=True) for answer in self.exported(name)]
        for body in bodies:
            self.assertEqual([choice.index for choice in body.choices], list(range(len(body.choices))))
        return [[(choice.message.content, choice.finish_reason, choice.logprobs) for choice in body.choices] for body in bodies]
