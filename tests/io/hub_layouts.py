"""Folders as the Hugging Face hub has data sets, and the files of them that `load_dataset(folder, config, split=...)` reads, in its order.

usage: hub_layouts.py      asks `datasets` itself (not among the tests' packages: `pip install datasets==5.2.0`) about every row of LAYOUTS
"""
import json
import pathlib
import sys
import tempfile

CARD = "---\nlicense: mit\nlanguage: [en]\ntags: &all\n- text\nconfigs:\n{}\ntask_categories: *all\n---\n# A data set\n"
GSM = CARD.format("""- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: "main/test-*"
- config_name: socratic
  data_files:
  - split: train
    path: [socratic/part2/*, socratic/part1/*]""")
# name: (files, README.md, [(configuration, split, the files in order)]); the files' ends are .jsonl unless they say.
LAYOUTS = {
    "shards": (["data/train-00000-of-00002", "data/train-00001-of-00002", "data/test-00000-of-00001", "data/training"], None,
               [("", "train", [0, 1]), ("", "test", [2])]),
    "shards of any split": (["data/train_sft-00000-of-00001", "data/test_sft-00000-of-00001-abc", "x"], None, [("", "train_sft", [0]), ("", "test_sft", [1])]),
    "folders": (["train/x", "train/a/y", "train/a.b/z", "test/x", "train.jsonl"], None, [("", "train", [2, 1, 0]), ("", "test", [3])]),
    "folders below data": (["data/train/0001", "data/train/0000", "data/valid/0000", "data/my-val/0000"], None, [("", "train", [1, 0]), ("", "validation", [2, 3])]),
    "one configuration converted": (["default/train/0001", "default/train/0000", "default/partial-test/0000"], None, [("", "train", [1, 0]), ("", "test", [2])]),
    "configurations converted": (["de/train/0000", "en/train/0001", "en/train/0000", "en/test/0000"], None,
                                 [("en", "train", [2, 1]), ("en", "test", [3]), ("de", "train", [0])]),
    "configurations of shards": (["main/train-00000-of-00001", "main/test-00000-of-00001", "socratic/train-00000-of-00001"], None,
                                 [("main", "train", [0]), ("main", "test", [1]), ("socratic", "train", [2])]),
    "names": (["my_train_2", "train_10", "train_9", "training.1", "trained", "dev", "x-val", "evaluation"], None,
              [("", "train", [1, 2, 0, 3]), ("", "validation", [5, 6]), ("", "test", [7])]),
    "names of csv": (["train1.csv", "train 2.csv", "2022_test.csv"], None, [("", "train", [1, 0]), ("", "test", [2])]),
    "all files": (["b", "a", "B", "é"], None, [("", "train", [2, 1, 0, 3])]),
    "all files of a folder": (["raw/b", "raw/a", ".cache/huggingface/x", "__pycache__/y"], "# no head\n", [("", "train", [1, 0])]),
    "README": (["main/train-00000-of-00002", "main/train-00001-of-00002", "main/test-00000-of-00001", "socratic/part1/b", "socratic/part1/a", "socratic/part2/c", "train"], GSM,
               [("main", "train", [0, 1]), ("main", "test", [2]), ("socratic", "train", [5, 4, 3])]),
    "README's default": (["one/x", "two/y"], CARD.format("- config_name: a\n  data_files: one/x.jsonl\n- config_name: b\n  data_files: two/*\n  default: true\n"),
                         [("", "train", [1]), ("a", "train", [0])]),
    "README's only one": (["a/1", "b/2", "c/a/b/3", "c/4", "d/5", "d/e/f/6"], CARD.format("- config_name: only\n  data_files: [\"d/**\", \"a/*\", \"**/b/?.jsonl\"]\n  description: words"),
                          [("", "train", [4, 5, 0, 1, 2])]),
    "README's folders": (["x/train/2", "x/train/1", "y/test", "y/train"], CARD.format("- config_name: a\n  data_dir: x\n- config_name: b\n  data_dir: y\n  data_files:\n  - {split: train, path: \"t*\"}"),
                         [("a", "train", [1, 0]), ("b", "train", [2, 3])]),
    "classes of names": (["p/part-1", "p/part-2", "p/part-x", "p/.hidden"], CARD.format("- config_name: default\n  data_files:\n  - {split: a, path: \"p/part-[0-9]*\"}\n  - {split: b, path: \"p/*-[!0-9]*\"}"),
                         [("", "a", [0, 1]), ("", "b", [2])]),
}


def name_of(file):
    return file if file.endswith(".csv") else file if file.endswith(".jsonl") else file + ".jsonl"


def make(folder, files, card):
    """Each file has two records that name it."""
    for i, file in enumerate(files):
        path = pathlib.Path(folder) / name_of(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [f"{i}:{row}" for row in range(2)]
        path.write_text("text,other\n" + "".join(f"{text},x\n" for text in texts) if path.suffix == ".csv" else "".join(json.dumps({"text": text}) + "\n" for text in texts))
    if card is not None:
        (pathlib.Path(folder) / "README.md").write_text(card)


def expected(order):
    return [f"{i}:{row}" for i in order for row in range(2)]


def main():
    import datasets

    datasets.disable_progress_bars()
    for name, (files, card, reads) in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            make(folder, files, card)
            for config, split, order in reads:
                # Without configurations in README.md a folder is asked for as data_dir.
                way = {"name": config} if card and "configs" in card else {"data_dir": config}
                got = datasets.load_dataset(folder, split=split, cache_dir=cache, **(way if config else {}))["text"][:]
                if list(got) != expected(order):
                    sys.exit(f"{name}: {config} {split}: datasets reads {got}, expected {expected(order)}")
    print(f"{len(LAYOUTS)} folders, {sum(len(reads) for _, _, reads in LAYOUTS.values())} reads: as datasets {datasets.__version__} reads them")


if __name__ == "__main__":
    main()
