"""Results files that the program writes for these tests, once a process: a tiny model with random weights (tests/end_to_end/tiny_world.py).

The environment names the program: MAGISTER, MAGISTER_SOURCE_DIR. Without it, tests that need its files are skipped.
"""
import atexit
import functools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE.parent / "src", HERE.parents[2] / "tests/end_to_end"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

CHAT = "{% for m in messages %}{{ m.role }}:\n{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
TEACHER = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks:
  - task: teacher_logits
    dataset: {{path: {data}, key: id}}
    max_length: 512
    top_k: 8
    unit_tokens: 64
"""
MESSAGES = TEACHER.replace("key: id", "key: id, messages: m")


@functools.cache
def world():
    """-> tiny_world.World with 40 records, an empty one among them."""
    if "MAGISTER" not in os.environ:
        raise unittest.SkipTest("MAGISTER does not name the program")
    import tiny_world
    folder = tempfile.mkdtemp(prefix="magister_reader_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = tiny_world.World(folder, records=40, text=TEACHER)
    (made.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT}))
    with open(made.folder / "chats.jsonl", "w", encoding="utf-8") as file:
        for i in range(6):
            messages = [{"role": "user", "content": "plan unit"}, {"role": "assistant", "content": "shard logit " * i + "año"}] * (1 + i % 2)
            file.write(json.dumps({"id": f"chat-{i}", "m": messages}) + "\n")
    return made


@functools.cache
def teacher(*arguments, fails=None):
    """Path of the file of a teacher task; `arguments` as on the command line, without "tasks.0." before them."""
    made = world()
    name = "teacher-" + "".join(c if c.isalnum() else "-" for c in "".join(arguments) + str(fails or ""))
    done = made.run(name, 0, *(f"tasks.0.{argument}" for argument in arguments), **({"MAGISTER_FAIL_POINT": fails} if fails else {}))
    path = made.results(name)
    if fails:
        return path.with_suffix(".h5.partial")
    assert done.returncode == 0, done.stderr[-3000:]
    return path


@functools.cache
def assistant():
    """Teacher logits of the assistant's tokens alone, in windows."""
    made = world()
    data, made.data, made.text = made.data, made.folder / "chats.jsonl", MESSAGES
    try:
        return teacher("score=assistant", "max_length=24", "overflow=window")
    finally:
        made.data, made.text = data, TEACHER


@functools.cache
def chain():
    """-> (answers.h5, verdicts.h5): two texts a record, and what a judge says of them."""
    made = world()
    import tiny_world
    made.text = tiny_world.CHAIN.replace("n: 4", "n: 2\n    top_logprobs: 3").replace("path: {data}, key: id", "path: {data}, text: text, key: id", 1)
    try:
        done = made.run("chain", 0)
    finally:
        made.text = TEACHER
    assert done.returncode == 0, done.stderr[-3000:]
    folder = made.folder / "runs/chain"
    return folder / "answers.h5", next(path for path in sorted(folder.glob("*.h5")) if path.name != "answers.h5")


def copy_of(path, folder, name="copy.h5"):
    return pathlib.Path(shutil.copy(path, pathlib.Path(folder) / name))
