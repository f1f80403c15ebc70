"""Counts the outcomes in a JUnit report of ctest and prints the last line of scripts/test.sh, "N passed, N failed, N
skipped".

usage: count_tests.py REPORT.xml CTEST_STATUS. Exit status 0 only if something passed, nothing failed and ctest itself
returned 0. Tests that ctest could not start or that are disabled count as failed, because a test that does not run
proves nothing.
Skipped are tests and cases that say themselves that they cannot run here; each is printed with its reason. A whole test
is skipped by the exit code 77 (SKIP_RETURN_CODE), and a case inside a test that otherwise passed by the output of
GoogleTest or of Python's unittest. Such a test counts as passed, and its skipped cases as skipped.
"""
import re
import sys
import xml.etree.ElementTree

GOOGLETEST = re.compile(r"^\[  SKIPPED \] (\S+) \(", re.MULTILINE)
# The name of a test, or its description.
UNITTEST = re.compile(r"^(.*?)(?: \(__main__.*)? \.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)
# mpirun emulates a terminal; ctest writes the escape character this way.
COLOUR = re.compile(r"(?:\x1b|\[NON-XML-CHAR-0x1B\])\[[0-9;]*m")
UNITTEST_TOTAL = re.compile(r"^OK \(.*\bskipped=(\d+)", re.MULTILINE)


def skipped_itself(case):
    """True if a test ran and ended with its SKIP_RETURN_CODE, by ctest's message; a test that could not start has
    another one."""
    reason = case.find("skipped")
    return case.get("status") == "notrun" and reason is not None and reason.get("message", "").startswith("SKIP_RETURN_CODE=")


def reason_of(output):
    """The last line "skipped: ..." of a test that ended with 77."""
    lines = [line for line in output.splitlines() if line.startswith("skipped: ")]
    return lines[-1].removeprefix("skipped: ") if lines else "no reason given"


def skipped_cases(output):
    """-> a line for each case that a passed test skipped. Without -v unittest prints only their number."""
    told = GOOGLETEST.findall(output) + [f"{name}: {reason}" for name, reason in UNITTEST.findall(output)]
    total = sum(int(count) for count in UNITTEST_TOTAL.findall(output)) + len(GOOGLETEST.findall(output))
    return told + ["a case that is not named"] * (total - len(told))


def count(path):
    """-> passed, failed, skipped. A report that is missing or cut off counts as empty."""
    passed = failed = skipped = 0
    try:
        cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no report of the tests: {error}", file=sys.stderr)
        return 0, 0, 0
    for case in cases:
        name, output = case.get("name"), COLOUR.sub("", case.findtext("system-out") or "")
        if case.get("status") == "run" and case.find("failure") is None and case.find("error") is None:
            passed += 1
            for line in skipped_cases(output):
                print(f"skipped: {name}: {line}")
                skipped += 1
        elif skipped_itself(case):
            print(f"skipped: {name}: {reason_of(output)}")
            skipped += 1
        else:
            print(f"not passed: {name} ({case.get('status')})")
            failed += 1
    return passed, failed, skipped


def main():
    passed, failed, skipped = count(sys.argv[1])
    ctest_status = int(sys.argv[2])
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(0 if passed > 0 and failed == 0 and ctest_status == 0 else 1)


if __name__ == "__main__":
    main()
