"""llama.cpp as a peer: built once for this machine from the sources in the llama-cpp-python package, then run
through llama-bench (prompt processing) and llama-perplexity --kl-divergence-base (it stores the log-probabilities of
a text).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

PACKAGE = "llama-cpp-python==0.3.36"
TOOLS = ("llama-bench", "llama-perplexity", "llama-quantize")
KINDS = ("F32", "F16", "Q8_0")
WINDOW = 512
ROWS_KEPT = WINDOW - 1 - WINDOW // 2  # llama-perplexity scores the second half of a window


AVX2 = ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")), "-DCMAKE_C_FLAGS=-mtune=native",
        "-DCMAKE_CXX_FLAGS=-mtune=native")


def build(folder, jobs=None, avx2=False):
    """Builds the tools into folder/build/bin, for this CPU or without its AVX-512. About 15 minutes on two cores; does nothing if
    they exist."""
    binaries = folder / "build/bin"
    if all((binaries / tool).exists() for tool in TOOLS):
        return binaries
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tar.gz")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(folder), PACKAGE], check=True)
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as package:
        package.extractall(folder, filter="data")
    source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    subprocess.run(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(folder / "build"), "-DCMAKE_BUILD_TYPE=Release",
                    *(AVX2 if avx2 else ("-DGGML_NATIVE=ON",)), "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
                    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF",
                    "-DLLAMA_BUILD_TOOLS=ON"], check=True)
    subprocess.run(["nice", "-n", "19", "cmake", "--build", str(folder / "build"), "--parallel", str(jobs or os.cpu_count()),
                    "--target", *TOOLS], check=True)
    return binaries


class LlamaCpp:
    def __init__(self, folder, model, core, pinned, avx2=False):
        self.binaries, self.model, self.core, self.pinned = build(folder, avx2=avx2), model, core, pinned
        self.models = {}
        for kind in KINDS:
            self.models[kind] = folder / f"model-{kind}.gguf"
            if not self.models[kind].exists():
                subprocess.run([str(self.binaries / "llama-quantize"), "--allow-requantize", "--pure", str(model), str(self.models[kind]), kind],
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.text = folder / "text.txt"
        records = (pathlib.Path(__file__).resolve().parents[2] / "configs/data/quickstart.jsonl").read_text(encoding="utf-8")
        self.text.write_text("\n\n".join(json.loads(line)["text"] for line in records.splitlines()), encoding="utf-8")

    def bench(self, kind, tokens):
        """Tokens per second of prompt processing."""
        output, _ = self.pinned(self.core, [self.binaries / "llama-bench", "-m", self.models[kind], "-p", tokens, "-n", 0, "-t", 1,
                                            "-r", 3, "-o", "json"])
        return json.loads(output)[0]["avg_ts"]

    def decode(self, kind, tokens):
        """Tokens per second of one text; "Q4_1" is the model's own file."""
        output, _ = self.pinned(self.core, [self.binaries / "llama-bench", "-m", self.models.get(kind, self.model), "-p", 0, "-n", tokens, "-t", 1,
                                            "-r", 3, "-o", "json"])
        return json.loads(output)[0]["avg_ts"]

    def scored_rows(self):
        """Rows of log-probabilities stored per second, F32, from the time of one window."""
        kept = self.text.with_name("kept.kld")
        output, messages = self.pinned(self.core, [self.binaries / "llama-perplexity", "-m", self.models["F32"], "-f", self.text, "-c", WINDOW,
                                                   "-b", WINDOW, "-t", 1, "--chunks", 4, "--kl-divergence-base", kept])
        kept.unlink()
        seconds = float(re.search(r"([\d.]+) seconds per pass", output + messages).group(1))
        return ROWS_KEPT / seconds


if __name__ == "__main__":
    print(build(pathlib.Path(__file__).resolve().parents[2] / ".deps/llama.cpp", int(sys.argv[1]) if len(sys.argv) > 1 else None))
