"""Batch files of OpenAI's form: each request's keys are obeyed as the task's own keys would be, what is not computed is refused by line, and the
exported answers are what the openai package's types read."""
import json
import signal
import subprocess
import unittest

import jsonschema
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from batch_requests import BOUNDS, REQUESTS, BatchTests, request
from tiny_world import PROGRAM

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": False}
# The keys of each request, and the same as keys of the task.
KEYS = [
    ({}, []),
    ({"temperature": 0}, ["temperature=0"]),
    ({"temperature": 0.7, "top_p": 0.8, "seed": 5, "max_tokens": 9}, ["temperature=0.7", "top_p=0.8", "seed=5", "max_new_tokens=9"]),
    ({"max_completion_tokens": 3, "logprobs": True, "top_logprobs": 2}, ["max_new_tokens=3"]),
    ({"stop": ["e", "a"], "user": "ann", "presence_penalty": 0}, ["stop=[e, a]"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "number", "strict": True, "schema": SCHEMA}}},
     [f"constraint.json_schema={json.dumps(json.dumps(SCHEMA))}"]),
    ({"logit_bias": {"70": 100}, "top_k": 5, "min_p": 0.01, "logprobs": True}, ["logit_bias=[{id: 70, bias: 100}]", "top_k=5", "min_p=0.01"]),
    ({"response_format": {"type": "json_object"}, "temperature": 0.5}, ["temperature=0.5", f"constraint.json_schema={json.dumps(json.dumps({'type': 'object'}))}"]),
]


class OpenaiBatch(BatchTests):
    def test_keys_are_obeyed_by_record(self):
        requests = [request(number, **keys) for number, (keys, _) in enumerate(KEYS)]
        for one in requests:
            TypeAdapter(CompletionCreateParamsNonStreaming).validate_python({key: value for key, value in one["body"].items() if key not in ("top_k", "min_p")})
        batch = self.data(requests)
        one_rank = self.world.complete("batch", 1, batch, REQUESTS, *BOUNDS)
        answers = self.exported("batch")
        self.assertEqual([answer["custom_id"] for answer in answers], [one["custom_id"] for one in requests])
        rows = self.exported("batch", "jsonl")
        plain, alone = self.world.folder / "plain.jsonl", self.world.folder / "alone.jsonl"
        plain.write_text("".join(json.dumps({"messages": one["body"]["messages"]}) + "\n" for one in requests))
        for number, (keys, overrides) in enumerate(KEYS):
            if overrides or number == 0:
                name = f"alone-{number}"
                has_seed = "seed" in keys  # then the draws are those of a data set of this record alone
                alone.write_text(plain.read_text().splitlines()[number] if has_seed else plain.read_text())
                self.world.complete(name, 1, f"tasks.0.dataset.path={alone}", "tasks.0.dataset.messages=messages", *BOUNDS,
                                    *(one if one.startswith("seed") else f"tasks.0.{one}" for one in overrides))
                expected = self.exported(name, "jsonl")[0 if has_seed else number]
            for key in ("text", "token_ids", "logprob", "top_id", "finish_reason"):
                self.assertEqual(rows[number][key], expected[key], (number, keys, key))
            self.check_answer(answers[number], rows[number], keys)
        self.world.forget("batch")
        self.assertEqual(self.world.complete("batch", 2, batch, REQUESTS, *BOUNDS), one_rank)
        jsonschema.validate(json.loads(rows[5]["text"]), SCHEMA)

    def check_answer(self, answer, row, keys):
        self.assertEqual((answer["error"], answer["response"]["status_code"]), (None, 200))
        body = ChatCompletion.model_validate(answer["response"]["body"], strict=True)
        self.assertEqual((body.model, body.object, len(body.choices)), ("tiny", "chat.completion", 1))
        self.assertEqual(body.model_dump(exclude_unset=True), answer["response"]["body"])
        self.assertEqual((body.choices[0].message.content, body.choices[0].finish_reason), (row["text"], row["finish_reason_name"]))
        self.assertEqual((body.usage.completion_tokens, body.usage.prompt_tokens), (len(row["token_ids"]), row["prompt_tokens"]))
        logprobs = body.choices[0].logprobs
        if not keys.get("logprobs"):
            self.assertIsNone(logprobs)
            return
        kept = row["token_ids"][:-1] if row["token_ids"][-1] == 0 else row["token_ids"]
        self.assertEqual([token.logprob for token in logprobs.content], row["logprob"][:len(kept)])
        self.assertEqual(b"".join(bytes(token.bytes) for token in logprobs.content).decode(errors="replace").replace("\0", "\ufffd"), row["text"])
        for token, best in zip(logprobs.content, row["top_logprob"]):
            self.assertEqual([top.logprob for top in token.top_logprobs], best[:keys.get("top_logprobs", 0)])

    def test_several_texts_are_choices(self):
        self.world.complete("choices", 1, self.data([request(0, n=3), request(1, n=3)]), REQUESTS, *BOUNDS, "tasks.0.n=3")
        three = self.choices("choices")
        self.assertEqual([len(set(text for text, _, _ in one)) for one in three], [3, 3])
        mixed = self.data([request(0, n=2), request(1, n=3, logprobs=True, top_logprobs=1), request(2), request(3, n=None)])
        bytes_of_one_rank = self.world.complete("fewer", 1, mixed, REQUESTS, *BOUNDS)
        found = self.choices("fewer")
        self.assertEqual([len(one) for one in found], [2, 3, 1, 1])
        self.assertEqual((found[0], [one[:2] for one in found[1]]), (three[0][:2], [one[:2] for one in three[1]]))
        self.assertEqual([one[2] is None for one in found[0] + found[1]], [True] * 2 + [False] * 3)
        self.world.forget("fewer")
        self.world.interrupted("generate.record.done", signal.SIGKILL, "fewer", 1, mixed, REQUESTS, *BOUNDS)
        self.assertEqual(self.world.complete("fewer", 2, mixed, REQUESTS, *BOUNDS), bytes_of_one_rank)
        done = subprocess.run([PROGRAM, "check", self.world.results("fewer")], capture_output=True, text=True, env=self.world.environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_keys_that_are_not_written_follow_the_file(self):
        """A request may ask for more than the usual 256 tokens, kept tokens and texts: the experiment then is one that writes the most of these."""
        data = self.data([request(0, max_tokens=300, unknown=None), request(1, max_completion_tokens=9, max_tokens=400, logprobs=True, top_logprobs=5)])
        planned = subprocess.run([PROGRAM, "plan", str(self.world.experiment("asked")), data, REQUESTS], capture_output=True, text=True, env=self.world.environment,
                                 check=False)
        self.assertIn("ask for at most 300 tokens, 1 text and 5 of the likeliest a token", planned.stdout, planned.stderr)
        asked = self.world.complete("asked", 1, data, REQUESTS, "tasks.0.temperature=0")
        second, first = reversed(self.exported("asked"))
        self.assertEqual(len(second["response"]["body"]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]), 5)
        self.assertLessEqual(second["response"]["body"]["usage"]["completion_tokens"], 9)
        self.assertIsNone(first["response"]["body"]["choices"][0]["logprobs"])
        for ranks, written in ((2, []), (1, ["tasks.0.max_new_tokens=300", "tasks.0.top_logprobs=5"])):
            self.world.forget("asked")
            self.assertEqual(self.world.complete("asked", ranks, data, REQUESTS, "tasks.0.temperature=0", *written), asked, written)
        # Two slices have the same keys, whichever holds the request that asks for most.
        for index in (0, 1):
            self.world.complete(f"slice-{index}", 1, data, REQUESTS, "tasks.0.temperature=0", f"tasks.0.slice={index}/2")
        self.assertEqual(*(len(self.exported(f"slice-{index}", "jsonl")[0]["top_id"][0]) for index in (0, 1)))

    def test_a_seed_decides_the_draws_wherever_the_request_is(self):
        requests = [request(0, temperature=1.5), request(1, temperature=1.5, seed=8), {**request(2), "body": request(1, temperature=1.5, seed=8)["body"]},
                    {**request(3), "body": request(0, temperature=1.5)["body"]}, request(1, temperature=1.5, seed=-9)]
        requests[4]["custom_id"] = "another"
        self.world.complete("seeds", 2, self.data(requests), REQUESTS, *BOUNDS)
        texts = [one["response"]["body"]["choices"][0]["message"]["content"] for one in self.exported("seeds")]
        self.assertEqual(texts[1], texts[2])
        self.assertEqual(len(set(texts)), 4, texts)
        self.world.complete("moved", 1, self.data(requests[:0:-1]), REQUESTS, *BOUNDS)
        moved = [one["response"]["body"]["choices"][0]["message"]["content"] for one in self.exported("moved")]
        self.assertEqual((moved[3], moved[2], moved[0]), (texts[1], texts[2], texts[4]))

    def test_what_is_refused_by_line(self):
        bad = [request(0), request(1, temperature="hot", top_p=2), request(2, functions=[{"name": "f"}]), request(3, max_tokens=25), request(4, n=2, temperature=0),
               request(5, top_logprobs=2), request(6, logprobs=True, top_logprobs=5), request(7, frequency_penalty=0.5), request(8, stop=[""]),
               request(9, response_format={"type": "xml"}), request(10, response_format={"type": "json_object"}, stop="x"),
               request(11, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "dependentSchemas": {}}}}),
               request(12, logit_bias={"99999": 1}), request(13, stream=True), {**request(14), "url": "/v1/embeddings"}, {**request(0), "method": "GET"}]
        words = {2: "body.temperature is \"hot\"", 3: "body.functions is not computed", 4: "body.max_tokens is 25 (max_new_tokens of the task is 24)", 5: "2 texts are drawn", 6: "without logprobs",
                 7: "top_logprobs of the task is 3", 8: "body.frequency_penalty is 0.5", 9: "body.stop has \"\"", 10: "body.response_format is {\"type\":\"xml\"}",
                 11: "together with a stop text", 12: "dependentSchemas", 13: "body.logit_bias has 99999", 14: "body.stream is true",
                 15: "url is neither \"/v1/chat/completions\" nor", 16: "method is not \"POST\""}
        done = self.world.run("refused", 1, self.data(bad), REQUESTS, *BOUNDS)
        self.assertEqual(done.returncode, 65, done.stderr)
        for line, word in words.items():
            found = [text for text in done.stderr.splitlines() if f"batch.jsonl:{line}:" in text]
            self.assertTrue(any(word in text for text in found), (line, word, done.stderr))
        self.assertNotIn("batch.jsonl:1:", done.stderr)
        self.assertIn("custom_id request-0 is that of an earlier line", done.stderr)
        self.assertFalse(self.world.results("refused").exists())
        done = self.world.run("refused", 1, self.data(bad[:1]), REQUESTS, "tasks.0.dataset.key=id")
        self.assertEqual((done.returncode, "custom_id" in done.stderr), (78, True), done.stderr)
        done = self.world.run("refused", 1, self.data([request(0, n=3), request(1, max_tokens=100_000)]), REQUESTS, "tasks.0.n=2")
        self.assertEqual(done.returncode, 65)
        for word in ("body.n is 3 (n of the task is 2)", "after a prompt of 512 tokens the model has positions for"):
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
