"""README.md, src/README.md and the other docs name only what is there: links, the tree, files in the map, keys.

A doc that names a file that was moved, or a map without a file that exists, fails here in the commit that moved it.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts"))
from check_layers import MODULES  # noqa: E402


def docs_below(folder):
    """Not in what builds and runs make, where folders come and go while other tests run."""
    for path in folder.iterdir():
        if path.name.startswith((".", "build", "runs")):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from docs_below(path)
        elif path.suffix == ".md":
            yield path


DOCS = sorted(docs_below(ROOT))

KEY_PAGES = [ROOT / "configs/README.md", *sorted((ROOT / "configs/keys").glob("*.md"))]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


class Docs(unittest.TestCase):
    def test_there_are_docs(self):
        names = {str(path.relative_to(ROOT)) for path in DOCS}
        self.assertLessEqual({"README.md", "CHANGELOG.md", "src/README.md", "configs/README.md", "configs/keys/train.md", "jobs/README.md"}, names)

    def test_names_in_summaries_stand_in_a_page(self):
        """What a task writes into its JSON beside the results is explained where its keys are."""
        for task in ("judge", "evaluate"):
            page = text_of(f"configs/keys/{task}.md")
            source = text_of(f"src/tasks/{task}/summary.cpp") + (text_of("src/tasks/judge/report.cpp") if task == "judge" else "")
            names = set(re.findall(r'\w\["([a-z]\w*)"\]', source)) | set(re.findall(r'\{"([a-z]\w*)",', source))
            self.assertGreater(len(names), 5)
            self.assertEqual(sorted(name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", page)), [], task)

    def test_columns_of_16_bit_floats_are_told(self):
        """Some libraries above HDF5 cannot read them: the page of results names every such dataset and who reads it."""
        said = re.search(r"## Results in other programs\n(.*?)\n## ", text_of("configs/guides/results.md"), re.DOTALL).group(1)
        sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.cpp")))
        headers = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/tasks").rglob("*.h")))
        path_of = dict(re.findall(r'\b(k\w+)\{\s*"(/[/\w]+)"', headers))
        stored = re.findall(r"columns\.push_back\((k\w+)\.spec[^;]*;\n[^\n]*type = ColumnType::kF16", sources)
        self.assertEqual(len(stored), sources.count("type = ColumnType::kF16"), "a column whose name this test does not read")
        columns = {path_of[name] for name in stored} | set(re.findall(r'"([/\w]+)",\s*ColumnType::kF16', sources))
        self.assertEqual(columns, {"/teacher/top_logprob", "logits_values"})
        self.assertEqual([name for name in sorted(columns) if f"`{name}`" not in said], [])
        self.assertIn('engine="h5netcdf"', said)
        self.assertNotIn("any HDF5 tool", text_of("README.md"))

    def test_what_is_not_there_is_said(self):
        """What other programs have and this one has not stands in a sentence of the page for those who come from them."""
        pages = {name: text_of(f"configs/guides/{name}.md") for name in ("exams", "service", "pita")}
        for name, missing in (("exams", ("points and sections", "variants", "Not measured")),
                              ("service", ("Users, priorities", "temperature", "free memory", "Alerts", "Prometheus", "container image", "FastAPI", "hyperparameters", "Federated", "TensorRT", "was not measured")),
                              ("pita", ("is not measured", "pipelines", "FSDP", "cannot be set", "were not measured"))):
            for words in missing:
                self.assertIn(words, pages[name], name)

    def test_links_lead_somewhere(self):
        """To a file that is there and, behind "#", to one of its headings, as GitHub names them."""
        for doc in DOCS:
            for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", doc.read_text(encoding="utf-8")):
                if re.match(r"[a-z]+:", target):
                    continue
                page = doc.parent / target if target else doc
                self.assertTrue(page.exists(), f"{doc.relative_to(ROOT)} links to {target}")
                if heading:
                    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
                    named = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
                    self.assertIn(heading, named, f"{doc.relative_to(ROOT)} links to {target}#{heading}")

    def test_changes_are_told_briefly(self):
        text = text_of("CHANGELOG.md")
        self.assertLessEqual(text.count("\n"), 60)
        self.assertEqual([line for line in text.splitlines() if len(line) > 100], [])

    def test_tables_of_keys_are_read_at_a_glance(self):
        """What a cell cannot hold is a paragraph below the table; it names a key of that table, or `magister help` would not find it."""
        for page in KEY_PAGES:
            text = page.read_text(encoding="utf-8")
            cells = [cell.strip() for line in text.splitlines() if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
            self.assertEqual([cell for cell in cells if len(cell) > 160], [], page.name)
            self.assertLessEqual(len(text.encode()), 10200, f"{page.name}: divide it, as train.md, or move detail to a guide")
            rows = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
            self.assertEqual([key for key in re.findall(r"^\*\*`([^`]+)`", text, re.MULTILINE) if f"\n**`{key}`**: " not in text or key not in rows], [], page.name)

    def test_keys_are_explained_in_plain_english(self):
        """CONTRIBUTING.md, Rules, Words: these are read twice."""
        private = r"\bstands? in\b(?! the)|\bby now\b|\bnobody's\b|\bspeaks? for\b|\bso many\b|\bas yet\b|\bbeside\b|\| of "
        for page in KEY_PAGES:
            found = [line for line in page.read_text(encoding="utf-8").splitlines() if re.search(private, line, re.IGNORECASE)]
            self.assertEqual(found, [], page.name)

    def test_readme_is_read_in_five_minutes(self):
        text = text_of("README.md")
        self.assertLessEqual(text.count("\n"), 120)
        self.assertLessEqual(len(text.encode()), 8000)

    def test_tree(self):
        """Every top-level entry of the repository stands in the tree, and every path of the tree exists."""
        tree = re.search(r"```tree\n(.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL)
        self.assertIsNotNone(tree, "CONTRIBUTING.md has no ```tree block")
        named = [line.split()[0].rstrip("/") for line in tree.group(1).splitlines() if line.strip()]
        for path in named:
            self.assertTrue((ROOT / path).exists(), f"the tree of CONTRIBUTING.md names {path}")
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False).stdout
        top = {line.split("/")[0] for line in listed.splitlines()}
        tops = {path.split("/")[0] for path in named}
        self.assertEqual({entry for entry in top if not entry.startswith(".")} - tops, set(), "missing in the tree of CONTRIBUTING.md")

    def test_map_is_a_map(self):
        """src/README.md names every module, in the layers' order, and stays short enough to be read."""
        text = text_of("src/README.md")
        named = re.findall(r"^\| \d+ \| `(\w+)`", text, re.MULTILINE)
        self.assertEqual(named, list(MODULES))
        self.assertLessEqual(text.count("\n"), 100)

    def test_files_in_docs_exist(self):
        for doc in DOCS:
            for name in re.findall(r"\b((?:configs|scripts|jobs|tests)/[\w./-]+\.(?:yaml|sh|py|sbatch|jsonl|txt|md))", doc.read_text(encoding="utf-8")):
                self.assertTrue((ROOT / name).exists(), f"{doc.relative_to(ROOT)} names {name}")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
