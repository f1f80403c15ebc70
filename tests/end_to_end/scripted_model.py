"""A model whose every reply is planted, for tests of what a task does with replies: a folder as Hugging Face saves it, and no hook in
the program. Its chat template reads the prompt and ends it with one token, the first rule's of those whose texts all stand in the
prompt; the layers add nothing, so the row after that token is what the rule plants. A written text is one token, too, which the end
token follows.
"""
import json

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END, LOW = "<|end|>", -60.0


def write_model(folder, rules, longer_by=0):
    """rules: [(texts that stand in the prompt, reply)]; a reply is a text that is written, or {token: logit} of a row, all other tokens
    having LOW. longer_by: tokens that nobody uses, so that the ids of two models differ. -> folder"""
    folder.mkdir(parents=True)
    visible = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), range(256)))
    written = list(dict.fromkeys(reply for _, reply in rules if isinstance(reply, str)))
    marks = [f"<|rule{i}|>" for i in range(len(rules))]
    shown = lambda text: "".join(piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text))
    names = [*(f"<|unused{i}|>" for i in range(longer_by)), *visible, *(shown(text) for text in written), *marks, END]
    ids = {name: i for i, name in enumerate(names)}
    assert len(ids) == len(names)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in (*marks, END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    width, heads, head_dim = -(-len(names) // 32) * 32, 2, 16
    rows = torch.full((len(names), len(names)), LOW)  # [token, token that follows]
    rows[:, ids[END]] = 0.0
    for name, (_, reply) in zip(marks, rules):
        planted = {shown(reply): 0.0} if isinstance(reply, str) else reply
        rows[ids[name]] = LOW
        for token, logit in planted.items():
            rows[ids[name], ids[token]] = logit
    weights = {"model.embed_tokens.weight": torch.eye(len(names), width), "model.norm.weight": torch.ones(width),
               # The norm makes sqrt(width) of the only number of an embedding that is not 0.
               "lm_head.weight": torch.cat([rows.T, torch.zeros(len(names), width - len(names))], 1).contiguous() / width ** 0.5}
    of_layer = {"self_attn.q_proj": (heads * head_dim, width), "self_attn.k_proj": (heads * head_dim, width), "self_attn.v_proj": (heads * head_dim, width),
                "self_attn.o_proj": (width, heads * head_dim), "mlp.gate_proj": (32, width), "mlp.up_proj": (32, width), "mlp.down_proj": (width, 32)}
    weights |= {f"model.layers.0.{name}.weight": torch.zeros(shape) for name, shape in of_layer.items()}
    weights |= {f"model.layers.0.{name}.weight": torch.ones(width) for name in ("input_layernorm", "post_attention_layernorm")}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": len(names), "hidden_size": width, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": head_dim, "hidden_act": "silu",
        "rms_norm_eps": 1e-12, "max_position_embeddings": 8192, "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": ids[END],
        "torch_dtype": "float32"}))
    quoted = lambda text: json.dumps(text, ensure_ascii=False)
    choice = "".join("{%- " + ("elif " if i else "if ") + " and ".join(f"{quoted(text)} in text" for text in texts) + f" -%}}{mark}"
                     for i, ((texts, _), mark) in enumerate(zip(rules, marks)))
    template = ("{%- set text = messages[0]['content'] ~ '\\n\\n' ~ messages[-1]['content'] -%}{{ text }}{{ '\\n' }}" + choice +
                "{%- else -%}{{ raise_exception('no rule for: ' ~ text) }}{%- endif -%}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": END}))
    return folder
