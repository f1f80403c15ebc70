"""Counts the outcomes in a JUnit report of ctest and prints the closing line of scripts/test.sh, "N passed, N failed".

usage: count_tests.py REPORT.xml CTEST_STATUS. Exit status 0 only when something passed, nothing failed and ctest itself
returned 0. Tests that ctest could not start or that are disabled count as failed: a test that does not run shows nothing.
Tests that say themselves that they cannot run here, by the exit code that their SKIP_RETURN_CODE names (those of a GPU where there
is none), are listed as skipped and count as neither.
"""
import sys
import xml.etree.ElementTree


def skipped_itself(case):
    """ctest's word for a test that ran and ended with its SKIP_RETURN_CODE; one that it could not start has another message."""
    reason = case.find("skipped")
    return case.get("status") == "notrun" and reason is not None and reason.get("message", "").startswith("SKIP_RETURN_CODE=")


def count(path):
    """-> passed, failed. A report that is missing or cut off counts as nothing."""
    passed = failed = 0
    try:
        cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no report of the tests: {error}", file=sys.stderr)
        return 0, 0
    for case in cases:
        if case.get("status") == "run" and case.find("failure") is None and case.find("error") is None:
            passed += 1
        elif skipped_itself(case):
            print(f"skipped: {case.get('name')}")
        else:
            print(f"not passed: {case.get('name')} ({case.get('status')})")
            failed += 1
    return passed, failed


def main():
    passed, failed = count(sys.argv[1])
    ctest_status = int(sys.argv[2])
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(0 if passed > 0 and failed == 0 and ctest_status == 0 else 1)


if __name__ == "__main__":
    main()
