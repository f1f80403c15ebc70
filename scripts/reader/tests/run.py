"""Runs all tests of the reader in one process, which makes the files that they share once. usage: run.py [names of tests as unittest takes them]

    MAGISTER=build/magister MAGISTER_SOURCE_DIR=. .deps/venv/bin/python scripts/reader/tests/run.py reader_test.Slices

pytest runs the same files; without MAGISTER in the environment, tests that need files of the program are skipped.
"""
import importlib.util
import sys
import unittest

import program_files

if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        sys.exit(77)
    names = sys.argv[1:]
    tests = unittest.defaultTestLoader.loadTestsFromNames(names) if names else unittest.defaultTestLoader.discover(program_files.HERE, "*_test.py")
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful())
