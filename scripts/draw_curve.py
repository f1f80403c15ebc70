#!/usr/bin/env python3
"""Draws a training's loss by step as SVG, from the results of `train` tasks.

usage: .deps/venv/bin/python scripts/draw_curve.py STUDENT.h5 [MORE.h5 ...] CURVE.svg
"""
import pathlib
import sys

import h5py
import numpy

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 64, 24, 16, 48
COLOURS = ("#1f5fa8", "#c4581b", "#3a7d44", "#7a4b94")


def ticks(low, high, count):
    """Round numbers inside [low, high]."""
    rough = (high - low) / count or 1
    power = 10.0 ** numpy.floor(numpy.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda m: abs(m * power - rough))
    return numpy.arange(numpy.ceil(low / step) * step, high + step * 1e-6, step)


def drawn(curves):
    """curves: [(name, steps, losses)] -> the text of the picture."""
    last = max(steps[-1] for _, steps, _ in curves)
    finite = numpy.concatenate([loss[numpy.isfinite(loss)] for *_, loss in curves])
    low, high = min(0.0, finite.min()), finite.max() * 1.03

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value in ticks(low, high, 6):
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(0, last, 8):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{value:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">loss, nat a token</text>')
    for index, (name, steps, losses) in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in zip(steps, losses) if numpy.isfinite(loss))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        out.append(f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 16 + 18 * index}" text-anchor="end" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) < 3 or not sys.argv[-1].endswith(".svg"):
        sys.exit(__doc__)
    curves = []
    for path in sys.argv[1:-1]:
        with h5py.File(path) as file:
            if "train/loss" not in file:
                sys.exit(f"{path}: has no /train/loss (it is not of a `train` task); name the results of one")
            curves.append((pathlib.Path(path).stem, file["train/step"][:], file["train/loss"][:]))
    pathlib.Path(sys.argv[-1]).write_text(drawn(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
