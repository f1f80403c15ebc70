"""A GGUF file that holds a small SentencePiece vocabulary and nothing else, for gguf_vocab_test.py and record_llama_cpp_ends.py."""
import gguf


def write(path, tokens, keys):
    """tokens: (text, type) of those behind <unk>, <s> and "▁a"; keys: tokenizer.ggml.<key> -> id."""
    all_tokens = [("<unk>", 2), ("<s>", 3), ("▁a", 1), *tokens]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(len(all_tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in all_tokens])
    writer.add_token_scores([-float(i) for i in range(len(all_tokens))])
    writer.add_token_types([kind for _, kind in all_tokens])
    for key, value in keys.items():
        writer.add_uint32(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
