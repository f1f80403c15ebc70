"""The gguf package's reader, and transformers' upon it, over bytes in memory: every slice of the numpy.memmap that it makes costs microseconds, and a
vocabulary takes millions.
"""
import unittest.mock

import gguf
import numpy


def in_memory():
    return unittest.mock.patch("numpy.memmap", lambda path, mode, dtype=numpy.uint8: numpy.fromfile(path, dtype))


def read_gguf(path):
    with in_memory():
        return gguf.GGUFReader(path)
