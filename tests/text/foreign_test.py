"""Ids and texts against `tiktoken` (Llama 3, Qwen, cl100k, o200k) and `sentencepiece` (models of nine kinds, trained here) on some thousand lines; compare_foreign.py
has the long comparison."""
import sys
import unittest

import compare_foreign
import corpus

LINES = [*corpus.made(2500, 11), *corpus.HARD, *corpus.runs(500)]


class Foreign(unittest.TestCase):
    def test_tiktoken(self):
        self.assertEqual(compare_foreign.tiktoken_lists(LINES), 0)

    def test_sentencepiece(self):
        self.assertEqual(compare_foreign.trained_models(LINES), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
