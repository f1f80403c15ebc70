"""Where texts of chats end: in a GGUF file by all that llama.cpp ends texts with (run/gguf_vocab has the lists); `plan` says it where a template ends its turns with a
token that ends no text; and what learns such turns ends them, generated with by transformers and by this program.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import gguf
import h5py
import numpy
import peft
import torch
import transformers
from tokenizers import Tokenizer

import tiny_world

TURN, OWN = 0, 2  # "<|end|>", and the token that the model's config names
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
GENERATE = """  - task: generate
    name: texts
    dataset: {{path: {chats}, messages: m}}
    max_prompt_length: 100
    max_new_tokens: 40
    temperature: 0
"""
TRAIN = """  - task: train
    name: student
    dataset: {{path: {chats}, messages: m}}
    train: {{steps: 60, global_batch: 2, max_length: 64, optimizer: {{lr: 1.0e-2, weight_decay: 0}}}}
"""
HEAD = "name: {name}\noutput: {{directory: {runs}}}\nmodel: {{path: {model}, dtype: f32}}\nlayout: {{devices: cpu}}\ntasks:\n"
CHATS = [("plan", "unit of the shard"), ("logit", "some words repeat")]
SAYS = 'ends a turn with token 0 "<|end|>", and '


def messages(question, answer=None):
    return [{"role": "user", "content": question}] + ([{"role": "assistant", "content": answer}] if answer else [])


class World(tiny_world.World):
    def experiment(self, name):
        path = self.folder / f"{name}.yaml"
        path.write_text((HEAD + self.text).format(name=name, runs=self.folder / "runs", model=self.model, data=self.data, chats=self.chats))
        return path

    def plan(self, name, *arguments):
        return subprocess.run([tiny_world.PROGRAM, "plan", self.experiment(name), *arguments], capture_output=True, text=True, check=True, env=self.environment)


class TurnEnd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = World(cls.folder, records=4, text=GENERATE, results=("texts.h5",))
        cls.plain = cls.world.model
        cls.tokenizer = Tokenizer.from_file(str(cls.plain / "tokenizer.json"))
        assert cls.tokenizer.token_to_id("<|end|>") == TURN
        (cls.plain / "chat_template.jinja").write_text(CHAT)
        (cls.plain / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}))
        cls.ends_with(cls.plain, OWN)
        cls.world.chats = cls.write("chats", [{"id": str(i), "m": messages(*chat)} for i, chat in enumerate(CHATS)])
        cls.questions = cls.write("questions", [{"id": str(i), "m": messages(question)} for i, (question, _) in enumerate(CHATS)])

    def setUp(self):
        self.world.model, self.world.text, self.world.names = self.plain, GENERATE, ("texts.h5",)

    @staticmethod
    def ends_with(folder, *ids):
        (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": ids[0] if len(ids) == 1 else list(ids)}))

    @classmethod
    def write(cls, name, records):
        path = cls.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in records))
        return path

    def copy(self, name, *ends):
        folder = self.folder / name
        shutil.copytree(self.plain, folder)
        if ends:
            self.ends_with(folder, *ends)
        return folder

    def run_it(self, name, *overrides):
        done = self.world.run(name, 0, *overrides)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def texts(self, name):
        """-> (ids of each text, the root attribute that names the ends)."""
        with h5py.File(self.folder / "runs" / name / "texts.h5") as file:
            offset, ids = file["samples/offset"][:].astype(int), file["tokens/id"][:]
            return [ids[a:b].tolist() for a, b in zip(offset, offset[1:])], file.attrs["end_tokens"].decode()

    # -- GGUF

    def write_gguf(self, path, **ids):
        """A model that answers "x" and then ends its turn: a row of the head points at what the token before it became."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.plain, dtype=torch.float32)
        vocabulary = self.tokenizer.get_vocab()
        tokens = sorted(vocabulary, key=vocabulary.get)
        config = model.config
        weights = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}
        for name in weights:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weights[name][:] = 0
        after = self.tokenizer.encode("assistant:").ids[-1]
        word = self.tokenizer.encode("x").ids[0]
        for before, then in ((after, word), (word, TURN)):
            row = model.model.norm(model.model.embed_tokens.weight[before]).detach().numpy()
            weights["lm_head.weight"][then] = 40 * row / numpy.square(row).sum()
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_context_length(512)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_vocab_size(len(tokens))
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token == "<|end|>" else 1 for token in tokens])
        writer.add_token_merges([" ".join(merge) for merge in json.loads(self.tokenizer.to_str())["model"]["merges"]])
        writer.add_chat_template(CHAT)
        for key, value in ids.items():
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
        names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
                 "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                 "mlp.down_proj": "ffn_down"}
        for name, value in weights.items():
            stem = name.removesuffix(".weight")
            _, _, layer, rest = (stem.split(".", 3) + [""])[:4] if stem not in names else ("", "", "", "")
            writer.add_tensor((names[stem] if stem in names else f"blk.{layer}.{names[rest]}") + ".weight", numpy.ascontiguousarray(value))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return word

    def test_a_gguf_text_ends_where_llama_cpp_ends_it(self):
        """Phi-3's files name <|endoftext|> as their end and end their turns with <|end|>, which no key names."""
        for name, keys, ends in (("published", {"eos": OWN}, "2 0"), ("with-eot", {"eos": OWN, "eot": 5}, "2 0 5"), ("only-eom", {"eos": OWN, "eom": TURN}, "2 0")):
            with self.subTest(name):
                self.world.model = self.folder / f"{name}.gguf"
                word = self.write_gguf(self.world.model, **keys)
                done = self.run_it(name, f"tasks.0.dataset.path={self.questions}")
                texts, named = self.texts(name)
                self.assertEqual((texts, named), ([[word, TURN]] * 2, ends))
                self.assertNotIn("ends a turn with", done.stderr)

    # -- what plan says

    def test_plan_says_that_a_turn_ends_with_what_ends_no_text(self):
        said = self.world.plan("said").stderr
        self.assertIn(SAYS + 'what ends a text is 2 "', said)
        self.assertIn("chat_template.jinja", said)
        self.world.model = self.copy("both", OWN, TURN)
        for plan in (self.world.plan("quiet-both"), *(self.world.plan(f"quiet-{i}", f"model.path={self.plain}", key)
                                                     for i, key in enumerate(("tasks.0.stop_tokens=[0]", "tasks.0.ignore_eos=true")))):
            self.assertNotIn("ends a turn with", plan.stderr)
        # A stop text is looked for in the text, of which special tokens are no part.
        self.assertIn(SAYS, self.world.plan("said-again", f"model.path={self.plain}", "tasks.0.stop=['<|end|>']").stderr)
        # Of several words none is a token.
        self.world.model = self.copy("words")
        (self.world.model / "chat_template.jinja").write_text(CHAT.replace("<|end|>", "[END]"))
        self.assertIn('ends a turn with "[END]", and what ends a text is 2 "', self.world.plan("words").stderr)
        self.assertNotIn("ends a turn with", self.world.plan("words-stop", "tasks.0.stop=['[END]']").stderr)

    def test_plan_says_it_of_a_gguf_file_too(self):
        self.world.model = self.folder / "stops.gguf"
        self.write_gguf(self.world.model, eos=OWN)
        template = self.folder / "stops.jinja"
        template.write_text(CHAT.replace("<|end|>", "[END]"))
        self.assertIn('ends a turn with "[END]", and what ends a text is 2 "', self.world.plan("stops", f"model.chat_template={template}").stderr)

    # -- students

    def by_transformers(self, model, **arguments):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=self.tokenizer)
        found = []
        for question, _ in CHATS:
            prompt = tokenizer.apply_chat_template(messages(question), chat_template=CHAT, add_generation_prompt=True, return_tensors="pt", return_dict=False)
            found.append(model.generate(prompt, max_new_tokens=40, do_sample=False, pad_token_id=OWN, **arguments)[0, prompt.shape[1]:].tolist())
        return found

    def wanted(self):
        return [self.tokenizer.encode(" " + answer + "<|end|>").ids for _, answer in CHATS]

    def by_magister(self, name, **keys):
        self.world.text, self.world.names = GENERATE, ("texts.h5",)
        done = self.run_it(name, f"tasks.0.dataset.path={self.questions}", *(f"model.{key}={value}" for key, value in keys.items()))
        self.assertNotIn("ends a turn with", done.stderr)
        return self.texts(name)[0]

    def test_a_student_ends_its_turns(self):
        self.world.text, self.world.names = TRAIN, ("student.h5",)
        self.assertIn(SAYS + 'the model\'s texts end with 2 "', self.world.plan("whole").stderr)
        self.run_it("whole")
        student = self.folder / "runs/whole/student"
        self.assertEqual(json.loads((student / "generation_config.json").read_text()), {"bos_token_id": 1, "eos_token_id": [TURN, OWN]})
        self.assertEqual(json.loads((student / "config.json").read_text())["eos_token_id"], TURN)
        model = transformers.AutoModelForCausalLM.from_pretrained(student)
        self.assertEqual(self.by_transformers(model), self.wanted())
        self.assertEqual(self.by_magister("whole-texts", path=student), self.wanted())
        # With the ends of the model that it began as it writes on.
        self.assertTrue(all(len(text) == 40 for text in self.by_transformers(model, eos_token_id=OWN)))

    def test_an_adapter_ends_its_turns_here_and_a_warning_says_where_not(self):
        self.world.text, self.world.names = TRAIN.replace("steps: 60", "adapter: {{rank: 16, alpha: 64}}, steps: 120"), ("student.h5",)
        done = self.run_it("adapter")
        adapter = self.folder / "runs/adapter/student"
        self.assertIn("generation_config.json next to the adapter names both", done.stderr)
        model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(self.plain), adapter)
        self.assertEqual(model.generation_config.eos_token_id, OWN)
        ends = json.loads((adapter / "generation_config.json").read_text())["eos_token_id"]
        self.assertEqual(self.by_transformers(model, eos_token_id=ends), self.wanted())
        self.assertEqual(self.by_magister("adapter-texts", path=self.plain, adapter=adapter), self.wanted())
        self.assertEqual(self.by_magister("adapter-alone", path=adapter), self.wanted())

    def student_config(self, name, text, *overrides):
        self.world.text, self.world.names = text, ("student.h5",)
        done = self.run_it(name, *overrides)
        return json.loads((self.folder / "runs" / name / "student/generation_config.json").read_text())["eos_token_id"], done.stderr

    def test_every_objective_that_learns_chats(self):
        steps = TRAIN.replace("steps: 60", "steps: 1")
        pairs = self.write("pairs", [{"prompt": messages("plan"), "chosen": messages("x", "unit")[1:], "rejected": messages("x", "shard")[1:]}] * 2)
        dpo = steps.replace("path: {chats}, messages: m", f"path: {pairs}").replace("name: student", "name: student\n    objective: dpo")
        self.assertEqual(self.student_config("dpo", dpo)[0], [TURN, OWN])
        teacher = "  - task: teacher_logits\n    name: teacher\n    dataset: {{path: {chats}, messages: m}}\n    max_length: 64\n    top_k: 4\n"
        distill = teacher + steps.replace("dataset: {{path: {chats}, messages: m}}", "objective: distill\n    teacher: {{task: teacher}}")
        self.assertEqual(self.student_config("distill", distill)[0], [TURN, OWN])
        # A student with another template does not learn its own turns' end, and is not called so.
        other = self.copy("other-template")
        (other / "chat_template.jinja").write_text(CHAT.replace("<|end|>", "plan"))
        ends, said = self.student_config("other", distill.replace("    objective: distill", f"    model: {{{{path: {other}}}}}\n    objective: distill"))
        self.assertEqual(ends, OWN)
        self.assertIn("another chat template than they were written by", said)
        # A reward model writes nothing; a student of plain texts learns to end them with the tokenizer's end token, as TRL appends it.
        reward = dpo.replace("objective: dpo", "objective: reward")
        self.assertEqual(self.student_config("reward", reward)[0], OWN)
        self.assertEqual(self.student_config("plain", steps.replace("path: {chats}, messages: m", "path: {data}"))[0], [TURN, OWN])
        with h5py.File(self.folder / "runs/plain/student.h5") as file:
            self.assertEqual(file.attrs["end_tokens"], b"2")
        # The turn's end is an end token already, or the template writes none.
        self.world.model = self.copy("knows", OWN, TURN)
        self.assertEqual(self.student_config("knows", steps)[0], [OWN, TURN])
        self.world.model = self.copy("endless")
        (self.world.model / "chat_template.jinja").write_text(CHAT.replace("<|end|>", ""))
        ends, said = self.student_config("endless", steps)
        self.assertEqual(ends, OWN)
        self.assertIn("writes no token after an answer", said)

    def test_a_policy_ends_its_texts_as_trl_ends_them(self):
        """With the tokenizer's end token and those of generation_config.json; the student is left with both."""
        grpo = TRAIN.replace("name: student", "name: student\n    objective: grpo\n    grpo: {{num_generations: 2, max_new_tokens: 12, log_completions: true, "
                             "reward: {{verifier: regex, pattern: unit}}}}").replace("steps: 60", "steps: 1").replace("{chats}", str(self.questions))
        self.assertEqual(self.student_config("grpo", grpo)[0], [TURN, OWN])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
