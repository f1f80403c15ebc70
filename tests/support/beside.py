"""unittest.main() for cases that wait most of their time, for limits and other programs: several run beside each other, in threads. They share their class's
setUpClass and nothing else.
"""
import concurrent.futures
import io
import sys
import unittest


def cases_of(suite):
    for part in suite:
        yield from cases_of(part) if isinstance(part, unittest.TestSuite) else [part]


def run_case(case):
    """-> whether it passed; what it says comes in one piece."""
    stream = io.StringIO()
    result = unittest.TextTestRunner(stream, verbosity=2).run(case)
    sys.stderr.write(stream.getvalue())
    return result.wasSuccessful()


def main(at_once, module="__main__"):
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    load = unittest.defaultTestLoader
    classes = {}
    for case in cases_of(load.loadTestsFromNames(names, sys.modules[module]) if names else load.loadTestsFromModule(sys.modules[module])):
        classes.setdefault(type(case), []).append(case)
    passed = []
    for group, cases in classes.items():
        try:
            group.setUpClass()
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                passed += pool.map(run_case, cases)
            group.tearDownClass()
        finally:
            group.doClassCleanups()
    print(f"Ran {len(passed)} tests, {passed.count(False)} failed", file=sys.stderr)
    sys.exit(0 if passed and all(passed) and not any(group.tearDown_exceptions for group in classes) else 1)
