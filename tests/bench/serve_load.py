"""The service under load: so many clients that each ask GET /v1/jobs again and again over a connection of its own.

usage: serve_load.py PROGRAM [--clients 200] [--seconds 60] [--pause 0.5] [--jobs 1000] [--queued]      prints a line: requests, their times, the service's memory
Jobs are put into the database directly, all done. With --queued they wait, the service starts them one after the other (as `true`, which ends at once) while the
clients ask, and is killed with signal 9 at the end: every job must be there. Only addresses of this machine are used.
"""
import argparse
import asyncio
import pathlib
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time

REQUEST = b"GET /v1/jobs?limit=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def client(port, until, pause, times, faults):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        begun = time.perf_counter()
        writer.write(REQUEST)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        await reader.readexactly(int(re.search(r"Content-Length: (\d+)", head)[1]))
        times.append(time.perf_counter() - begun)
        if not head.startswith("HTTP/1.1 200"):
            faults.append(head.split("\r\n")[0])
        await asyncio.sleep(random.uniform(0, 2 * pause))  # else all ask at once
    writer.close()


async def load(port, clients, seconds, pause):
    times, faults = [], []
    until = time.monotonic() + seconds
    await asyncio.gather(*(client(port, until, pause, times, faults) for _ in range(clients)))
    return times, faults


def resident_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def start(program, root):
    service = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--root", root, "--launcher", "true"], stdout=subprocess.PIPE, text=True)
    return service, int(re.search(r":(\d+)/", service.stdout.readline())[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between an answer and the next request of a client")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--queued", action="store_true", help="the jobs wait")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        service, port = start(asked.program, root)
        service.send_signal(signal.SIGINT)
        service.wait()
        with sqlite3.connect(f"{root}/jobs.sqlite") as database:
            database.executemany("INSERT INTO jobs (name, owner, experiment, state, created) VALUES (?, '', 'name: x', ?, 0)",
                                 ((f"job-{i}", "queued" if asked.queued else "done") for i in range(asked.jobs)))
        service, port = start(asked.program, root)
        before = resident_mb(service.pid)
        times, faults = asyncio.run(load(port, asked.clients, asked.seconds, asked.pause))
        after = resident_mb(service.pid)
        service.send_signal(signal.SIGKILL if asked.queued else signal.SIGINT)
        code = service.wait()
        with sqlite3.connect(f"{root}/jobs.sqlite") as database:
            states = dict(database.execute("SELECT state, count(*) FROM jobs GROUP BY state"))
    cuts = statistics.quantiles(times, n=100)
    print(f"{len(times)} requests of {asked.clients} clients (pauses of {asked.pause} s in the mean) in {asked.seconds:.0f} s, {len(faults)} refused: median {1e3 * cuts[49]:.1f} ms, "
          f"p99 {1e3 * cuts[98]:.1f} ms, slowest {1e3 * max(times):.1f} ms; resident {before:.0f} MB before, {after:.0f} MB after; jobs {states}; exit code {code}")


if __name__ == "__main__":
    main()
