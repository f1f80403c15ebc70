"""Every C++ file is as clang-format of the pinned version writes it (.clang-format): `scripts/format.sh` formats them."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])


def main():
    result = subprocess.run([ROOT / "scripts/format.sh", "--check"], capture_output=True, text=True, check=False)
    print(result.stdout[-4000:], result.stderr[-4000:])
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
