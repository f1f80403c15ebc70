"""GGUF files written byte by byte, right or wrong as a test wants them (the `gguf` package would not write wrong ones)."""
import struct

ARCHITECTURE = ("general.architecture", 8, struct.pack("<Q", 5) + b"llama")


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(version=3, num_tensors=None, num_keys=None, keys=None, extra=(), tensors=(), data=b""):
    """keys, extra: (name, value type, value's bytes); tensors: (name, dimensions, type, offset)."""
    keys = [*([ARCHITECTURE] if keys is None else keys), *extra]
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    for name, kind, value in keys:
        out += text(name) + struct.pack("<I", kind) + value
    for name, dimensions, kind, offset in tensors:
        out += text(name) + struct.pack("<I", len(dimensions)) + struct.pack(f"<{len(dimensions)}Q", *dimensions) + struct.pack("<IQ", kind, offset)
    return out + b"\0" * (-len(out) % 32) + data
