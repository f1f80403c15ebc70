"""An exam's page in headless Chromium: nothing in the console, every question and choice shown as it was written, each view shows and
prints what it should, no question is divided between two pages, and items that are written from right to left are laid out so.

Skipped where Chromium is not installed (Debian: apt-get install chromium). With --picture FILE.png it writes the picture of the guide instead."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import chromium
from exam_exports_test import PROBE, exam_of_traps, expected

HERE = pathlib.Path(__file__).resolve().parent
SHEET = json.loads((HERE / "exam_sheet.json").read_text(encoding="utf-8"))
VIEWS = ("questions", "with-key", "solutions", "both")
HEBREW = {"id": "he", "kind": "choice", "stem": "איזה תהליך הופך מים לאדים?", "key": 1, "explanation": "", "objective_number": "9.1", "objective_text": "מחזור המים",
          "choices": [{"text": text, "explanation": ""} for text in ("עיבוי (condensation)", "אידוי", "שקיעה")]}
VISIBLE = """[...document.querySelectorAll(SELECTOR)].map(node => { const box = node.getBoundingClientRect();
  return {text: node.textContent, shown: box.width > 0 && box.height > 0 && node.checkVisibility({opacityProperty: true, visibilityProperty: true}),
          left: box.left, right: box.right, top: box.top}; })"""


def write_page(exam, folder):
    subprocess.run([PROBE, folder, "html"], input=json.dumps(exam), text=True, check=True, capture_output=True)
    return folder / "exam.html"


def colours(browser):
    """Contrast of text on the page, by WCAG 2."""
    def light(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        return sum(weight * (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4) for weight, c in zip((0.2126, 0.7152, 0.0722), parts))

    ground, ink, soft = browser.value("""['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])
      .concat(getComputedStyle(document.querySelector('h2')).color)""")
    ratios = [(max(light(ground), light(one)) + 0.05) / (min(light(ground), light(one)) + 0.05) for one in (ink, soft)]
    return light(ground), ratios


@unittest.skipIf(chromium.PROGRAM is None, "Chromium is not installed")
class ExamPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.browser = cls.enterClassContext(chromium.Chromium())

    def open(self, exam):
        self.browser.media()
        self.browser.width(1000)
        self.browser.open(write_page(exam, pathlib.Path(self.scratch.name)))
        self.assertEqual(self.browser.complaints(), [])

    def boxes(self, selector):
        return self.browser.value(VISIBLE.replace("SELECTOR", json.dumps(selector)))

    def choose(self, view):
        self.browser.value(f"document.querySelector('label[for={view}]').click()")

    def pages(self):
        """Words of each printed page."""
        path = pathlib.Path(self.scratch.name) / "exam.pdf"
        path.write_bytes(self.browser.pdf())
        text = subprocess.run(["pdftotext", "-enc", "UTF-8", path, "-"], capture_output=True, text=True, check=True).stdout
        return [" ".join(page.split()) for page in text.split("\f")[:-1]]

    def test_all_items_are_shown_as_written(self):
        exam = exam_of_traps()
        self.open(exam)
        written = [expected(text) for item in exam["items"] for text in [item["stem"], *(choice["text"] for choice in item.get("choices", []))]]
        for width in (1000, 380):
            self.browser.width(width)
            shown = self.boxes(".question .text")
            self.assertEqual([box["text"] for box in shown], written)
            self.assertTrue(all(box["shown"] and box["left"] >= 0 and box["right"] <= width for box in shown), "every text is inside the page")
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width, "nothing must be scrolled sideways")
        self.assertEqual(self.browser.complaints(), [])

    def test_each_view_shows_its_parts(self):
        self.open(SHEET)
        shows = {"questions": (True, False, False), "with-key": (True, False, True), "solutions": (False, True, False), "both": (True, True, False)}
        for view in VIEWS:
            self.choose(view)
            for selector, wanted in zip((".question .text", ".solution .answer", ".key li"), shows[view], strict=True):
                boxes = self.boxes(selector)
                self.assertGreaterEqual(len(boxes), len(SHEET["items"]))
                self.assertEqual({box["shown"] for box in boxes}, {wanted}, f"{view}: {selector}")
        self.choose("with-key")
        self.assertEqual([box["text"] for box in self.boxes(".key li")], ["1B", "250 ± 5", "3B", "4water table / the water table", "5B", "6A"])

    def test_light_dark_and_paper(self):
        self.open(SHEET)
        for scheme, is_dark in (("light", False), ("dark", True)):
            self.browser.media(prefers_color_scheme=scheme)
            ground, (ink, soft) = colours(self.browser)
            self.assertEqual(ground < 0.2, is_dark)
            self.assertGreater(ink, 7)
            self.assertGreater(soft, 4.5)
        self.browser.media("print", prefers_color_scheme="dark")
        self.assertGreater(colours(self.browser)[0], 0.99, "paper is white")

    def test_text_from_right_to_left(self):
        self.open({"title": "מים", "items": [HEBREW, dict(SHEET["items"][0], objective_number="9.2")]})
        number, _ = self.boxes(".number")
        stem, *choices = self.boxes(".question .text")[:4]
        letters = self.boxes(".question .letter")
        self.assertGreater(number["left"], stem["right"] - 1)
        for letter, choice in zip(letters, choices):
            self.assertGreater(letter["left"], choice["right"] - 1)
        self.assertLess(letters[3]["right"], self.boxes(".question .text")[5]["left"] + 1, "the English item goes from left to right")

    @unittest.skipIf(shutil.which("pdftotext") is None, "pdftotext is not installed")
    def test_printed_pages(self):
        items = [dict(item, id=f"{item['id']}-{copy}", stem=f"Nr{copy}x{i} {item['stem']}") for copy in range(4) for i, item in enumerate(SHEET["items"])]
        for item in items:
            if item["kind"] == "choice":
                item["choices"] = [*item["choices"][:3], {"text": f"Last {item['stem'].split()[0]}", "explanation": ""}]
        self.open(dict(SHEET, items=items))
        pages = self.pages()
        self.assertGreater(len(pages), 2)
        for item in items:
            stem = " ".join(item["stem"].split())
            on = [page for page in pages if stem in page]
            self.assertEqual(len(on), 1, f"a stem is divided or missing: {stem}")
            if item["kind"] == "choice":
                self.assertIn(f"Last {stem.split()[0]}", on[0], "a question is divided between two pages")
        self.assertTrue(all(re.search(rf"\b{n} ?/ ?{len(pages)}\b", page) for n, page in enumerate(pages, 1)), "pages are numbered")
        whole = " ".join(pages)
        self.assertNotIn("water table / the water table", whole)
        self.assertNotIn("Questions with solutions", whole, "buttons are not printed")
        self.choose("with-key")
        with_key = self.pages()
        self.assertEqual(len(with_key), len(pages) + 1)
        self.assertNotIn("Nr", with_key[-1])
        self.assertRegex(with_key[-1], "^Key")
        self.choose("both")
        self.assertIn("One tenth of the vapour comes from transpiration.", " ".join(self.pages()))


def draw(path):
    """The picture of the guide: the first questions of the sheet, 800 pixels wide."""
    with tempfile.TemporaryDirectory() as folder, chromium.Chromium() as browser:
        browser.width(800, 1110)
        browser.open(write_page(SHEET, pathlib.Path(folder)))
        browser.value("document.documentElement.style.scrollbarWidth = 'none'")
        pathlib.Path(path).write_bytes(browser.screenshot(False))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--picture"]:
        draw(sys.argv[2])
    else:
        unittest.main(verbosity=2)
