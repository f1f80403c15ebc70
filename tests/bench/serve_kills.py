"""Kills the service again and again while clients submit jobs, and asks afterwards whether every job that was acknowledged is there once.

usage: serve_kills.py PROGRAM [--kills 50] [--clients 4] [--seconds 1]      prints a line; exit code 1 if a job is lost or doubled
Each start is killed with signal 9 at a random time after the first job that it acknowledged. Jobs are started
and end at once (the launcher is `true`). Every request has an Idempotency-Key; one whose answer was lost is repeated after the next start.
"""
import argparse
import collections
import http.client
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

EXPERIMENT = "name: {name}\nmodel: {{path: m}}\ntasks: [{{task: generate, dataset: {{path: x}}}}]\n"


class Client(threading.Thread):
    """Submits job after job; `acknowledged` maps a name to the id that the service answered."""

    def __init__(self, number, port, stop):
        super().__init__()
        self.number, self.port, self.stop, self.acknowledged, self.repeated = number, port, stop, {}, 0

    def run(self):
        for count in range(1_000_000):
            name = f"job-{self.number}-{count}"
            while not self.stop.is_set():
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=10)
                    connection.request("POST", "/v1/jobs", EXPERIMENT.format(name=name), {"Content-Type": "application/yaml", "Idempotency-Key": name})
                    reply = connection.getresponse()
                    body = json.loads(reply.read())
                    if reply.status == 201:
                        self.acknowledged[name] = body["id"]
                        break
                except (OSError, http.client.HTTPException, ValueError):
                    self.repeated += 1
                    time.sleep(0.2)
            if self.stop.is_set():
                return


def start(program, root, port):
    for _ in range(100):  # the port of the one that was killed may not be free at once
        service = subprocess.Popen([program, "serve", "--listen", f"127.0.0.1:{port}", "--root", root, "--launcher", "true"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if line := service.stdout.readline():
            return service, int(re.search(r":(\d+)/", line)[1])
        service.wait()
        time.sleep(0.1)
    sys.exit("the service does not start again")


def lost_and_doubled(root, acknowledged):
    with sqlite3.connect(f"{root}/jobs.sqlite") as database:
        rows = database.execute("SELECT id, name FROM jobs").fetchall()
    ids = dict(rows)
    lost = [name for name, number in acknowledged.items() if ids.get(number) != name]
    doubled = [name for name, count in collections.Counter(name for _, name in rows).items() if count > 1]
    return len(rows), lost, doubled


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1, help="a start serves at most so long after its first job")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        service, port = start(asked.program, root, 0)
        stop = threading.Event()
        clients = [Client(number, lambda: port, stop) for number in range(asked.clients)]
        for client in clients:
            client.start()
        for _ in range(asked.kills):
            acknowledged_before = sum(len(client.acknowledged) for client in clients)
            while sum(len(client.acknowledged) for client in clients) == acknowledged_before:
                time.sleep(0.01)
            time.sleep(random.uniform(0, asked.seconds))
            service.send_signal(signal.SIGKILL)
            service.wait()
            service, port = start(asked.program, root, port)
        before = sum(len(client.acknowledged) for client in clients)
        while sum(len(client.acknowledged) for client in clients) < before + asked.clients:  # it still serves
            time.sleep(0.1)
        stop.set()
        for client in clients:
            client.join()
        service.send_signal(signal.SIGINT)
        code = service.wait()
        acknowledged = {name: number for client in clients for name, number in client.acknowledged.items()}
        rows, lost, doubled = lost_and_doubled(root, acknowledged)
    print(f"{asked.kills} kills during submits of {asked.clients} clients: {len(acknowledged)} jobs acknowledged, {rows} in the queue, "
          f"{sum(client.repeated for client in clients)} requests repeated, {len(lost)} lost, {len(doubled)} doubled; exit code {code}")
    sys.exit(bool(lost or doubled))


if __name__ == "__main__":
    main()
