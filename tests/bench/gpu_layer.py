"""The output of `magister bench layer` for the report: a table for each pass, and for a missed floor the parts that
explain it.

A part's loss is its time beyond the time that its arithmetic needs at the rate of the large GEMM, or its bytes at the
copy bandwidth, whichever is longer. Padding rows of a tile count as lost, too; a part without numbers is lost entirely.
"""

SHOWN = 14  # parts of a pass in the report; the JSON has all


def bounds_in(measured):
    """-> (TFLOP/s, GB/s) of the check's own GEMM and copy, 0 if there is none."""
    def value(names, key):
        return next((measured[name]["values"][key] for name in names if key in measured.get(name, {}).get("values", {})), 0)
    return value(("gemm_of_layers", "gemm"), "tflops"), value(("copy_of_layers", "copy"), "gbs")


def label(part):
    shape = f" {part['rows']} x {part['outputs']} x {part['inputs']}" if "rows" in part else ""
    return f"{part['part']} ({part['call']}{shape})"


def useful_rows(values, place):
    """The share of a product's rows that are no padding."""
    computed = sum(part["calls"] * part["rows"] for part in values["parts"] if part["part"] == place and "rows" in part)
    wanted = values.get("rows", 0) * (1 if place == "head" else values["layers_measured"])
    return min(1.0, wanted / computed) if computed and wanted and values.get("pass") != "decode" and (place != "head" or values["pass"] == "teacher") \
        else 1.0


def lost_ms(part, values, tflops, gbs):
    """The part's loss. The tensor cores multiply 8-bit floats twice as fast."""
    rate = tflops * (2 if "_scaled_mm" in part["call"] else 1)
    needed = max(part.get("tflops", 0) / rate, part.get("gbs", 0) / gbs)
    return part["ms"] * max(0.0, 1 - needed * (useful_rows(values, part["part"]) if "rows" in part else 1))


def explanation(measured, name, most=4):
    """-> sentences about the parts that lose most, or the reason why there are none."""
    found = measured.get(name)
    if found is None or "values" not in found:
        return [f"{name}: {'not run' if found is None else found['reason']}"]
    values, (tflops, gbs) = found["values"], bounds_in(measured)
    if not tflops or not gbs:
        return [f"{name}: no GEMM or no copy to hold its parts against"]
    losses = [(lost_ms(part, values, tflops, gbs), part) for part in values["parts"]]
    losses.append((values["gaps_ms"], {"part": "gaps", "call": "nothing ran", "share": values["gaps_share"]}))
    losses.sort(key=lambda entry: -entry[0])
    sentences = []
    for lost, part in losses[:most]:
        if lost / values["ms"] < 0.005:
            break
        rates = [f"{part[key] / bound:.2f} of the {word}" for key, bound, word in (("tflops", tflops, "GEMM"), ("gbs", gbs, "copy bandwidth"))
                 if key in part]
        useful = useful_rows(values, part["part"]) if "rows" in part else 1
        rates += [f"{1 - useful:.1%} of the rows filled up"] if useful < 0.995 else []
        sentences.append(f"{label(part)}: {part['share']:.1%} of the time{', at ' + ' and '.join(rates) if rates else ''}; "
                         f"{lost / values['ms']:.1%} of the time lost here")
    return sentences or [f"{name}: no part loses a 200th of the time; the loss is outside the pass"]


def markdown(measured):
    """-> lines: a table for each measured pass."""
    lines = []
    for name, result in measured.items():
        if not name.startswith("layer_"):
            continue
        lines += ["", f"### {name}", "", f"`{result['command']}`", ""]
        if "values" not in result:
            lines.append(f"not measured: {result['reason']}")
            continue
        values = result["values"]
        lines.append(f"{values['ms']:.2f} ms for all {values['layers']} layers, computed from {values['layers_measured']}; "
                     f"{values['tokens_per_second']:.0f} tokens/s; the measured pass without stamps {values['pass_ms']:.3f} ms"
                     + "".join(f"; {key} {value}" for key, value in result.get("clocks", {}).items()))
        lines += ["", "| part | call | calls | rows x outputs x inputs | ms | share | TFLOP/s | GB/s |", "|---|---|---|---|---|---|---|---|"]
        for part in values["parts"][:SHOWN]:
            shape = f"{part['rows']} x {part['outputs']} x {part['inputs']}" if "rows" in part else ""
            tflops, gbs = (f"{part[key]:.1f}" if key in part else "" for key in ("tflops", "gbs"))
            lines.append(f"| {part['part']} | {part['call']} | {part['calls']} | {shape} | {part['ms']:.3f} | {part['share']:.1%} | {tflops} | "
                         f"{gbs} |")
        rest = values["parts"][SHOWN:]
        if rest:
            lines.append(f"| {len(rest)} more | | {sum(part['calls'] for part in rest)} | | {sum(part['ms'] for part in rest):.3f} | "
                         f"{sum(part['share'] for part in rest):.1%} | | |")
        lines.append(f"| gaps | | | | {values['gaps_ms']:.3f} | {values['gaps_share']:.1%} | | |")
    return lines
