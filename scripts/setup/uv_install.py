"""`uv pip install` as pip is configured here (pip.conf, PIP_*): index, links, proxy, certificates, cache. usage: uv_install.py ARGUMENT...

Ends with status 3 before anything is fetched where pip's configuration holds what has no counterpart here. Addresses can hold passwords, so
all goes through the environment.
"""
import ast
import os
import pathlib
import subprocess
import sys

BIN = pathlib.Path(sys.prefix) / "bin"
# How pip talks, and what the command line says anyway.
NO_MATTER = {"config-file", "disable-pip-version-check", "no-input", "no-color", "progress-bar", "quiet", "verbose", "log",
             "root-user-action", "require-virtualenv", "break-system-packages", "no-compile", "compile", "no-warn-script-location",
             "prefer-binary", "only-binary", "no-deps", "require-hashes", "no-python-version-warning", "use-feature", "exists-action",
             "retries"}


def pip_configuration():
    """-> {option: value} of `pip install`: of files, then of the section install, then of the environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    found = {}
    for wanted in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(wanted):
                found[name[len(wanted):].replace("_", "-")] = ast.literal_eval(value)
    return {name: value for name, value in found.items() if value}


def is_true(value):
    return value.strip().lower() in ("1", "true", "yes", "on", "y", "t")


def places(value):
    """Links without the folders that are not there: pip passes over them, uv would fail."""
    return [place for place in value.split() if "://" in place or pathlib.Path(place).exists()]


def as_uv_says(options):
    """-> (variables of uv, its arguments, options of pip that it has none for)"""
    variables, arguments, unknown = {"UV_INDEX_STRATEGY": "unsafe-best-match"}, [], []  # pip looks in every index, too
    for name, value in options.items():
        if name == "index-url":
            variables["UV_DEFAULT_INDEX"] = value
        elif name == "extra-index-url":
            variables["UV_INDEX"] = " ".join(value.split())
        elif name == "find-links":
            variables["UV_FIND_LINKS"] = ",".join(places(value))
        elif name == "trusted-host":
            variables["UV_INSECURE_HOST"] = " ".join(value.split())
        elif name == "cache-dir":
            variables["UV_CACHE_DIR"] = str(pathlib.Path(value).expanduser() / "uv")
        elif name == "proxy":
            variables.update({"HTTP_PROXY": value, "HTTPS_PROXY": value})
        elif name in ("timeout", "default-timeout"):
            variables["UV_HTTP_TIMEOUT"] = value
        elif name == "cert":
            arguments += ["--cert", value]
        elif name in ("no-index", "no-cache-dir"):
            arguments += [f"--{name.removesuffix('-dir')}"] if is_true(value) else []
        elif name not in NO_MATTER:
            unknown.append(name)
    return variables, arguments if "--cert" in arguments else [*arguments, "--system-certs"], unknown


def main():
    variables, arguments, unknown = as_uv_says(pip_configuration())
    if unknown:
        print(f"pip is configured with {', '.join(sorted(unknown))}")
        sys.exit(3)
    os.environ.update(variables)
    os.execv(BIN / "uv", ["uv", "pip", "install", "--python", sys.executable, "--no-python-downloads", "--no-progress", "--color", "never",
                          *arguments, *sys.argv[1:]])


if __name__ == "__main__":
    main()
