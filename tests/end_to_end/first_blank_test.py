"""A completion that begins with a blank, of models with a SentencePiece vocabulary: its text is what it adds to the text of prompt and completion as transformers
decodes them, in texts and chats, for stop texts, verifiers, reward models (of the same vocabulary the written ids), and GRPO; byte-level BPE is as it was.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tiny_world

SPACE = "▁"
BYTES = [f"<0x{b:02X}>" for b in range(256)]
PROMPTS = ("The sky is", "The sea is not", "The sky is\n", "The river ran under", "año мир", "A bird", "The mill 数据", "one two three")
TEMPLATE = "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
LINES = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
HEAD = "name: {name}\nseed: 4\noutput: {{directory: {runs}}}\nmodel: {{path: {model}, dtype: f32}}\nlayout: {{devices: cpu}}\ntasks:\n"
TEXTS = """  - task: generate
    dataset: {{path: {data}, key: id}}
    max_new_tokens: 7
    max_prompt_length: 80
    n: 6
"""
CHAIN = HEAD + TEXTS + """  - task: score
    dataset: {{path: {data}, key: id}}
    answers: answers
    max_length: 90
    model: {{path: {runs}/../reward, dtype: f32}}
  - task: score
    name: verified
    dataset: {{path: {data}, key: id}}
    answers: answers
    score: {{verifier: regex, pattern: "^ [a-z]"}}
"""
GRPO = HEAD + """  - task: train
    objective: grpo
    dataset: {{path: {data}, key: id}}
    grpo: {{num_generations: 4, max_new_tokens: 6, log_completions: true, reward: {{model: {{path: {runs}/../reward}}}}}}
    train: {{steps: 1, global_batch: 32, max_length: 64, shuffle: false}}
"""
ROLLOUT = HEAD + """  - task: rollout
    dataset: {{path: {data}, key: id}}
    max_new_tokens: 8
    max_prompt_length: 64
    cuts: 2
    n: 2
    reward: {{model: {{path: {runs}/../reward}}}}
"""


def tokenizer(decoder="llama"):
    """Llama 2's kind, trained on few words."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    words = " ".join([*PROMPTS[:2], *PROMPTS[3:4], *PROMPTS[5:6], "blue green red yes no INST user assistant"])
    made.train_from_iterator([words] * 3, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False))
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    made.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]) if decoder == "llama" else decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", 1)])
    state = json.loads(made.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]  # bytes are no special tokens
    made = Tokenizer.from_str(json.dumps(state))
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    return made


def save(model, folder, made, template=None):
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **({"chat_template": template} if template else {})}))
    return folder


class FirstBlank(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(tiny_world.ORACLE))
        import tiny_models
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.made = tokenizer()
        settings = dict(vocab_size=cls.made.get_vocab_size(), hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                        max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False)
        cls.writer = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).eval()
        tiny_models.fill(cls.writer, 3)
        torch.manual_seed(1)
        cls.reward = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**settings, num_labels=1, initializer_range=0.2)).eval()
        save(cls.writer, cls.folder / "spm", cls.made)
        save(cls.reward, cls.folder / "reward", cls.made)
        cls.world = tiny_world.World(cls.folder, records=1, model=cls.folder / "spm", text=HEAD + TEXTS, results=("answers.h5",))

    def setUp(self):
        self.world.model = self.folder / "spm"
        self.write([{"id": f"p{i}", "text": text} for i, text in enumerate(PROMPTS)])

    def write(self, records):
        self.world.data.write_text("".join(json.dumps(record) + "\n" for record in records))

    def run_text(self, name, text, results, *arguments):
        self.world.text, self.world.names = text, results
        done = self.world.run(name, 0, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def answers(self, name):
        with h5py.File(self.world.results(name).with_name("answers.h5")) as file:
            offsets, ids = file["samples/offset"][()], file["tokens/id"][()].tolist()
            return file["generate/text"].asstr()[:].tolist(), [ids[a:b] for a, b in zip(offsets, offsets[1:])], file["generate/finish_reason"][()].tolist()

    def behind(self, prompt, ids, hf=None):
        """Of transformers: the text of all, less that of the prompt."""
        hf = hf or transformers.PreTrainedTokenizerFast(tokenizer_object=self.made, bos_token="<s>", eos_token="</s>")
        start, whole = hf.decode(prompt, skip_special_tokens=True), hf.decode(prompt + ids, skip_special_tokens=True)
        return whole[len(start):] if whole.startswith(start) else None

    def compare(self, name, prompts, made=None):
        hf = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>") if made else None
        texts, ids, _ = self.answers(name)
        blanks = bytes_on_the_border = 0
        for i, (text, written) in enumerate(zip(texts, ids)):
            want = self.behind(prompts[i // 6], written, hf)
            bytes_on_the_border += want is None
            if want is not None:
                self.assertEqual(text, want.replace("\0", "\ufffd"), prompts[i // 6])
                blanks += want.startswith(" ")
        print(name, f"{len(texts)} texts, {blanks} begin with a blank, {bytes_on_the_border} with bytes that break the prompt's last character")
        return blanks

    def test_texts(self):
        for name, made in (("llama", self.made), ("metaspace", tokenizer("metaspace"))):
            with self.subTest(name):
                self.world.model = save(self.writer, self.folder / name, made)
                self.run_text(name, HEAD + TEXTS, ("answers.h5",))
                self.assertGreater(self.compare(name, [made.encode(text).ids for text in PROMPTS], made), 1)

    def test_chats(self):
        """Behind a template's [/INST] and behind its line end."""
        self.write([{"id": f"p{i}", "chat": [{"role": "user", "content": text}]} for i, text in enumerate(PROMPTS)])
        for name, template in (("inst", TEMPLATE), ("lines", LINES)):
            with self.subTest(name):
                self.world.model = save(self.writer, self.folder / name, self.made, template)
                self.run_text(name, HEAD + TEXTS, ("answers.h5",), "tasks.0.dataset.messages=chat")
                hf = transformers.AutoTokenizer.from_pretrained(self.world.model)
                prompts = [hf.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"] for text in PROMPTS]
                self.assertGreater(self.compare(name, prompts), 0)

    def test_a_stop_text_with_the_first_blank(self):
        """A text that would begin with the stop text ends at once, and one of bytes ends where its line does."""
        self.run_text("free", HEAD + TEXTS, ("answers.h5",))
        free, ids, _ = self.answers("free")
        stop = next(text[:3] for text in free if text.startswith(" ") and text[1:3].isalpha())
        self.run_text("stopped", HEAD + TEXTS, ("answers.h5",), f"tasks.0.stop={json.dumps([stop])}")
        texts, short, reasons = self.answers("stopped")
        begun = 0
        for before, whole, text, written, reason in zip(free, ids, texts, short, reasons):
            self.assertEqual(text, before.split(stop)[0])
            self.assertEqual(written, whole[:len(written)])
            if stop in before:
                self.assertEqual(reason, 0)
                if before.startswith(stop):
                    self.assertLess(len(written), 4)
                    begun += 1
        self.assertGreater(begun, 0)

    def scores(self, sequences):
        with torch.no_grad():
            return numpy.array([self.reward(torch.tensor([ids])).logits[0, 0].item() for ids in sequences])

    def test_reward_models_and_verifiers_read_it(self):
        self.run_text("chain", CHAIN, ("answers.h5", "score.h5", "verified.h5"))
        texts, ids, _ = self.answers("chain")
        prompts = [self.made.encode(text).ids for text in PROMPTS]
        sequences = [prompts[i // 6] + [one for one in written if one > 2] for i, written in enumerate(ids)]
        with h5py.File(self.world.results("chain").with_name("score.h5")) as file:
            self.assertEqual(file["tokens/id"][()].tolist(), sum(sequences, []))
            numpy.testing.assert_allclose(file["score/value"][()], self.scores(sequences), atol=2e-5)
        with h5py.File(self.world.results("chain")) as file:
            right = [float(text[:1] == " " and text[1:2].isascii() and text[1:2].islower()) for text in texts]
            self.assertEqual(file["score/value"][()].tolist(), right)
            self.assertGreater(sum(right), 0)
        # Of another vocabulary: the joined text.
        other = tokenizer()
        other.add_tokens(["<other>"])
        self.reward.resize_token_embeddings(other.get_vocab_size())
        save(self.reward, self.folder / "reward", other)
        self.run_text("joined", CHAIN, ("answers.h5", "score.h5"))
        with h5py.File(self.world.results("joined").with_name("score.h5")) as file:
            self.assertEqual(file["tokens/id"][()].tolist(), sum([other.encode(PROMPTS[i // 6] + text).ids for i, text in enumerate(texts)], []))
        self.reward.resize_token_embeddings(self.made.get_vocab_size())
        save(self.reward, self.folder / "reward", self.made)

    def test_grpo(self):
        self.run_text("grpo", GRPO, ("student.h5",))
        (log,) = self.world.results("grpo").with_name("student.rollouts").iterdir()
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        prompts = {f"p{i}": self.made.encode(text).ids for i, text in enumerate(PROMPTS)}
        want = [self.behind(prompts[row["key"]], row["tokens"]) for row in rows]
        self.assertEqual([row["text"] for row, text in zip(rows, want) if text is not None], [text for text in want if text is not None])
        self.assertGreater(sum(text is not None and text.startswith(" ") for text in want), 1)
        rewards = self.scores([prompts[row["key"]] + [one for one in row["tokens"] if one > 2] for row in rows])
        numpy.testing.assert_allclose([row["reward"] for row in rows], rewards, atol=2e-5)

    def test_rollouts(self):
        """The whole text behind its prompt, of a roll-in and its continuation."""
        self.run_text("rollout", ROLLOUT, ("rollouts.h5",))
        (path,) = self.world.results("rollout").parent.glob("*.h5")
        with h5py.File(path) as file:
            found = {key: file[f"rollout/{key}"][()] for key in ("roll_in_id", "cut", "id", "length", "reward")}
        for i, text in enumerate(PROMPTS):
            sequences = []
            for c in range(4):
                tokens = found["roll_in_id"][i][:found["cut"][i][c // 2]].tolist() + found["id"][i].reshape(4, -1)[c][:found["length"][i][c]].tolist()
                sequences.append(self.made.encode(text).ids + [one for one in tokens if one > 2])
            numpy.testing.assert_allclose(found["reward"][i], self.scores(sequences), atol=2e-5)

    def test_a_choice_begins_without_a_blank(self):
        """The blank of the first token is a part of the text, and no choice has it."""
        for name, choices in (("bare", ["yes", "no"]), ("blank", [" yes", " no"])):
            self.run_text(name, HEAD + TEXTS, ("answers.h5",), f"tasks.0.constraint.choice={json.dumps(choices)}")
            texts, _, reasons = self.answers(name)
            self.assertEqual({text for text, reason in zip(texts, reasons) if reason == 0} - set(choices), set())
            self.assertGreater(reasons.count(0), 20)


if __name__ == "__main__":
    unittest.main()
