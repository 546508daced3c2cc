"""A result file as Markdown: a table for each collective and type, then what holds and what does not."""

from requirements import PEERS, RAW, Verdict, best, geometric_mean, verdicts

OURS = ("mapped", "ordinary")
TORCH = ("hccl-like in torch", "fake in torch")


def readable(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B" if size else "-"


def microseconds(time: float | None) -> str:
    if time is None:
        return "-"
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}" if time >= 10 else f"{time:.2f}"


def table(rows: list[dict]) -> list[str]:
    """The rows of one collective, type and number of ranks."""
    shown = [name for name in (*OURS, *PEERS, *TORCH, RAW) if any(name in row["times"] for row in rows)]
    ours = [name for name in OURS if name in shown]
    has_floor = any(row.get("floor") for row in rows)
    names = ["size", *(["floor"] if has_floor else []), *shown,
             *(["% of floor"] if has_floor and "mapped" in shown else []), *(f"{name} over best peer" for name in ours)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        times, fastest = row["times"], best(row)
        cells = [readable(row["size"]), *([microseconds(row.get("floor"))] if has_floor else [])]
        for name in shown:
            text = microseconds(times.get(name))
            cells.append(f"**{text}**" if name in PEERS and times.get(name) == fastest else text)
        if has_floor and "mapped" in shown:
            known = row.get("floor") and "mapped" in times
            cells.append(f"{100 * row['floor'] / times['mapped']:.0f} %" if known else "-")
        cells += [f"{fastest / times[name]:.2f} x" if name in times and fastest else "-" for name in ours]
        lines.append("| " + " | ".join(cells) + " |")
    for name in ours:
        gained = [best(row) / row["times"][name] for row in rows
                  if name in row["times"] and best(row) and row["size"] >= 1 << 16]
        if gained:
            lines.append(f"\nGeometric mean of {name} over the best peer, from 64 KiB: {geometric_mean(gained):.2f} x.")
    return lines


def check_table(found: list[Verdict]) -> list[str]:
    lines = ["| what must hold | measured | limit | |", "|---|---|---|---|"]
    for verdict in found:
        sign = ">=" if verdict.at_least else "<="
        lines.append(f"| {verdict.requirement} | {verdict.value:.2f} | {sign} {verdict.limit:.2f} | "
                     f"{'PASS' if verdict.holds else '**FAIL**'} |")
    return lines


def kind_of(row: dict) -> tuple[str, str, str]:
    where = f"{row['hosts']} hosts, a rank each" if row.get("hosts") else f"{row['ranks']} ranks"
    return row["collective"], row["type"], where


def markdown(record: dict) -> str:
    machine = record["machine"]
    lines = [f"{machine['processor']}, {machine['cores']} cores; medians of {record['passes']} passes in turns, us; dirty "
             "buffers, pinned ranks; the best peer in bold.", ""]
    kinds = list(dict.fromkeys(kind_of(row) for row in record["rows"]))
    for kind in kinds:
        rows = [row for row in record["rows"] if kind_of(row) == kind]
        lines += [f"**{', '.join(kind)}**", "", *table(rows), ""]
    refused = sorted({(name, reason) for row in record["rows"] for name, reason in row["refused"].items()})
    lines += [f"* {name} left out: {reason}" for name, reason in refused]
    wrong = [f"{name} in {row['collective']} {row['type']} {row['size']}" for row in record["rows"]
             for name, count in row["wrong"].items() if count]
    lines += [f"* wrong results of {text}" for text in wrong]
    lines += [f"* bfloat16 sums of {name}: {how}" for name, how in record["bfloat16"].items()]
    return "\n".join([*lines, "", *check_table(verdicts(record["rows"])), ""])
