"""A Llama that writes behind each token the one that a table says, whatever came before: its only layer adds nothing, and its embeddings are one-hot. For
tests that need to know what a model will write.
"""
import shutil

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def make_chain_model(folder, like, rows, after):
    """like: a model's folder, whose tokenizer it gets. after: token -> the next one."""
    shutil.copytree(like, folder)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=rows, hidden_size=rows, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4,
                                         num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=False))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if "norm" in name else 0.0)
        model.model.embed_tokens.weight.copy_(torch.eye(rows))
        for before, then in after.items():
            model.lm_head.weight[then, before] = 1.0
    model.save_pretrained(folder)
    return folder
