"""Error: what is wrong with a file or a call, in one line of the form `<problem> (<why it matters>); <what to do>`."""


class Error(Exception):
    """A file that cannot be read as results, or a call that makes no sense for this file."""


def printable(text, limit=120):
    """Foreign text for a message: without control characters, and not longer than `limit`."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return text if len(text) <= limit else text[:limit] + "..."


def fail(problem, why, advice):
    raise Error(f"{problem} ({why}); {advice}")
