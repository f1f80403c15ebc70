"""Probes that many cases call (serve_cases.h): run_case() is subprocess.run() of one, but a probe is started once for all its cases, and each is a process
that it makes of itself. It takes 10 ms where a start with libtorch takes 300.
"""
import atexit
import os
import pathlib
import select
import shutil
import struct
import subprocess
import tempfile

servers = {}  # by program, folder and environment, of which libraries read some at their start


def server_of(program, environment):
    key = program, os.getcwd(), frozenset(environment.items())
    if key not in servers:
        servers[key] = subprocess.Popen([program, "--cases"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        atexit.register(servers[key].stdin.close)
    return servers[key]


def run_case(command, input=None, text=False, check=False, timeout=1200, env=os.environ):
    """-> CompletedProcess with both outputs."""
    program, *arguments = map(os.fspath, command)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="probe"))
    try:
        given, *got = (folder / name for name in ("in", "out", "err"))
        given.write_bytes((input or "").encode() if text else input or b"")
        for path in got:
            path.touch()
        texts = [os.fsencode(part) for part in (given, *got, *arguments)]
        server = server_of(program, env)
        server.stdin.write(struct.pack("I", len(texts)) + b"".join(struct.pack("I", len(part)) + part for part in texts))
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            server.kill()  # and with it the case
            raise subprocess.TimeoutExpired(command, timeout)
        status = os.waitstatus_to_exitcode(struct.unpack("i", server.stdout.read(4))[0])
        done = subprocess.CompletedProcess(command, status, *(path.read_text(encoding="utf-8") if text else path.read_bytes() for path in got))
    finally:
        shutil.rmtree(folder)
    if check:
        done.check_returncode()
    return done
