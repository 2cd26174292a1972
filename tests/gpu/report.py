"""acceptance.json and acceptance.md.

acceptance.json:
  schema        1
  gpumem        what `gpumemd --version` prints
  simulated     whether the driver was the simulated one
  short         whether only the short form ran
  seconds       in all
  totals        {passed, failed, skipped}: sections
  ok            whether every required section passed
  sections[]    {name, title, required, verdict (passed, failed, skipped), why, seconds, stderr (its last lines),
                data (the section's own; sections/NAME.py says what), tables[] {title, columns, rows},
                differences[] {what, assumed, seen}}
"""
import json
import pathlib
from typing import Any

MOST_ROWS = 200


def whole(sections: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    """The content of acceptance.json."""
    totals = {v: sum(s["verdict"] == v for s in sections) for v in ("passed", "failed", "skipped")}
    return {"schema": 1, **facts, "totals": totals, "ok": all(counts_as_good(s, facts["simulated"]) for s in sections),
            "sections": sections}


def counts_as_good(section: dict[str, Any], simulated: bool) -> bool:
    """A required section has to pass; on the simulated driver it may be skipped with a reason."""
    if section["verdict"] == "skipped":
        return simulated or not section["required"]
    return section["verdict"] == "passed" or not section["required"]


def closing_line(report: dict[str, Any]) -> str:
    totals = report["totals"]
    return f"acceptance: {totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped"


def write(report: dict[str, Any], out: pathlib.Path) -> None:
    (out / "acceptance.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "acceptance.md").write_text(page(report))


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def rows_of(columns: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(cell(v) for v in row) + " |" for row in [columns, *rows[:MOST_ROWS]]]
    lines.insert(1, "|" + "---|" * len(columns))
    if len(rows) > MOST_ROWS:
        lines.append(f"\n{len(rows) - MOST_ROWS} more in acceptance.json.")
    return "\n".join(lines)


def page(report: dict[str, Any]) -> str:
    sections = report["sections"]
    driver = "the simulated driver" if report["simulated"] else "the real driver"
    parts = [f"# Acceptance of {report['gpumem']} on {driver}",
             f"{closing_line(report)}, in {report['seconds']:.0f} s. "
             + ("Every required section passed." if report["ok"] else "**Not accepted.**"),
             rows_of(["section", "", "required", "seconds", "why"],
                     [[s["title"], s["verdict"], "yes" if s["required"] else "", f"{s['seconds']:.1f}", s["why"]]
                      for s in sections])]
    differences = [[s["title"], d["what"], d["assumed"], d["seen"]] for s in sections for d in s["differences"]]
    if differences:
        parts += ["## Where this machine is not as assumed", rows_of(["section", "what", "assumed", "seen"], differences)]
    for section in sections:
        parts.append(f"## {section['title']}: {section['verdict']}" + (f" ({section['why']})" if section["why"] else ""))
        for shown in section["tables"]:
            if shown["rows"]:
                parts += [f"### {shown['title']}", rows_of(shown["columns"], shown["rows"])]
        if section["verdict"] == "failed" and section["stderr"]:
            parts.append("```\n" + "\n".join(section["stderr"]) + "\n```")
    return "\n\n".join(parts) + "\n"
