"""task: score with encoders, against transformers record by record without padding: BERT, DistilBERT, DeBERTa-v2, RoBERTa and XLM-RoBERTa with the
tokenizers that their checkpoints have (WordPiece, Unigram, byte-level BPE), by CPUs' code and by that of GPUs on the host, and as reward models; no bit depends on ranks, kills or the records beside; what is not computed is refused by name.
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
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tiny_world
from score_runs import ScoreRuns

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models

EXPERIMENT = tiny_world.EXPERIMENT.split("  - task:")[0].replace(", dtype: f32", "") + """  - task: score
    dataset: {{path: {data}, key: id}}
    max_length: 200
    unit_tokens: 256
"""
ROLLOUTS = tiny_world.EXPERIMENT.split("  - task:")[0].replace("layout:", "seed: 3\nlayout:") + """  - task: rollout
    dataset: {{path: {data}, key: id}}
    max_prompt_length: 150
    max_new_tokens: 6
    cuts: 2
    n: 2
    temperature: 0.9
"""
ON_HOST = dict(MAGISTER_GPU_CODE_ON_HOST="1")
SIZES = dict(vocab_size=300, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=200)
DISTILBERT = dict(vocab_size=300, dim=48, hidden_dim=80, n_layers=3, n_heads=4, max_position_embeddings=256)
DEBERTA = dict(SIZES, relative_attention=True, position_buckets=16, max_relative_positions=-1, share_att_key=True, pos_att_type=["p2c", "c2p"],
               norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0)
MODELS = {"distilbert": ("distilbert", dict(DISTILBERT, num_labels=2)),
          "bert": ("bert", dict(SIZES, num_labels=3, id2label={0: "bad", 1: "so", 2: "good"}, label2id={"bad": 0, "so": 1, "good": 2})),
          "bert-tanh": ("bert", dict(SIZES, num_labels=1, hidden_act="gelu_new", type_vocab_size=5, layer_norm_eps=0.05)),
          "deberta": ("deberta-v2", dict(DEBERTA, num_labels=1)),
          "deberta-all": ("deberta-v2", dict(DEBERTA, num_labels=2, position_buckets=-1, max_relative_positions=30, pos_att_type="c2p", norm_rel_ebd="none",
                                             position_biased_input=True, type_vocab_size=2)),
          # Positions begin behind the padding's: 200 are left.
          "roberta": ("roberta", dict(SIZES, num_labels=3, max_position_embeddings=202, type_vocab_size=1, layer_norm_eps=1e-5)),
          "xlm-roberta": ("xlm-roberta", dict(SIZES, num_labels=1, max_position_embeddings=204, pad_token_id=3, type_vocab_size=2)),
          "deberta-p2c": ("deberta-v2", dict(DEBERTA, num_labels=4, position_buckets=7, max_relative_positions=90, pos_att_type=["p2c"]))}


def make_tokenizers(folder):
    """WordPiece as BERT's files have it and Unigram as DeBERTa-v2's, trained on the words of the data."""
    texts = [" ".join(tiny_world.WORDS)] * 4
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.train_from_iterator([text.lower() for text in texts],
                                  trainers.WordPieceTrainer(vocab_size=250, special_tokens=special, show_progress=False))
    transformers.BertTokenizer(vocab=wordpiece.get_vocab()).save_pretrained(folder / "wordpiece")
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=200, unk_token="[UNK]", show_progress=False,
                                                               special_tokens=["[PAD]", "[CLS]", "[SEP]", "[UNK]"]))
    pieces = [tuple(piece) for piece in json.loads(unigram.to_str())["model"]["vocab"]]
    transformers.DebertaV2Tokenizer(vocab=pieces).save_pretrained(folder / "unigram")
    roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bytes_bpe = Tokenizer(models.BPE())
    bytes_bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=290, special_tokens=roberta, show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made = json.loads(bytes_bpe.to_str())["model"]
    transformers.RobertaTokenizer(vocab=made["vocab"], merges=[tuple(merge) for merge in made["merges"]]).save_pretrained(folder / "bytes")
    order = {"<s>": 0, "<unk>": 1, "</s>": 2, "<pad>": 3}
    unigram.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", show_progress=False, special_tokens=list(order)))
    pieces = [tuple(piece) for piece in json.loads(unigram.to_str())["model"]["vocab"]]
    transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)]).save_pretrained(folder / "xlm")


class Encoders(ScoreRuns):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        make_tokenizers(cls.folder)
        cls.world = tiny_world.World(cls.folder, records=40, model=cls.folder / "bert", text=EXPERIMENT, results=("score.h5",))
        cls.records = [json.loads(line) for line in cls.world.data.read_text().splitlines()]
        cls.records[7]["text"] += " <pad> and <pad><pad> more"  # RoBERTa's padding inside a text is not counted
        cls.world.data.write_text("".join(json.dumps(record) + "\n" for record in cls.records))
        cls.models = {name: cls.make(name, *model) for name, model in MODELS.items()}

    @classmethod
    def make(cls, name, kind, changes):
        config = transformers.AutoConfig.for_model(kind, **changes)
        model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
        tiny_models.fill(model, 5)
        with torch.no_grad():
            head = model.classifier if hasattr(model.classifier, "weight") else model.classifier.out_proj
            head.weight.mul_(2.5)  # scores that differ from record to record
        tokenizer = cls.folder / {"deberta-v2": "unigram", "roberta": "bytes", "xlm-roberta": "xlm"}.get(kind, "wordpiece")
        shutil.copytree(tokenizer, cls.folder / name)
        model.save_pretrained(cls.folder / name)
        return model

    def ids(self, model, longest=200):
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / model)
        return [tokenizer(record["text"], truncation=True, max_length=longest)["input_ids"] for record in self.records]

    def test_values_labels_and_tokens(self):
        for name, model in self.models.items():
            ids = self.ids(name)
            self.assertTrue(any(len(one) == 200 for one in ids) and any(len(one) == 2 for one in ids))
            got, want = self.values(name, name), self.expected(model, ids)
            difference = numpy.abs(got.reshape(want.shape) - want).max()
            print(f"{name}: largest difference {difference:.1e}, values from {want.min():.2f} to {want.max():.2f}, spread {want.std(0).min():.2f}")
            self.assertGreater(want.std(0).min(), 0.1)
            self.assertLess(difference, 1e-5)
            self.assertEqual(self.labels, [model.config.id2label[i] for i in range(model.config.num_labels)])
            self.assertEqual(self.tokens.tolist(), [token for one in ids for token in one])

    def test_units_ranks_and_kills_change_nothing(self):
        one = self.check_ranks_and_kills("deberta", (3, 2), 3)
        # Another number of records at once: the records beside change nothing.
        numpy.testing.assert_allclose(self.values("big", "deberta", 1, "tasks.0.unit_tokens=8192"), one, atol=1e-5)

    def test_gpu_code(self):
        """Every family as GPUs compute it, and no bit depends on ranks or the records beside."""
        few = "tasks.0.dataset.limit=14"
        for name, model in self.models.items():
            ids = self.ids(name)[:14]
            self.assertTrue(any(len(one) == 200 for one in ids))
            got, want = self.values(f"gpu-{name}", name, 1, few, **ON_HOST), self.expected(model, ids)
            difference = numpy.abs(got.reshape(want.shape) - want).max()
            print(f"{name} by the GPU's code: largest difference {difference:.1e}, spread {want.std(0).min():.2f}")
            self.assertLess(difference, 1e-5)
            if name not in ("bert", "deberta"):
                continue
            first = self.world.sha256(f"gpu-{name}")
            self.world.forget(f"gpu-{name}")
            self.values(f"gpu-{name}", name, 2, few, **ON_HOST)
            self.assertEqual(self.world.sha256(f"gpu-{name}"), first)
            for tokens in (8192, 1):
                changed = self.values(f"gpu-{name}-{tokens}", name, 1, few, f"tasks.0.unit_tokens={tokens}", **ON_HOST)
                numpy.testing.assert_array_equal(changed, got)

    def test_reward_model_beside_a_policy_on_gpus(self):
        """It is whole beside every shard of the policy, and gives a text the same reward on one and on two of them."""
        world = tiny_world.World(self.folder / "policy", records=4, text=ROLLOUTS, results=("rollouts.h5",))
        world.data.write_text("".join(json.dumps({"id": str(i), "text": " ".join(tiny_world.WORDS[i:i + 4])}) + "\n" for i in range(4)))
        policy, reader = Tokenizer.from_file(str(world.model / "tokenizer.json")), transformers.AutoTokenizer.from_pretrained(self.folder / "deberta")
        reward = f"tasks.0.reward.model.path={self.folder / 'deberta'}"
        rewards = {}
        for shards in (1, 2):
            done = world.run(f"rewards-{shards}", 0, reward, f"layout.shards_per_rank={shards}", **ON_HOST)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            with h5py.File(world.results(f"rewards-{shards}")) as file:
                data, offset, ids = {key: file[f"rollout/{key}"][()] for key in file["rollout"]}, file["samples/offset"][()], file["tokens/id"][()]
            texts = []
            for r in range(len(offset) - 1):
                prompt = ids[offset[r]:offset[r + 1]].tolist()
                for cut, start in enumerate(data["cut"][r].reshape(-1)):
                    for i in range(cut * 2, cut * 2 + 2):
                        tokens = data["id"][r].reshape(4, -1)[i, :data["length"][r].reshape(-1)[i]]
                        texts.append(policy.decode(prompt + data["roll_in_id"][r, :start].tolist() + tokens.tolist()))
            self.assertGreater(len(texts), 8)
            want = self.expected(self.models["deberta"], [reader(text)["input_ids"] for text in texts]).reshape(-1)
            got = data["reward"].reshape(-1)
            print(f"rewards beside {shards} shards: largest difference {numpy.abs(got - want).max():.1e}, spread {want.std():.2f}")
            numpy.testing.assert_allclose(got, want, atol=1e-5)
            rewards[shards] = dict(zip(texts, got, strict=True))
        both = rewards[1].keys() & rewards[2].keys()
        self.assertGreater(len(both), 4)
        self.assertEqual([rewards[1][text] for text in both], [rewards[2][text] for text in both])

    def test_pairs_as_chats(self):
        """A question and its answer as DeBERTa's reward models read them: [CLS] question [SEP] answer [SEP], written by a template."""
        texts = [record["text"][:60] for record in self.records if record["text"]]
        pairs = list(zip(texts[:8], texts[20:28]))
        chats, template = self.folder / "chats.jsonl", self.folder / "pairs.jinja"
        chats.write_text("".join(json.dumps({"id": str(i), "m": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}) + "\n"
                                 for i, (a, b) in enumerate(pairs)))
        template.write_text("[CLS]{{ messages[0].content }}[SEP]{{ messages[1].content }}[SEP]")
        for name in ("deberta", "distilbert"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / name)
            ids = [tokenizer(a, b)["input_ids"] for a, b in pairs]
            self.assertLess(max(map(len, ids)), 200)
            got = self.values(f"pairs-{name}", name, 1, f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m", f"model.chat_template={template}")
            self.assertEqual(self.tokens.tolist(), [token for one in ids for token in one])
            want = self.expected(self.models[name], ids)
            numpy.testing.assert_allclose(got.reshape(want.shape), want, atol=1e-5)
        # Where tokens have types, those of the second text would have another.
        self.refused("types", 65, ["as between the texts of a pair"], self.folder / "bert", f"tasks.0.dataset.path={chats}", "tasks.0.dataset.messages=m",
                     f"model.chat_template={template}")

    def test_weights_in_16_bits(self):
        """They are widened: the scores are those of the same numbers in f32."""
        for kind in (torch.bfloat16, torch.float16):
            name = f"16-bits-{kind}".replace("torch.", "")
            shutil.copytree(self.folder / "distilbert", self.folder / name)
            rounded = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder / name, dtype=kind)
            rounded.save_pretrained(self.folder / name)
            want = self.expected(rounded.float().eval(), self.ids("distilbert"))
            numpy.testing.assert_allclose(self.values(name, name), want, atol=1e-5)

    def spoiled(self, model, change):
        folder = self.folder / "spoiled"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / model, folder)
        config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        change(config, weights)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(weights, folder / "model.safetensors")
        return folder

    def refused(self, name, code, words, model, *arguments, **environment):
        self.world.model = model
        done = self.world.run(f"refused-{name}", 0, *arguments, **environment)
        self.assertEqual(done.returncode, code, f"{name}: {done.stderr}")
        for word in words:
            self.assertIn(word, done.stderr, name)
        self.assertFalse(self.world.results(f"refused-{name}").exists())

    def test_bad_configs(self):
        cases = [("deberta", dict(position_buckets=0), "position_buckets is 0"), ("deberta", dict(position_buckets=1), "position_buckets is 1"),
                 ("deberta", dict(position_buckets=-2), "position_buckets"), ("deberta", dict(position_buckets=398), "position_buckets is 398 for 200"),
                 ("deberta", dict(position_buckets=32), "tensor deberta.encoder.rel_embeddings.weight is [32, 48], the config asks for [64, 48]"),
                 ("deberta", dict(pos_att_type=["c2p", "p2p"]), "pos_att_type has \"p2p\""), ("deberta", dict(pos_att_type="c2p|"), "pos_att_type has \"\""),
                 ("deberta", dict(pos_att_type=7), "pos_att_type"), ("deberta", dict(norm_rel_ebd="rms"), "norm_rel_ebd has \"rms\""),
                 ("deberta", dict(norm_rel_ebd="none"), "tensor deberta.encoder.LayerNorm.bias [48] is not used"),
                 ("deberta", dict(relative_attention=False), "relative_attention is false"), ("deberta", dict(share_att_key=False), "share_att_key is false"),
                 ("deberta", dict(conv_kernel_size=3), "conv_kernel_size is 3"), ("deberta", dict(embedding_size=32), "embedding_size is 32"),
                 ("deberta", dict(pooler_hidden_act="tanh"), "pooler_hidden_act is \"tanh\""), ("deberta", dict(max_relative_positions=1 << 40), "max_relative_positions"),
                 ("deberta", dict(type_vocab_size=2), "token_type_embeddings.weight is missing"),
                 ("bert", dict(position_embedding_type="relative_key"), "position_embedding_type is \"relative_key\""),
                 ("bert", dict(is_decoder=True), "is_decoder is true"), ("bert", dict(hidden_act="relu"), "hidden_act is \"relu\""),
                 ("bert", dict(num_attention_heads=5), "the heads are 5"), ("bert", dict(type_vocab_size=0), "type_vocab_size"),
                 ("bert", dict(layer_norm_eps="small"), "layer_norm_eps"), ("bert", dict(architectures=["BertForMaskedLM"]), "architectures names \"BertForMaskedLM\""),
                 ("bert", dict(max_position_embeddings=0), "max_position_embeddings"), ("distilbert", dict(dim=0), "hidden_size"),
                 ("roberta", dict(pad_token_id=None), "pad_token_id is null"), ("roberta", dict(pad_token_id=300), "pad_token_id is 300"),
                 ("roberta", dict(pad_token_id=201), "pad_token_id is 201 and max_position_embeddings 202"),
                 ("roberta", dict(pad_token_id=-1), "pad_token_id is -1"), ("roberta", dict(is_decoder=True), "is_decoder is true"),
                 ("roberta", dict(architectures=["RobertaForMaskedLM"]), "architectures names \"RobertaForMaskedLM\""),
                 ("roberta", dict(max_position_embeddings=300), "roberta.embeddings.position_embeddings.weight is [202, 48], the config asks for [300, 48]"),
                 ("distilbert", dict(activation="relu"), "activation is \"relu\""), ("distilbert", dict(n_layers=4), "distilbert.transformer.layer.3")]
        for index, (model, change, words) in enumerate(cases):
            self.refused(f"config-{index}", 65, [words], self.spoiled(model, lambda config, _, change=change: config.update(change)))

    def test_what_is_refused(self):
        bert = self.folder / "bert"
        self.refused("long", 78, ["max_length", "200 positions"], bert, "tasks.0.max_length=201")
        self.refused("long-roberta", 78, ["max_length", "200 positions"], self.folder / "roberta", "tasks.0.max_length=201")
        self.refused("shards", 78, ["family bert", "cannot be divided over 2 devices"], bert, "layout.shards_per_rank=2")
        self.refused("type", 78, ["model.dtype is bf16", "encoder"], bert, "model.dtype=bf16")
        self.refused("codes", 78, ["model.quantization is int8", "encoder"], bert, "model.quantization=int8")
        self.refused("gpu-shards", 78, ["family bert", "cannot be divided over 2 devices"], bert, "layout.shards_per_rank=2", **ON_HOST)
        self.refused("gpu-type", 78, ["model.dtype is bf16", "encoder"], bert, "model.dtype=bf16", **ON_HOST)
        self.refused("gpu-nan", 65, ["the head"], self.spoiled("bert", lambda _, weights: weights["classifier.bias"].fill_(float("nan"))), **ON_HOST)
        self.refused("gpu-nan-layer", 65, ["record 0", "layer 1"], self.spoiled("bert", lambda _, weights: weights["bert.encoder.layer.1.output.dense.bias"].fill_(float("inf"))), **ON_HOST)
        self.refused("nan", 65, ["the head"], self.spoiled("bert", lambda _, weights: weights["classifier.bias"].fill_(float("nan"))))
        self.refused("nan-layer", 65, ["layer 1"], self.spoiled("bert", lambda _, weights: weights["bert.encoder.layer.1.output.dense.bias"].fill_(float("inf"))))
        text = self.world.text
        try:
            for task in ("teacher_logits", "generate"):
                self.world.text = text.split("    max_length")[0].replace("task: score", f"task: {task}")
                self.refused(task, 78, ["is a classifier of 3 labels", "task: score"], bert)
            self.world.text = text.split("    max_length")[0].replace("task: score", "task: train")
            self.refused("train", 78, ["is a classifier of 3 labels"], bert)
        finally:
            self.world.text = text

    def test_old_files(self):
        """Buffers of positions that older files keep are no weights."""
        folder = self.spoiled("bert", lambda _, weights: weights.update({"bert.embeddings.position_ids": torch.arange(200).unsqueeze(0)}))
        numpy.testing.assert_allclose(self.values("old", folder.name), self.expected(self.models["bert"], self.ids("bert")), atol=1e-5)
        # RoBERTa's keep the pooler of the model that was trained first, which the head of labels does not read.
        folder = self.spoiled("roberta", lambda _, weights: weights.update({"roberta.pooler.dense.weight": torch.ones(48, 48),
                                                                            "roberta.pooler.dense.bias": torch.ones(48)}))
        numpy.testing.assert_allclose(self.values("old-roberta", folder.name), self.expected(self.models["roberta"], self.ids("roberta")), atol=1e-5)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
