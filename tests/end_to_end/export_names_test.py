"""Exports say what their numbers stand for: names beside indices and codes, the fields of the record that a judge's prompts read, the prompts and
replies as text. Oracles: the data set as Python reads it, jinja2's rendering behind the tokenizer's own decoding, csv and pyarrow as readers.
"""
import csv
import hashlib
import json
import pathlib
import subprocess
import tempfile
import unittest

import h5py
import pyarrow.parquet
from tokenizers import Tokenizer

import tiny_world

PARSES = ["ok", "low_mass", "unparsed", "truncated", "tie"]
CHAT = "{{ bos_token }}{% for m in messages %}<|end|>{{ m.role }}\n{{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}<|end|>assistant\n{% endif %}"


class ExportNames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = tiny_world.World(scratch.name, records=1)
        (cls.world.model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT, "bos_token": "<|end|>"}))
        cls.tokenizer = Tokenizer.from_file(str(cls.world.model / "tokenizer.json"))
        # Commas, quotes, line ends, a field named as a column is, a field that the prompts do not read.
        cls.records = [{"id": f"r{i}", "question": f"Is {i} \"even\", año?\nSay", "answer": "" if i == 3 else f"yes, {i}", "references": [f"yes {i}", "ja"][:1 + i % 2],
                        "answer_a": f"a {i}", "answer_b": f"b {i}", "prompt": f"p{i}", "level": i, "unread": "secret"} for i in range(8)]
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in cls.records))

    def run_it(self, name, tasks, ranks=0):
        path = self.world.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "seed": 3, "output": {"directory": str(self.world.folder / "runs")}, "layout": {"devices": "cpu"},
                                    "model": {"path": str(self.world.model), "dtype": "f32"}, "tasks": tasks}))
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, tiny_world.PROGRAM, "run", str(path)], env=self.world.environment, cwd=self.world.folder, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return self.world.folder / "runs" / name

    def task(self, mode, name, **keys):
        return {"task": "judge", "name": name, "dataset": {"path": str(self.world.data), "key": "id"}, "mode": mode, **keys}

    def exported(self, path, to):
        out = path.with_suffix("." + to)
        out.unlink(missing_ok=True)
        subprocess.run([tiny_world.PROGRAM, "export", str(path), "--to", to, "--out", str(out)], check=True, capture_output=True)
        if to == "jsonl":
            return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        if to == "csv":
            with open(out, newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        return pyarrow.parquet.read_table(out).to_pylist()

    def expected(self, file, i, names):
        """The names of sample i, from the numbers as h5py reads them."""
        column = {name: int(file[f"judge/{name}"][i]) for name in ("verdict", "combined", "parse", "order")}
        return {"verdict_name": names[column["verdict"]] if column["parse"] == 0 else None, "parse_name": PARSES[column["parse"]],
                "combined_name": names[column["combined"]] if column["combined"] >= 0 else None, "order_name": ["as_given", "exchanged"][column["order"]]}

    def check_exports(self, path, names, fields, per_record, lists=("references",)):
        """fields: of a record as they are exported -> the rows of the JSON lines."""
        lines = self.exported(path, "jsonl")
        with h5py.File(path) as file:
            offset, ids = file["samples/offset"][:].astype(int), file["tokens/id"][:]
            for i, line in enumerate(lines):
                record = self.records[i // per_record]
                want = self.expected(file, i, names)
                want |= {shown: record[field] for shown, field in fields.items()}
                want |= {"verdict": int(file["judge/verdict"][i]), "token_ids": ids[offset[i]:offset[i + 1]].tolist()}
                want["prompt_text"] = self.tokenizer.decode(want["token_ids"], skip_special_tokens=False)
                for name, value in want.items():
                    self.assertEqual(line[name], value, (i, name))
                self.assertEqual(line["prompt_text"], file["judge/prompt_text"].asstr()[i], "as h5py reads it")
        self.assertNotIn("secret", json.dumps(lines))
        texts = [*fields, "verdict_name", "parse_name", "combined_name", "order_name", "prompt_text"]
        for to in ("csv", "parquet"):
            for line, row in zip(lines, self.exported(path, to), strict=True):
                for name in texts:
                    value = line[name]
                    want = "" if value is None else json.loads(row[name]) if name in lists else str(value)
                    self.assertEqual(value if name in lists else row[name], want, (to, name))
                self.assertEqual(int(row["verdict"]), line["verdict"])
        return lines

    def test_verdicts(self):
        own = {"user": "{{ question }} {{ answer }} {{ references | join }} {{ prompt }} {{ level }}"}
        tasks = [self.task("reference", "verdicts", low_mass=0.0, prompt=own), self.task("pairwise", "pairs", low_mass=0.0),
                 self.task("reference", "unmeant", low_mass=0.999)]
        folder = self.run_it("verdicts", tasks)
        reference = {"question": "question", "answer": "answer", "references": "references"}
        # `prompt` is a column of the judge's already; numbers are texts.
        for record in self.records:
            record["level"] = str(record["level"])
        lines = self.check_exports(folder / "verdicts.h5", ["yes", "no"], reference | {"record_prompt": "prompt", "level": "level"}, 1)
        self.assertEqual({line["prompt"] for line in lines}, {0})
        pair = {"question": "question", "answer_a": "answer_a", "answer_b": "answer_b"}
        self.check_exports(folder / "pairs.h5", ["A", "B"], pair, 2)
        for line in self.check_exports(folder / "unmeant.h5", ["yes", "no"], reference, 1):
            self.assertEqual((line["verdict_name"], line["parse_name"]), (None, "low_mass"), "what is in no share has no name")
        digests = [hashlib.sha256((folder / f"{task['name']}.h5").read_bytes()).hexdigest() for task in tasks]
        subprocess.run(["rm", "-r", str(folder)], check=True)
        self.run_it("verdicts", tasks, ranks=3)
        self.assertEqual([hashlib.sha256((folder / f"{task['name']}.h5").read_bytes()).hexdigest() for task in tasks], digests, "on three ranks")
        for task in tasks:
            subprocess.run([tiny_world.PROGRAM, "check", str(folder / f"{task['name']}.h5")], check=True, capture_output=True)

    def test_written_texts_and_replies(self):
        data = {"path": str(self.world.data), "key": "id"}
        tasks = [{"task": "generate", "name": "answers", "dataset": {**data, "text": "question"}, "max_new_tokens": 5, "n": 2},
                 self.task("reference", "verdicts", answers="answers", method="decode", read="word", max_new_tokens=6, max_prompt_length=2000)]
        folder = self.run_it("replies", tasks)
        answers, verdicts = self.exported(folder / "answers.h5", "jsonl"), self.exported(folder / "verdicts.h5", "jsonl")
        with h5py.File(folder / "answers.h5") as file:
            reasons = [["stop", "length"][reason] for reason in file["generate/finish_reason"][:]]
            self.assertEqual([line["finish_reason"] for line in answers], file["generate/finish_reason"][:].tolist(), "the code stays")
        for to in ("jsonl", "csv", "parquet"):
            self.assertEqual([row["finish_reason_name"] for row in self.exported(folder / "answers.h5", to)], reasons, to)
        self.assertEqual([line["answer"] for line in verdicts], [line["text"] for line in answers], "the texts that were judged")
        for line in verdicts:
            reply = [token for token in line["reply_id"] if token >= 0]
            self.assertEqual(line["reply"], self.tokenizer.decode(reply, skip_special_tokens=True).replace("\0", "\ufffd"), "HDF5 has no NUL")

    def test_rollouts(self):
        task = {"task": "rollout", "name": "rollouts", "dataset": {"path": str(self.world.data), "key": "id", "text": "question"}, "max_prompt_length": 100,
                "max_new_tokens": 5, "cuts": 2, "n": 3, "reward": {"verifier": "exact", "answer": "id"}}
        path = self.run_it("rollouts", [task]) / "rollouts.h5"
        with h5py.File(path) as file:
            preferred = [[["lost", "won", "not_compared"][code] for code in row] for row in file["rollout/preferred"][:]]
            reasons = [[["stop", "length"][code] for code in row] for row in file["rollout/finish_reason"][:]]
        self.assertIn("not_compared", preferred[0])
        for to, read in (("jsonl", list), ("csv", json.loads), ("parquet", list)):
            rows = self.exported(path, to)
            self.assertEqual([read(row["preferred_name"]) for row in rows], preferred, to)
            self.assertEqual([read(row["finish_reason_name"]) for row in rows], reasons, to)


if __name__ == "__main__":
    unittest.main(verbosity=2)
