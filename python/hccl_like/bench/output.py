"""Rows as nccl-tests prints them, and the same rows as JSON, CSV and Markdown."""

import csv
import json
from pathlib import Path

FORMS = ("out_of_place", "in_place")


def number(value: float, width: int) -> str:
    """As many decimals as fit, two at most."""
    for decimals in (2, 1):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.0f}"


def block(result: dict | None) -> str:
    """time algbw busbw #wrong."""
    if result is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    wrong = "N/A" if result["wrong"] is None else str(result["wrong"])
    return (f"  {number(result['time_us'], 7):>7}  {number(result['algbw'], 6):>6}  "
            f"{number(result['busbw'], 6):>6}  {wrong:>6}")


def header(reference: str | None, floor: bool = False) -> list[str]:
    """Two blocks of nccl-tests' columns, then ours: they come last so that parsers of the former still work."""
    columns = f"{'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    units = f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
    named, theirs, gain = (reference or "", "(us)", "(x)") if reference else ("", "", "")
    tail = f"  {named:>9}  {'gain':>6}" if reference else ""
    tail_units = f"  {theirs:>9}  {gain:>6}" if reference else ""
    if floor:
        tail += f"  {'floor':>7}  {'%floor':>6}"
        tail_units += f"  {'(us)':>7}  {'(%)':>6}"
    return [
        f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}  {'out-of-place':^31}  {'in-place':^31}".rstrip(),
        f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {columns}  {columns}"
        f"  {'p99':>7}  {'load':>4}{tail}",
        f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {units}  {units}"
        f"  {'(us)':>7}  {'(%)':>4}{tail_units}",
    ]


def headline(row: dict) -> dict | None:
    """The form that p99 and the comparison speak of: in place where there is one, as a training step does it."""
    return row["in_place"] or row["out_of_place"]


def line(row: dict, reference: str | None, floor: bool = False) -> str:
    text = f"{row['size']:>12}  {row['count']:>12}  {row['type']:>8}  {row['redop']:>6}  {row['root']:>6}"
    text += "".join(block(row[form]) for form in FORMS)
    best = headline(row)
    text += f"  {number(best['p99_us'], 7):>7}" if best else f"  {'N/A':>7}"
    text += f"  {100 * row['foreign']:>4.0f}" if row["foreign"] is not None else f"  {'-':>4}"
    if reference:
        other = best and best.get("reference_us")
        text += f"  {number(other, 9):>9}  {number(best['gain'], 6):>6}" if best and other else f"  {'N/A':>9}  {'N/A':>6}"
    if floor:
        least = best and best.get("floor_us")
        text += f"  {number(least, 7):>7}  {100 * least / best['time_us']:>6.0f}" if best and least else f"  {'-':>7}  {'-':>6}"
    return text


def write_json(path: str, record: dict) -> None:
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def flat(row: dict) -> dict:
    """One level deep, for tables: out_of_place.time_us becomes out_of_place_time_us."""
    kept = {name: value for name, value in row.items() if name not in FORMS}
    for form in FORMS:
        for name in ("time_us", "p99_us", "algbw", "busbw", "wrong", "reference_us", "gain", "floor_us"):
            kept[f"{form}_{name}"] = (row[form] or {}).get(name)
    return kept


def write_csv(path: str, rows: list[dict]) -> None:
    with open(path, "w", newline="") as target:
        writer = csv.DictWriter(target, fieldnames=list(flat(rows[0])) if rows else [])
        writer.writeheader()
        writer.writerows(flat(row) for row in rows)


def readable(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def markdown(record: dict) -> str:
    """A table for a README, with the machine in the line above it."""
    config, environment = record["config"], record["environment"]
    reference = config["compare"]
    lines = [
        f"**{config['collective']}, {config['datatype']}, {config['ranks']} ranks, {config['device']} tensors"
        f"{', dirty' if config['dirty'] else ''}** ({environment['processor']}, {environment['cores']} cores, torch "
        f"{environment['torch']}; medians of {config['iters']})", ""]
    names = ["size", "type", f"{config['backend']}, us", "p99, us", "busbw, GB/s"]
    names += [f"{reference}, us", "gain"] if reference else []
    floor = config.get("floor") is not None
    names += ["floor, us", "of floor"] if floor else []
    lines += ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in record["results"]:
        best = headline(row)
        if best is None:
            continue
        cells = [readable(row["size"]), row["type"], f"{best['time_us']:,.1f}", f"{best['p99_us']:,.1f}",
                 f"{best['busbw']:.2f}"]
        if reference:
            other = best.get("reference_us")
            cells += [f"{other:,.1f}", f"{best['gain']:.1f} x"] if other else ["-", "-"]
        if floor:
            least = best.get("floor_us")
            cells += [f"{least:,.1f}", f"{100 * least / best['time_us']:.0f} %"] if least else ["-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n"
