#!/usr/bin/env python3
"""Draws how often methods are right against their cost as SVG, from an `evaluate` task's JSON, with Wilson's 95 %
intervals. The cost is the distance from the reference (KL in nats per text; a method without a guide has 0), or the
FLOPs per text, where votes of k texts cost k times as much.

usage: scripts/draw_methods.py [--over guide_kl|flops] EVALUATION.json PICTURE.svg
"""
import argparse
import json
import pathlib
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 64, 24, 120, 48
COLOUR = "#1f5fa8"
LABELS = {"guide_kl": "KL to the reference, nats a text", "flops": "FLOPs of products a text"}


def drawn(methods, label):
    """methods: {name: (cost, share, low, high)} -> the text of the picture."""
    most = max(cost for cost, *_ in methods.values()) or 1.0

    def x(cost):
        return LEFT + (WIDTH - LEFT - RIGHT) * cost / most

    def y(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for part in range(6):
        share, cost = part / 5, most * part / 5
        out.append(f'<path d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:g}</text>')
        out.append(f'<text x="{x(cost):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{cost:.3g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">right</text>')
    for name, (cost, share, low, high) in sorted(methods.items(), key=lambda one: one[1]):
        out.append(f'<path d="M{x(cost):.1f} {y(low):.1f}V{y(high):.1f}" stroke="{COLOUR}"/><circle cx="{x(cost):.1f}" cy="{y(share):.1f}" r="4" fill="{COLOUR}"/>')
        out.append(f'<text x="{x(cost) + 8:.1f}" y="{y(share) - 6:.1f}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def points(name, method, over):
    """Yields (name of the point, cost, share with its interval) of a method."""
    cost = method.get(over)
    if cost is None and over == "flops":
        return
    cost = cost or 0.0
    yield name, cost, method["pass_at"].get("1", method["accuracy"])  # of all texts, else of the first ones
    if over == "flops":
        for k, share in method.get("majority_at", {}).items():
            if k != "1":
                yield f"{name}, {k} votes", int(k) * cost, share


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", choices=LABELS, default="guide_kl")
    parser.add_argument("evaluation", type=pathlib.Path, metavar="EVALUATION.json")
    parser.add_argument("picture", type=pathlib.Path, metavar="PICTURE.svg")
    arguments = parser.parse_args()
    if arguments.picture.suffix != ".svg":
        parser.error(f"{arguments.picture} is to be a picture of another kind (only SVG is written); give it the name of an .svg file")
    methods = {}
    for name, method in json.loads(arguments.evaluation.read_text(encoding="utf-8"))["methods"].items():
        for point, cost, share in points(name.removesuffix("-scores"), method, arguments.over):
            methods[point] = (cost, share["share"], *share["wilson95"])
    if not methods:
        parser.error(f"{arguments.evaluation} has no method whose {arguments.over} is known (texts of a data set cost nobody anything)")
    arguments.picture.write_text(drawn(methods, LABELS[arguments.over]), encoding="utf-8")


if __name__ == "__main__":
    main()
