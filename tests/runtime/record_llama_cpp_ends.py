"""Writes llama_cpp_ends.json: which tokens end a text in llama.cpp, of the vocabularies that its source carries and of small ones made here. Not part of CI, for it needs
a built llama.cpp: `pip install --no-deps xllamacpp==2026.10.11549`, whose one library exports llama.cpp's own functions.
usage: record_llama_cpp_ends.py LIBRARY.so VOCABULARIES > llama_cpp_ends.json
"""
import ctypes
import json
import pathlib
import sys
import tempfile

import small_vocabulary

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
ENDS = ["</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "[EOS]", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<end_of_utterance>", "[e~[", "<|eot_id|>",
        "<EOT>", "_<EOT>", "[EOT]", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>", "<|eom_id|>"]
FIM = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"]
OTHERS = ["<|fim_prefix|>", "<PRE>", "<|start|>", "<|message|>", "<|channel|>", "<|user|>", "<pad>", "<|pad|>", "<|END_OF_TURN_TOKEN|>", "<|plamo:eos|>", "</S>", "<|EOT|>", "unused</s>", "<|endofprompt|>",
          "<|assistant|>", "<|eos|>", "<|eog|>", "[/INST]", "<|end_of_turn|>", "<|repo|>", "<end>"]


def cases():
    """Texts and types of the tokens behind <unk>, <s> and an ordinary one, and keys by which ids they name."""
    for name in ENDS + FIM + OTHERS:
        for kind in (NORMAL, CONTROL, USER_DEFINED):
            yield [(name, kind)], {"eos_token_id": 1}
    together = (["<|end|>", "<|return|>", "<|call|>"], ["<|end|>", "<|return|>"], ["<|end|>", "<|call|>"], ["<|end|>", "<|calls|>", "<|flush|>"], ["<|end|>", "<|call|>", "<|flush|>"],
                ["<|end|>", "<|return|>", "<|calls|>"], ["<|end|>", "<|flush|>"], ["<|end|>", "<|return|>", "<|flush|>"], ["<eos>", "<turn|>", "<|tool_response>", "</s>"], ["<turn|>", "</s>"],
                ["<|plamo:eos|>", "</s>"], ENDS, ENDS[:16], ["<|im_end|>", "<|endoftext|>", "<|file_sep|>", "<|fim_pad|>", "<|repo_name|>"])
    for names in together:
        tokens = [(name, CONTROL) for name in names]
        for eos in range(1, 4 + min(3, len(names))):
            yield tokens, {"eos_token_id": eos}
    two = [("<a>", CONTROL), ("<b>", NORMAL), ("<|end|>", CONTROL)]
    for key in ("eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id", "fim_pre_token_id", "prefix_token_id", "unknown_token_id", "padding_token_id",
                "seperator_token_id"):
        for value in (3, 4, 5, 99):
            yield two, {"eos_token_id": 1, key: value}
    for key, name in (("fim_pad_token_id", "<|fim_pad|>"), ("fim_rep_token_id", "<reponame>"), ("fim_sep_token_id", "<|file_sep|>")):
        yield [(name, CONTROL), ("<a>", CONTROL)], {"eos_token_id": 1, key: 4}
        yield [(name, CONTROL), ("<a>", CONTROL)], {"eos_token_id": 1, key: 99}
    yield two, {}
    yield two, {"eos_token_id": 99}
    yield [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL)], {"eos_token_id": 4, "eot_token_id": 3}
    yield [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<a>", CONTROL)], {"eos_token_id": 4, "eot_token_id": 3, "eom_token_id": 5}


class Llama:
    class Parameters(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_ubyte * 128)]

    VOCABULARY_ONLY = 72  # where llama_model_params has it

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.llama_model_default_params.restype = self.Parameters
        for name, result, arguments in (("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, self.Parameters]), ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
                                        ("llama_vocab_is_eog", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int]), ("llama_vocab_n_tokens", ctypes.c_int, [ctypes.c_void_p]),
                                        ("llama_model_free", None, [ctypes.c_void_p])):
            getattr(self.library, name).restype, getattr(self.library, name).argtypes = result, arguments
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.library.llama_log_set(self.quiet, None)
        self.library.llama_backend_init()

    def ends(self, path):
        parameters = self.library.llama_model_default_params()
        parameters.bytes[self.VOCABULARY_ONLY] = 1
        model = self.library.llama_model_load_from_file(str(path).encode(), parameters)
        assert model, path
        vocabulary = self.library.llama_model_get_vocab(model)
        found = [i for i in range(self.library.llama_vocab_n_tokens(vocabulary)) if self.library.llama_vocab_is_eog(vocabulary, i)]
        self.library.llama_model_free(model)
        return found


def main():
    llama = Llama(sys.argv[1])
    listed = {path.stem.removeprefix("ggml-vocab-"): llama.ends(path) for path in sorted(pathlib.Path(sys.argv[2]).glob("*.gguf"))}
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for tokens, keys in cases():
            path = pathlib.Path(folder) / "vocabulary.gguf"
            small_vocabulary.write(path, tokens, keys)
            made.append({"tokens": tokens, "keys": keys, "ends": llama.ends(path)})
    lines = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in made)
    print('{\n "source": "llama_vocab_is_eog of llama.cpp as built into xllamacpp 2026.10.11549, by record_llama_cpp_ends.py",\n'
          f' "vocabularies": {json.dumps(listed)},\n "made": [\n  {lines}\n ]\n}}')


if __name__ == "__main__":
    main()
