"""Stub."""


def build(work, tiny):
    return "no recorder yet"
