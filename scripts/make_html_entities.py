"""Writes src/text/jinja/html_entities.inc: the named characters of HTML 5, from Python's html.entities.

usage: make_html_entities.py > src/text/jinja/html_entities.inc
"""
import html.entities


def literal(text):
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def main():
    print("// Made by scripts/make_html_entities.py from Python's html.entities: {name without &, text}, in the order of bytes.\n")
    print("constexpr HtmlEntity kHtmlEntities[] = {")
    line = "   "
    for name, text in sorted(html.entities.html5.items()):
        entry = f' {{"{name}", "{literal(text)}"}},'
        if len(line) + len(entry) > 140:
            print(line)
            line = "   "
        line += entry
    print(line)
    print("};")


if __name__ == "__main__":
    main()
