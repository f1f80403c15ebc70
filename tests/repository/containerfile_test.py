"""The Containerfile by rules, since no machine of the tests has a container tool: those of hadolint that such a file can break, named by their numbers, and
what the bundle promises. Each rule is shown to find its fault."""
import json
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
FILE = ROOT / "scripts/container/Containerfile"


def instructions(text):
    """[(name, rest)], with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple((*line.split(None, 1), "")[:2]) for line in joined.splitlines() if line.strip()]


def faults(text):
    steps = instructions(text)
    named = lambda name: [rest for step, rest in steps if step == name]
    found = []
    for image in named("FROM"):
        if ":" not in image or image.endswith(":latest"):
            found.append("DL3006/DL3007: the base has no fixed version")
    for run in named("RUN"):
        if "apt-get install" in run and not ("apt-get update" in run and "--no-install-recommends" in run and "rm -rf /var/lib/apt/lists" in run):
            found.append("DL3009/DL3015: packages are installed with lists of another layer, with recommended ones, or the lists stay")
        if re.search(r"apt-get install(?!.*(--yes|-y\b))", run):
            found.append("DL3014: apt-get asks")
        if re.search(r"\bsudo\b", run):
            found.append("DL3004: sudo")
        if re.search(r"(curl|wget).*\|", run):
            found.append("DL4006: a script of the network is run")
        if "pip install" in run and not ("--no-cache-dir" in run and "--require-hashes" in run):
            found.append("DL3013/DL3042: packages of Python are not pinned, or cached")
        if re.search(r"\bcd\s", run):
            found.append("DL3003: cd instead of WORKDIR")
    for source in named("ADD"):
        if re.match(r"https?:", source) or not re.search(r"\.tar(\.\w+)?\s", source):
            found.append("DL3020: ADD of what is no archive")
    for name in ("ENTRYPOINT", "CMD"):
        for rest in named(name):
            try:
                json.loads(rest)
            except ValueError:
                found.append(f"DL3025: {name} is not in the form of JSON")
    users = named("USER")
    if not users or users[-1] in ("root", "0"):
        found.append("DL3002: the last user is root")
    for folder in named("WORKDIR"):
        if not folder.startswith("/"):
            found.append("DL3000: WORKDIR is relative")
    if any(re.search(r"(?i)(password|secret|token)\w*=", rest) for name in ("ENV", "ARG") for rest in named(name)):
        found.append("a secret is in the image")
    return found


class Containerfile(unittest.TestCase):
    def test_it_keeps_the_rules(self):
        self.assertEqual(faults(FILE.read_text()), [])

    def test_each_rule_finds_its_fault(self):
        text = FILE.read_text()
        for old, new, number in ((":12-slim", "", "DL3006"), (":12-slim", ":latest", "DL3007"), (" --no-install-recommends", "", "DL3015"), (" --yes", "", "DL3014"),
                                 ("    && rm -rf /var/lib/apt/lists/*", "    && true", "DL3009"), ("RUN useradd", "RUN sudo useradd", "DL3004"),
                                 ("RUN useradd", "RUN curl http://127.0.0.1/x | sh && useradd", "DL4006"), ("--require-hashes ", "", "DL3013"),
                                 ("RUN useradd", "RUN cd /opt && useradd", "DL3003"), ("ADD dist/gpu-bundle.tar.xz", "ADD dist/tokens", "DL3020"), ("USER 10001", "USER root", "DL3002"),
                                 ("WORKDIR /work", "WORKDIR work", "DL3000"), ("ENV MAGISTER_PYTHON", "ENV API_TOKEN=1 MAGISTER_PYTHON", "secret"),
                                 ('ENTRYPOINT ["/opt/gpu-bundle/bin/magister"]', "ENTRYPOINT /opt/gpu-bundle/bin/magister", "DL3025")):
            self.assertEqual(text.count(old), 1, old)
            self.assertTrue(any(number in fault for fault in faults(text.replace(old, new))), (old, new))

    def test_what_it_takes_exists(self):
        text, bundle = FILE.read_text(), (ROOT / "scripts/bundle.sh").read_text()
        for rest in [rest for step, rest in instructions(text) if step == "COPY"]:
            for source in rest.split()[:-1]:
                self.assertTrue((ROOT / source).exists(), source)
        archive = re.search(r"^ADD (\S+) /opt/$", text, re.MULTILINE)[1]
        self.assertIn(f"target=${{1:-{archive.removesuffix('.tar.xz')}}}", bundle)
        for program in re.findall(r"/opt/gpu-bundle/bin/(\w+)", text):
            self.assertTrue((ROOT / "scripts/bundle" / program).exists(), program)
        self.assertIn("${MAGISTER_PYTHON:-python3}", (ROOT / "scripts/bundle/environment.sh").read_text())
        torch = re.search(r"^torch==\S+", (ROOT / "scripts/requirements/run.txt").read_text(), re.MULTILINE)
        self.assertIsNotNone(torch)
        command = json.loads(next(rest for step, rest in instructions(text) if step == "CMD"))
        self.assertIn("--tokens", command)  # what listens to the network asks for a token


if __name__ == "__main__":
    unittest.main()
