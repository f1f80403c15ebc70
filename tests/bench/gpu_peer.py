#!/usr/bin/env python3
"""transformers + torch on the GPU as a peer that imports once: a process with the libraries loaded starts a child of
itself for every request, so that each request has its own CUDA context, model and memory peak, and the imports are
paid and counted once.

As a command it reads one request per line, {"what": NAME, "limit": SECONDS, ...}, and answers with one JSON object per
line: the numbers, or {"reason": why there are none}.
"""
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


# The libraries must not use the driver before a child does, since a process that has used it cannot be forked.
SETTINGS = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Peer:
    """The client. Starts the process at once, so that it imports while other things are prepared."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env={**os.environ, **SETTINGS})
        self.import_seconds = None

    def line(self, limit):
        """-> an object, or a text if none arrives in time or the peer has ended."""
        if not select.select([self.process.stdout], [], [], max(limit, 0.1))[0]:
            return f"the peer says nothing for {limit:.0f} s"
        text = self.process.stdout.readline()
        return json.loads(text) if text else f"the peer ended with {self.process.wait()}"

    def ready(self, limit=120):
        """-> None, or the reason why it does not answer. Call it before a measurement, since imports use the
        machine."""
        if self.import_seconds is None:
            said = self.line(limit)
            if isinstance(said, str):
                return said
            self.import_seconds = said["import_seconds"]
        return None

    def ask(self, what, limit, **request):
        """-> numbers, or a text with the reason why there are none."""
        begin = time.time()
        if problem := self.ready(limit):
            return problem
        left = limit - (time.time() - begin)
        try:
            self.process.stdin.write(json.dumps({"what": what, "limit": left, **request}) + "\n")
        except OSError as problem:
            return f"the peer has ended: {problem}"
        answer = self.line(left + 10)
        return answer if isinstance(answer, str) else answer.get("reason", answer)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def child(handlers, request, path):
    """Never returns. It has a process group of its own, so that a limit ends everything that it started."""
    os.setpgid(0, 0)
    try:
        answer = handlers[request["what"]](request)
    except Exception as problem:  # the check continues after any error
        traceback.print_exc()
        answer = {"reason": f"{type(problem).__name__}: {str(problem)[:250]}"}
    path.write_text(json.dumps(answer))
    sys.stderr.flush()
    os._exit(0)


def answered(handlers, request):
    with tempfile.TemporaryDirectory() as folder:
        path, end = pathlib.Path(folder) / "answer.json", time.time() + request["limit"]
        process = os.fork()
        if process == 0:
            child(handlers, request, path)
        while (found := os.waitpid(process, os.WNOHANG))[0] == 0:
            if time.time() > end:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return {"reason": f"timed out after {request['limit']:.0f} s"}
            time.sleep(0.01)
        return json.loads(path.read_text()) if path.exists() else {"reason": f"its process ended with {found[1]}"}


def answered_apart(request):
    """Answers in a separate process that imports for itself, for the case that the driver was used before the fork."""
    try:
        done = subprocess.run([sys.executable, __file__, "one"], input=json.dumps(request), capture_output=True, text=True, check=False, timeout=request["limit"])
    except subprocess.TimeoutExpired:
        return {"reason": f"timed out after {request['limit']:.0f} s"}
    return json.loads(done.stdout) if done.returncode == 0 else {"reason": done.stderr[-300:]}


def main():
    begin = time.time()
    import gpu_jobs_peer
    import gpu_train_peer
    handlers = {**gpu_train_peer.HANDLERS, **gpu_jobs_peer.HANDLERS}
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the libraries is no answer
    if sys.argv[1:] == ["one"]:
        request = json.load(sys.stdin)
        answers.write(json.dumps(handlers[request["what"]](request)))
        return
    answers.write(json.dumps({"import_seconds": time.time() - begin}) + "\n")
    for line in sys.stdin:
        request, began = json.loads(line), time.time()
        answer = answered(handlers, request)
        if re.search(r"CUDA.*(initiali[sz]|fork)", answer.get("reason", "")):
            answer = answered_apart({**request, "limit": max(request["limit"] - (time.time() - began), 1)})
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
