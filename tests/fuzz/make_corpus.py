"""Writes the kept corpus of the fuzz targets: small files of every kind that the readers take, by the programs that usually write them.

usage: make_corpus.py. Needs MAGISTER_BUILD_DIR with tests/io/results_probe for the results files. Files named found-* are inputs that
once broke a reader: they are never made here and stay.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from safetensors.torch import save
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from gguf import GGMLQuantizationType as Q

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
sys.path[:0] = [str(ROOT / "tests/oracle"), str(ROOT / "tests/text")]
RNG = np.random.default_rng(3)
BLOCK_BYTES = {kind: gguf.GGML_QUANT_SIZES[kind] for kind in (
    Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.MXFP4)}


def keep(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def written(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def vocabulary(writer, model):
    tokens = ["<unk>", "<s>", "</s>"] + [chr(33 + i) for i in range(40)] + ["th", "the", "\u2581", "\u2581t", "\u0120t"]
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types([2, 3, 3] + [1] * (len(tokens) - 3))
    if model == "gpt2":
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_merges(["t h", "th e"])
    else:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def gguf_files(folder):
    for architecture, model in (("llama", "gpt2"), ("qwen3", "llama"), ("gemma2", "t5"), ("command-r", "bert")):
        path = folder / "m.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        size = vocabulary(writer, model)
        for add, value in (("block_count", 1), ("context_length", 64), ("embedding_length", 8), ("feed_forward_length", 12), ("head_count", 2),
                           ("head_count_kv", 1), ("layer_norm_rms_eps", 1e-5), ("rope_freq_base", 1e4), ("rope_dimension_count", 4)):
            getattr(writer, f"add_{add}")(value)
        shapes = {"token_embd": (size, 8), "output_norm": (8,), "blk.0.attn_norm": (8,), "blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8),
                  "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8), "blk.0.ffn_norm": (8,), "blk.0.ffn_gate": (12, 8),
                  "blk.0.ffn_up": (12, 8), "blk.0.ffn_down": (8, 12)}
        for name, shape in shapes.items():
            writer.add_tensor(f"{name}.weight", RNG.standard_normal(shape).astype(np.float16 if len(shape) > 1 else np.float32))
        keep("gguf", f"{architecture}-{model}", written(writer, path))
    writer = gguf.GGUFWriter(folder / "types.gguf", "llama")
    writer.add_array("a.texts", ["a", "b"])
    writer.add_array("a.numbers", [1, -2])
    writer.add_array("a.fractions", [0.5])
    writer.add_custom_alignment(64)
    for kind, (elements, block_bytes) in BLOCK_BYTES.items():
        raw = RNG.integers(0, 256, (2, block_bytes * max(1, 32 // elements)), dtype=np.uint8)
        writer.add_tensor(kind.name, raw, raw_dtype=kind)
    keep("gguf", "types", written(writer, folder / "types.gguf"))


def safetensors_files():
    keep("safetensors", "plain", save({"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.bfloat16), "c": torch.zeros(0, 5), "d": torch.tensor(1.5),
                                       "e": torch.ones(3, 2, 2, dtype=torch.int8), "f": torch.ones(2, dtype=torch.float8_e4m3fn)}, {"format": "pt"}))
    keep("safetensors", "gptq", save({"m.qweight": torch.full((2, 8), 7, dtype=torch.int32), "m.qzeros": torch.zeros((2, 1), dtype=torch.int32),
                                      "m.scales": torch.ones((2, 8), dtype=torch.float16), "m.g_idx": torch.arange(16, dtype=torch.int32) // 8,
                                      "n.weight": torch.ones(8)}))


def configs():
    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
            "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": [1, 2], "tie_word_embeddings": False}
    keep("config_json", "llama", json.dumps({**base, "rope_theta": 5e5, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}))
    keep("config_json", "gemma3", json.dumps({**base, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 16,
         "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16, "sliding_window": 8, "rope_local_base_freq": 1e4, "rope_theta": 1e6,
         "layer_types": ["sliding_attention", "full_attention"]}))
    keep("config_json", "phi3", json.dumps({**base, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 64,
         "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}}))
    keep("config_json", "classifier", json.dumps({**base, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "bad", "1": "good"},
         "label2id": {"bad": 0, "good": 1}, "pad_token_id": 3}))
    keep("config_json", "olmo3", json.dumps({**base, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "sliding_window": 8,
         "layer_types": ["sliding_attention", "full_attention"], "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.1,
         "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 32}}))


def tokenizers():
    letters = {letter: number for number, letter in enumerate(["<unk>", "<s>", "</s>", *"abdeghlnoptu", "\u2581", "th", "the", "##e", "\u0120", "\u0120t"])}
    bpe = Tokenizer(models.BPE(letters, [("t", "h"), ("th", "e")], unk_token="<unk>", fuse_unk=True))
    bpe.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")])
    bpe.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    bpe.add_special_tokens(["<s>", "</s>"])
    keep("tokenizer_json", "bpe", bpe.to_str())
    level = Tokenizer(models.BPE(letters, [("t", "h")], ignore_merges=True))
    level.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(__import__("tokenizers").Regex(r"\p{N}{1,3}|\s+(?!\S)|\S+"), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits(True)])
    level.decoder = decoders.ByteLevel()
    level.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False)])
    keep("tokenizer_json", "byte-level", level.to_str())
    word = Tokenizer(models.WordPiece(letters, unk_token="<unk>"))
    word.normalizer = normalizers.BertNormalizer()
    word.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    word.decoder = decoders.WordPiece()
    word.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    keep("tokenizer_json", "wordpiece", word.to_str())
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581", -2.0), ("a", -1.5), ("th", -2.5), ("<0x41>", -9.0)], 0, True))
    unigram.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.NFD()])
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.WhitespaceSplit()])
    unigram.decoder = decoders.Metaspace()
    keep("tokenizer_json", "unigram", unigram.to_str())
    keep("tokenizer_json", "wordlevel", Tokenizer(models.WordLevel(letters, "<unk>")).to_str())


def named_tokens():
    token = {"content": "<x>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": True, "special": False}
    files = {"decoder": ({"added_tokens_decoder": {"7": token, "5": {"content": "the"}}, "eos_token": "<s>", "extra_special_tokens": {"image_token": "<i>"}}, {}, {}),
             "legacy": ({"pad_token": {"__type": "AddedToken"} | token, "additional_special_tokens": ["<y>", token], "tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True},
                        {"unk_token": "a", "extra_special_tokens": [{"content": "<z>"}]}, {"<x>": 9, "<w>": 4}),
             "refused": ({"fast_tokenizer_files": ["tokenizer.4.json"], "split_special_tokens": True}, {}, {})}
    for name, contents in files.items(): keep("tokens_beside", name, "\0".join(map(json.dumps, contents)))


def sentencepiece_files(folder):
    """By the package `sentencepiece`, which scripts/setup.sh does not install: without it these files stay as they are."""
    try:
        import sentencepiece
    except ModuleNotFoundError:
        print("no package sentencepiece: its files stay as they are")
        return
    (folder / "text").write_text("the plan of the unit holds the logits of a shard and the\nteacher reads the plan again 0123456789\n" * 4)
    (folder / "rules").write_text("41\t61\nFB01\t66 69\n2460\t31\n")
    for kind, options in {"unigram": {"byte_fallback": True}, "bpe": {"user_defined_symbols": ["<x>"]}, "char": {}, "word": {}}.items():
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / kind), vocab_size=300 if kind == "unigram" else 34, model_type=kind,
            hard_vocab_limit=False, minloglevel=2, normalization_rule_tsv=str(folder / "rules"), **options)
        keep("sentencepiece", kind, (folder / f"{kind}.model").read_bytes())


def templates():
    from chat_cases import EXPRESSIONS, STATEMENTS
    keep("chat_template", "chatml", "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    keep("chat_template", "tools", "{%- macro show(x, n=2) -%}{{ x | tojson(indent=n) }}{%- endmacro %}{% set ns = namespace(i=0) %}"
         "{% for t in tools or [] %}{{ show(t) }}{% set ns.i = ns.i + 1 %}{% else %}none{% endfor %}{% generation %}{{ messages[-1].content }}"
         "{% endgeneration %}{{ ns.i ~ loop }}{% filter upper %}a{% endfilter %}{% raw %}{{ x }}{% endraw %}{{ messages[1:][::-1] | length }}")
    keep("chat_template", "filters", "{{ [3,1,2] | sort(reverse=true) | map('string') | join(', ') }}{{ 'a %s' | format(1.5) }}{{ x | round(2) }}{{ d | dictsort }}"
         "{{ 'é' | upper | center(9) | replace('É', 'e') }}{{ '%5.2f|%x|%r' % (1.5, 255, 'q') }}{{ '{:>8,}'.format(1234567) }}{{ range(5) | batch(2, 0) | list }}"
         "{{ 'x y' | title | wordcount }}{{ d | items | list }}{{ messages | groupby('role') }}{{ 'abc'[::-1] }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 2 ** 10 }}")
    for number, line in enumerate(EXPRESSIONS.strip().split("\n")):
        keep("chat_template", f"expressions-{number:02}", "".join("{{ " + each + " }}" for each in line.split(" ## ")))
    for number, template in enumerate(STATEMENTS[::5]):
        keep("chat_template", f"statements-{number:02}", template)


def lines():
    keep("jsonl", "text", '{"id": "r1", "text": "Gr\\u00fc\\ud83d\\ude00 \\n x", "other": [1, {"a": null}]}')
    keep("jsonl", "path", '{"a": {"b": [{"c": "inside"}]}, "m": [{"k": 1}, {"k": "last"}], "text": ""}')
    keep("jsonl", "ids", '{"ids": [0, 1, 2147483647], "id": 17, "text": "t"}')
    keep("jsonl", "dotted", '{"a.b[0].c": "exact", "id": 1.5e3, "ids": []}')


def experiments():
    for path in sorted(ROOT.glob("configs/*.yaml")):
        keep("experiment", path.stem, "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")) + "\n")


def results(folder):
    probe = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "tests/io/results_probe"
    for name, options in (("teacher", ("samples=4", "k=2", "unit_tokens=20")), ("half", ("samples=3", "k=1", "half=1"))):
        path = folder / f"{name}.h5"
        subprocess.run([probe, "run", path, *options], check=True, capture_output=True)
        keep("results", name, path.read_bytes())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        gguf_files(pathlib.Path(scratch))
        results(pathlib.Path(scratch))
        sentencepiece_files(pathlib.Path(scratch))
    safetensors_files()
    configs()
    tokenizers()
    named_tokens()
    templates()
    lines()
    experiments()
    print(sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()), "bytes")
