#!/usr/bin/env python3
"""Writes star graphs G(d, l) as records: a start, d arms of l - 1 further nodes, and the leaf of one arm as the
goal. A prompt lists the edges in any order, then start and goal: "3>5 1>2 ... / n1 n5 ="; the answer is the path,
"n1 n3 n5". Writes three files of JSON lines into a folder:
  walks.jsonl   chats whose answer is a random arm, from which the reference learns; it is then right once in d times
  graphs.jsonl  chats without an answer, with the right one in a field of its own: for rollouts
  test.jsonl    the same, held out
usage: scripts/make_star_graphs.py [--folder FOLDER] [--arms D] [--length L] [--nodes N] [--walks W] [--graphs G]
[--test T]
                                   [--seed S]
"""
import argparse
import json
import pathlib
import random


def graph(source, arms, length, nodes):
    """-> (prompt, the path of every arm from start to leaf, the right arm)"""
    names = source.sample(range(nodes), 1 + arms * (length - 1))
    paths = [[names[0], *names[1 + i * (length - 1):1 + (i + 1) * (length - 1)]] for i in range(arms)]
    edges = [f"{a}>{b}" for path in paths for a, b in zip(path, path[1:])]
    source.shuffle(edges)
    right = source.randrange(arms)
    return f"{' '.join(edges)} / n{names[0]} n{paths[right][-1]} =", paths, right


def words(path):
    return " ".join(f"n{node}" for node in path)


def write(path, count, source, arguments, walks):
    with open(path, "w", encoding="utf-8") as file:
        for index in range(count):
            prompt, paths, right = graph(source, arguments.arms, arguments.length, arguments.nodes)
            messages = [{"role": "user", "content": prompt}]
            if walks:
                messages.append({"role": "assistant", "content": words(source.choice(paths))})
            file.write(json.dumps({"id": f"{path.stem}-{index}", "messages": messages, "answer": words(paths[right])}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/star-graph-data"))
    for name, default in (("arms", 3), ("length", 3), ("nodes", 7), ("walks", 64000), ("graphs", 20000), ("test", 4000), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    if arguments.nodes < 1 + arguments.arms * (arguments.length - 1) or arguments.arms < 2 or arguments.length < 2:
        parser.error(f"{arguments.arms} arms of {arguments.length - 1} nodes beside the start need 2 arms, 1 node and as many names; raise --nodes")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("walks", arguments.walks), ("graphs", arguments.graphs), ("test", arguments.test)):
        write(arguments.folder / f"{name}.jsonl", count, random.Random(f"{arguments.seed} {name}"), arguments, name == "walks")


if __name__ == "__main__":
    main()
