#!/usr/bin/env python3
"""Draws how often methods are right over what they have moved from their reference (KL in nats a text), out of an `evaluate` task's JSON, as SVG, with
Wilson's 95 % intervals. A method without a guide stands at 0.

usage: scripts/draw_methods.py EVALUATION.json PICTURE.svg
"""
import json
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 64, 24, 120, 48
COLOUR = "#1f5fa8"


def drawn(methods):
    """methods: {name: (KL, share, low, high)} -> the text of the picture."""
    most = max(kl for kl, *_ in methods.values()) or 1.0

    def x(kl):
        return LEFT + (WIDTH - LEFT - RIGHT) * kl / most

    def y(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for part in range(6):
        share, kl = part / 5, most * part / 5
        out.append(f'<path d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:g}</text>')
        out.append(f'<text x="{x(kl):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{kl:.3g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">KL to the reference, nats a text</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">right, pass@1</text>')
    for name, (kl, share, low, high) in sorted(methods.items(), key=lambda one: one[1]):
        out.append(f'<path d="M{x(kl):.1f} {y(low):.1f}V{y(high):.1f}" stroke="{COLOUR}"/><circle cx="{x(kl):.1f}" cy="{y(share):.1f}" r="4" fill="{COLOUR}"/>')
        out.append(f'<text x="{x(kl) + 8:.1f}" y="{y(share) - 6:.1f}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) != 3 or not sys.argv[2].endswith(".svg"):
        sys.exit(__doc__)
    methods = {}
    for name, one in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["methods"].items():
        right = one["pass_at"].get("1", one["accuracy"])  # of all texts, else of first ones
        methods[name.removesuffix("-scores")] = (one.get("guide_kl") or 0.0, right["share"], *right["wilson95"])
    pathlib.Path(sys.argv[2]).write_text(drawn(methods), encoding="utf-8")


if __name__ == "__main__":
    main()
