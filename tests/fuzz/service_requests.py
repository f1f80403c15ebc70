"""Requests of every kind against the service, made by schemathesis from its OpenAPI document: thousands, and none may be answered with 5xx or with what the
document does not say.

usage: service_requests.py PROGRAM [--schemathesis schemathesis] [--examples 100] [--workers 1] [--seed 1]
schemathesis is not among the packages of the tests: python3 -m venv V && V/bin/pip install schemathesis==4.32.5. The service listens on this machine alone;
a job that a request submits names no model that is there, and ends at once.
"""
import argparse
import re
import signal
import subprocess
import sys
import tempfile

VERSION = "4.32.5"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--schemathesis", default="schemathesis")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1, help="more meet a fault of Python's ast in threads")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = subprocess.run([asked.schemathesis, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    if found != VERSION:
        sys.exit(f"service_requests.py: schemathesis is {found} (another version makes other requests); install {VERSION}")
    with tempfile.TemporaryDirectory() as root:
        service = subprocess.Popen([asked.program, "serve", "--listen", "127.0.0.1:0", "--root", root, "--launcher", "env"], stdout=subprocess.PIPE, text=True)
        port = int(re.search(r":(\d+)/", service.stdout.readline())[1])
        code = subprocess.run([asked.schemathesis, "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", CHECKS, "--max-examples", str(asked.examples),
                               "--workers", str(asked.workers), "--seed", str(asked.seed), "--request-timeout", "60", "--continue-on-failure", "--suppress-health-check", "all",
                               "--no-color"], check=False).returncode
        service.send_signal(signal.SIGINT)
        print(f"schemathesis ended with {code}, the service with {service.wait()}")
    sys.exit(code)


if __name__ == "__main__":
    main()
