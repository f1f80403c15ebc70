"""Every objective of a training is one file, src/tasks/train/objectives/<name>.cpp, and its loss is one function in src/train/objectives/ (`lm` and
`distill` share tokens.cpp). Other files of a training ask the objective, so that only objective_loss.cpp, which chooses the loss, tells two kinds apart.
"""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
KINDS = re.findall(r"^  k(\w+)", (ROOT / "include/magister/train/objective.h").read_text(), re.MULTILINE)


class Objectives(unittest.TestCase):
    def test_each_is_one_file(self):
        self.assertEqual(len(KINDS), 6)
        for kind in KINDS:
            text = (ROOT / f"src/tasks/train/objectives/{kind.lower()}.cpp").read_text()
            self.assertIn(f'.kind = ObjectiveKind::k{kind}', text)
            self.assertIn(f'.name = "{kind.lower()}"', text)
            self.assertEqual(set(re.findall(r"ObjectiveKind::k(\w+)", text)), {kind})

    def test_no_other_file_tells_two_kinds_apart(self):
        files = [path for folder in ("src/tasks/train", "src/train", "include/magister/train") for path in (ROOT / folder).rglob("*.*")]
        self.assertGreater(len(files), 90)
        for path in files:
            told_apart = set(re.findall(r"ObjectiveKind::k(\w+)", path.read_text()))
            if path.parent.name != "objectives" and path.name != "objective_loss.cpp":  # which makes the losses
                self.assertLessEqual(len(told_apart), 1, f"{path} tells {sorted(told_apart)} apart")


if __name__ == "__main__":
    unittest.main()
