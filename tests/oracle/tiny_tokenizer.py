"""A byte-level BPE tokenizer of an exact vocabulary size, trained on the text below, for tiny models in tests.

Made by the Python `tokenizers` package, saved as tokenizer.json (folders) or handed to a GGUF writer as lists.
"""
import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOS, EOS = "<|bos|>", "<|eos|>"
SMALLEST_VOCABULARY = 2 + 256  # the two special tokens and every byte

TEXT = """The river ran under the old bridge and past the mill, where the miller's daughter counted sacks of flour.
She wrote every number into a small book: twelve sacks on Monday, nine on Tuesday, and none on the day of the fair.
When the water was low the wheel stood still, and then she read, or drew the birds that came to drink at the weir.
A teacher from the town had lent her a book of mathematics; she liked the chapter on prime numbers best of all.
"Why are there so many of them?" she asked. "Because," he said, "whenever you think you have the last one, multiply
them all together and add one." She thought about that for a whole week, and then she wrote it down in her own words.
def is_prime(n): return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))
for number in range(100): print(number, is_prime(number), number * number)
"""


def make_tokenizer(vocab_size):
    """Tokenizer with exactly vocab_size tokens: ids 0 and 1 are BOS and EOS; what training does not fill is <|n|>."""
    if vocab_size < SMALLEST_VOCABULARY:
        raise ValueError(f"a vocabulary of {vocab_size} has no room for the {SMALLEST_VOCABULARY} tokens that are needed")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[BOS, EOS], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    missing = vocab_size - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|{n}|>" for n in range(missing)])
    assert tokenizer.get_vocab_size() == vocab_size
    return tokenizer


def save_tokenizer(tokenizer, folder):
    """tokenizer.json and the small file beside it that names the special tokens."""
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
             "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n", encoding="utf-8")


def gguf_lists(tokenizer):
    """(tokens by id, merges "a b", token types) as GGUF's gpt2 vocabularies hold them; type 1 normal, 3 control."""
    parsed = json.loads(tokenizer.to_str())
    special = {token["content"] for token in parsed["added_tokens"]}
    by_id = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    tokens = [token for token, _ in by_id]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in parsed["model"]["merges"]]
    return tokens, merges, [3 if token in special else 1 for token in tokens]
