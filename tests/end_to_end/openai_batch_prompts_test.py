"""Prompts of batch requests: continuations of /v1/completions, messages in the protocol's form, and tools, each against a data set that says the same."""
import json
import unittest

from openai.types import Completion
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

import tiny_world
from batch_requests import BOUNDS, REQUESTS, BatchTests, request

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
WITH_TOOLS = ("{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
              "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}\n{% endfor %}assistant: ")
COMPARED = ("text", "token_ids", "logprob", "finish_reason")


def continuation(number, prompt, **keys):
    return {"custom_id": f"prompt-{number}", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": prompt, **keys}}


class OpenaiBatchPrompts(BatchTests):
    def plain(self, name, lines, *keys):
        """The rows of a data set of these records, drawn greedily."""
        path = self.world.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
        self.world.complete(name, 1, f"tasks.0.dataset.path={path}", "tasks.0.temperature=0", *BOUNDS, *keys)
        return [{key: row[key] for key in COMPARED} for row in self.exported(name, "jsonl")]

    def rows(self, name, requests, *keys, ranks=1):
        self.world.forget(name)
        self.world.complete(name, ranks, self.data(requests), REQUESTS, "tasks.0.temperature=0", *BOUNDS, *keys)
        return [{key: row[key] for key in COMPARED} for row in self.exported(name, "jsonl")]

    def test_continuations(self):
        ids = [65, 66, 300, 12]
        requests = [continuation(0, "The answer is"), continuation(1, ["The answer is"]), continuation(2, ids, max_tokens=5), continuation(3, [ids], logprobs=2),
                    continuation(4, "Ein Zug fährt", logprobs=0, echo=False, suffix=None, best_of=1), request(5)]
        for one in requests[:-1]:
            TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(one["body"])
        rows = self.rows("continuations", requests)
        answers = self.exported("continuations")
        texts = self.plain("texts", [{"text": "The answer is"}, {"text": "Ein Zug fährt"}])
        of_ids = self.plain("ids", [{"ids": ids}], "tasks.0.dataset.tokens=ids")
        self.assertEqual([rows[0], rows[1], rows[4], rows[3]], [texts[0], texts[0], texts[1], of_ids[0]])
        self.assertEqual(rows[2]["token_ids"], of_ids[0]["token_ids"][:5])
        bodies = [Completion.model_validate(one["response"]["body"], strict=True) for one in answers[:-1]]
        for body, row, answer in zip(bodies, rows, answers):
            self.assertEqual(body.model_dump(exclude_unset=True), answer["response"]["body"])
            self.assertEqual((body.object, body.choices[0].text, body.usage.completion_tokens), ("text_completion", row["text"], len(row["token_ids"])))
        self.assertEqual([body.choices[0].logprobs is None for body in bodies], [True, True, True, False, False])
        for body, row, tops in ((bodies[3], rows[3], 2), (bodies[4], rows[4], 0)):
            logprobs, count = body.choices[0].logprobs, len(row["token_ids"]) - (row["token_ids"][-1] == 0)
            self.assertEqual(logprobs.token_logprobs, row["logprob"][:count])
            self.assertEqual(logprobs.text_offset, [len("".join(logprobs.tokens[:i])) for i in range(count)])
            self.assertEqual(logprobs.top_logprobs is None, tops == 0)
            for best, token, logprob in zip(logprobs.top_logprobs or [], logprobs.tokens, logprobs.token_logprobs):
                self.assertIn(len(best), (1, tops, tops + 1))  # tokens of the same text are one entry
                self.assertGreaterEqual(best[token], logprob)
        self.assertEqual(answers[-1]["response"]["body"]["object"], "chat.completion")
        self.assertEqual(self.rows("continuations", requests, ranks=2), rows)

    def test_a_model_without_a_chat_template(self):
        base = tiny_world.make_model(self.world.folder / "base", eos_token_id=0, bos_token_id=None)
        rows = self.rows("base", [continuation(0, "The answer is")], f"model.path={base}")
        self.assertEqual(rows, self.plain("base-text", [{"text": "The answer is"}], f"model.path={base}"))
        done = self.world.run("base-chat", 1, self.data([continuation(0, "x"), request(1)]), REQUESTS, f"model.path={base}")
        self.assertEqual((done.returncode, "has no chat template" in done.stderr), (78, True), done.stderr)

    def test_messages_in_the_form_of_the_protocol(self):
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}
        parts = [{"type": "text", "text": "What is it"}, {"type": "text", "text": "like in Oslo?"}]
        chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "rain"}]
        template = f"model.chat_template={json.dumps(WITH_TOOLS)}"
        requests = [{**request(0), "body": {"messages": chat, "tools": TOOLS}}, {**request(1), "body": {"messages": chat[:1], "tools": TOOLS, "tool_choice": "none"}},
                    {**request(2), "body": {"messages": chat[:1], "tools": None, "tool_choice": "auto"}}]
        rows = self.rows("protocol", requests, template)
        read = {**call, "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
        said = {"role": "user", "content": "What is it\nlike in Oslo?"}
        expected = self.plain("said", [{"messages": [said, {**chat[1], "tool_calls": [read]}, chat[2]], "tools": TOOLS}, {"messages": [said], "tools": None},
                                       {"messages": [said], "tools": None}], template, "tasks.0.dataset.messages=messages", "tasks.0.dataset.tools=tools")
        self.assertEqual(rows, expected)
        self.assertNotEqual(rows[0]["token_ids"], rows[1]["token_ids"])

    def test_prompts_that_are_refused_by_line(self):
        bad = [continuation(0, ["a", "b"]), continuation(1, None), continuation(2, [-1]), continuation(3, "x", echo=True), continuation(4, "x", suffix="y"),
               continuation(5, "x", best_of=3), continuation(6, "x", messages=[]), continuation(7, "x", logprobs=True), continuation(8, "x", logprobs=21),
               continuation(9, "x", max_completion_tokens=2), request(10, tools=TOOLS), request(11, tool_choice="required"), request(12, prompt="x"),
               continuation(13, "x", logprobs=4), request(18, chat_template_kwargs={"enable_thinking": False}), {**request(14), "body": {"messages": None}},
               *({**request(number), "body": {"messages": [{"role": "user", "content": content}]}}
                 for number, content in enumerate((5, [{"type": "text"}], [{"type": "image_url", "image_url": {"url": "x"}}]), start=15))]
        words = ["body.prompt is neither", "body.prompt is missing", "body.prompt is neither", "body.echo is true", "body.suffix is \"y\"", "body.best_of is 3",
                 "body.messages is not computed", "body.logprobs is true", "body.logprobs is 21", "body.max_completion_tokens is not computed",
                 "chat template writes no tools", "body.tool_choice is neither", "body.prompt is not computed", "body.logprobs is 4 (top_logprobs of the task is 3)",
                 "set model.chat_template_kwargs",
                 "body.messages is missing", *["neither a text nor a list of text parts"] * 3]
        done = self.world.run("refused-prompts", 1, self.data(bad), REQUESTS, *BOUNDS)
        self.assertEqual(done.returncode, 65, done.stderr)
        huge = self.world.folder / "huge.jsonl"
        huge.write_text(json.dumps(request(0, max_tokens=7)).replace("7}", "1" + 30 * "0" + "}"))
        self.assertIn("body.max_tokens is 1" + 30 * "0" + " (a whole", self.world.run("huge", 1, f"tasks.0.dataset.path={huge}", REQUESTS).stderr)
        for line, word in enumerate(words, start=1):
            self.assertTrue(any(f"batch.jsonl:{line}:" in text and word in text for text in done.stderr.splitlines()), (line, word, done.stderr))


if __name__ == "__main__":
    unittest.main()
