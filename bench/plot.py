#!/usr/bin/env python3
"""Draws what the arbiter's benchmarks and its simulation measured, and fills in the tables.

    bench/plot.py BENCHMARKS.json SIMULATION.json

writes docs/pictures/arbiter-*.svg and the tables of docs/arbiter-measured.md, each between its own two comments.
Equal files give equal pictures.
"""
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
PAGE = ROOT / "docs/arbiter-measured.md"

# One colour for each line, by class; the second of each pair on a dark ground.
COLOURS = [("#1f6feb", "#79b8ff"), ("#1a7f37", "#56d364"), ("#bc4c00", "#ffa657"), ("#8250df", "#d2a8ff"),
           ("#57606a", "#b1bac4"), ("#bf3989", "#f778ba")]
STYLE = """
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:13px}
.axis{stroke:#57606a;fill:none}.grid{stroke:#d0d7de;fill:none}.aim{stroke:#cf222e;stroke-dasharray:6 4;fill:none}
""" + "".join(f".l{i}{{stroke:{light};fill:none;stroke-width:2}}.f{i}{{fill:{light}}}"
              for i, (light, _) in enumerate(COLOURS)) + ".dashed{stroke-dasharray:5 4}" + """
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#8b949e}.grid{stroke:#30363d}.aim{stroke:#ff7b72}
""" + "".join(f".l{i}{{stroke:{dark}}}.f{i}{{fill:{dark}}}" for i, (_, dark) in enumerate(COLOURS)) + "}"


class Scale:
    """Values to places on the paper."""

    def __init__(self, low, high, start, end, log=False):
        self.log = log
        self.low, self.high = (math.log10(low), math.log10(high)) if log else (low, high)
        self.start, self.end = start, end

    def __call__(self, value):
        value = math.log10(max(value, 1e-12)) if self.log else value
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + min(1, max(0, part)) * (self.end - self.start), 1)


class Picture:
    def __init__(self, width, height, words):
        self.width, self.height = width, height
        self.parts = [f"<title>{words}</title>"]

    def text(self, x, y, words, anchor="start", kind=""):
        of_class = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{of_class}>{words}</text>')

    def line(self, points, kind):
        self.parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')

    def bar(self, x, y, width, height, kind):
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{round(max(width, 0), 1)}" height="{height}"/>')

    def axes(self, x, y, x_marks, y_marks, title):
        left, right, bottom, top = x.start, x.end, y.start, y.end
        for value, words in y_marks:
            self.line([(left, y(value)), (right, y(value))], "grid")
            self.text(left - 6, y(value) + 4, words, "end")
        for value, words in x_marks:
            self.line([(x(value), bottom), (x(value), bottom + 4)], "axis")
            self.text(x(value), bottom + 18, words, "middle")
        self.line([(left, top), (left, bottom), (right, bottom)], "axis")
        self.text(left, top - 10, title, kind="title")

    def legend(self, x, y, names, dashed=()):
        for i, name in enumerate(names):
            kind = f"l{i}" + (" dashed" if i in dashed else "")
            self.line([(x, y + 18 * i - 4), (x + 22, y + 18 * i - 4)], kind)
            self.text(x + 28, y + 18 * i, name)

    def write(self, name):
        body = "\n".join(self.parts)
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img"><style>{STYLE}</style>\n{body}\n</svg>\n')


def thousands(number):
    return f"{number:,}".replace(",", " ")


# ---- Decisions ----

def decisions(benchmarks, name):
    found = {}
    for one in benchmarks:
        match = re.fullmatch(name + r"/tenants:(\d+)/waiters:(\d+)", one["name"])
        if match:
            key = int(match[1]), int(match[2])
            found[key] = {**one, "key": key}
    return found


def draw_decisions(found):
    picture = Picture(780, 380, "Median time of a decision by tenants and waiting requests")
    tenants = sorted({n for n, _ in found})
    waiters = sorted({m for _, m in found})
    top = max(2.5, 1.1 * max(one["median_us"] for one in found.values()))
    x, y = Scale(waiters[0], waiters[-1], 60, 540, log=True), Scale(0, top, 330, 40)
    step = 1 if top < 8 else 2
    picture.axes(x, y, [(m, thousands(m)) for m in waiters], [(v, str(v)) for v in range(0, int(top) + 1, step)],
                 "A decision, microseconds (median), by waiting requests")
    picture.line([(x.start, y(2)), (x.end, y(2))], "aim")
    picture.text(x.end - 4, y(2) - 5, "aim", "end")
    for i, n in enumerate(tenants):
        picture.line([(x(m), y(found[n, m]["median_us"])) for m in waiters if (n, m) in found], f"l{i}")
    floor = [(x(m), y(found[tenants[0], m]["floor_us"])) for m in waiters]
    picture.line(floor, "axis dashed")
    picture.text(x.end + 6, floor[-1][1] + 4, "std::set, erase and insert")
    picture.legend(560, 60, [f"{thousands(n)} tenants" for n in tenants])
    picture.text(300, 368, "waiting requests", "middle")
    picture.write("arbiter-decide.svg")


def solve(rows, values):
    """Least squares by the normal equations, small and dense."""
    size = len(rows[0])
    matrix = [[sum(r[i] * r[j] for r in rows) for j in range(size)] + [sum(r[i] * v for r, v in zip(rows, values))]
              for i in range(size)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


def fit(found):
    """median = a + b log2(tenants) + c log2(waiters), and how much of the variance that explains."""
    rows = [[1, math.log2(n), math.log2(m)] for n, m in found]
    values = [one["median_us"] for one in found.values()]
    factors = solve(rows, values)
    fitted = [sum(f * r for f, r in zip(factors, row)) for row in rows]
    mean = sum(values) / len(values)
    missed = sum((v - w) ** 2 for v, w in zip(values, fitted))
    explained = 1 - missed / max(1e-12, sum((v - mean) ** 2 for v in values))
    return factors, explained


def decision_table(found, value):
    tenants = sorted({n for n, _ in found})
    waiters = sorted({m for _, m in found})
    lines = ["| tenants \\ waiting | " + " | ".join(thousands(m) for m in waiters) + " |",
             "| --: |" + " --: |" * len(waiters)]
    for n in tenants:
        cells = [value(found[n, m]) if (n, m) in found else "" for m in waiters]
        lines.append(f"| {thousands(n)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth_words(found):
    (base, by_tenants, by_waiters), explained = fit(found)
    smallest, largest = found[min(found)], found[max(found)]
    return (f"Least squares over the table: {base:.2f} {by_tenants:+.3f} log2(tenants) {by_waiters:+.3f} log2(waiting) "
            f"microseconds, which explains {100 * explained:.0f}% of the variance. From the smallest corner to the "
            f"largest the decision takes {largest['median_us'] / smallest['median_us']:.1f} times as long, the floor "
            f"{largest['floor_us'] / smallest['floor_us']:.1f} times.")


def decide_section(found):
    return "\n\n".join([
        "Per floor (median of the decision by the median of an erase and an insert in a `std::set` of as many elements "
        "as requests wait):", decision_table(found, lambda one: f"{one['per_floor']:.1f}"),
        "Microseconds, median and 99th percentile:",
        decision_table(found, lambda one: f"{one['median_us']:.1f}, {one['p99_us']:.1f}"), growth_words(found)])


def growth_table(benchmarks, pattern, header, cells):
    """A row of `cells` for each benchmark whose name is of `pattern`, begun by the numbers in the name."""
    lines = ["| " + " | ".join(header) + " |", "| --: |" + " --: |" * (len(header) - 1)]
    for one in benchmarks:
        if match := re.fullmatch(pattern, one["name"]):
            numbers = ", ".join(thousands(int(number)) for number in match.groups())
            lines.append("| " + " | ".join([numbers, *cells(one)]) + " |")
    return "\n".join(lines)


def decide_growth_section(benchmarks):
    """How a decision grows from 10 tenants with 10 requests, and what reading its records takes."""
    return growth_table(
        benchmarks, r"decide_growth/tenants:(\d+)/waiters:(\d+)",
        ["tenants, waiting", "by 10, 10", "more, microseconds", "reads of records, microseconds"],
        lambda one: [f"{one['ratio']:.1f}", f"{one['growth_us']:.1f}", f"{one['touch_floor_us']:.1f}"])


def growth_section(benchmarks):
    """How a decision of the whole broker grows from 10 tenants to 10,000, and beyond the reads it cannot do without."""
    return growth_table(
        benchmarks, r"decide_broker_growth/waiters:(\d+)",
        ["waiting", "10 000 tenants by 10", "reads of records, microseconds", "without them: 10 000 tenants by 10"],
        lambda one: [f"{one['ratio']:.2f}", f"{one['touch_floor_us']:.1f}", f"{one['ratio_beyond_floor']:.2f}"])


def joint_section(found, single):
    """Times, and in brackets by the same of a request for one device."""
    return decision_table(found, lambda one: f"{one['median_us']:.1f}, {one['p99_us']:.1f} "
                          f"({one['median_us'] / single[one['key']]['median_us']:.1f})")


def join_section(found):
    return decision_table(found, lambda one: f"{one['join_median_us']:.2f}")


# ---- The day ----

def draw_waits(strategies):
    picture = Picture(780, 380, "How long sessions waited for their first memory")
    x, y = Scale(0.1, 10_000, 60, 540, log=True), Scale(0, 100, 330, 40)
    marks = [(0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (100, "100 s"), (1000, "1000 s"), (10_000, "")]
    picture.axes(x, y, marks, [(v, f"{v}%") for v in range(0, 101, 20)], "Sessions that have waited at most so long")
    for i, one in enumerate(strategies):
        curve = one["all"]["curve_s"]
        picture.line([(x(seconds), y(100 * place / (len(curve) - 1))) for place, seconds in enumerate(curve)], f"l{i}")
    picture.legend(560, 60, [one["name"] for one in strategies])
    picture.text(300, 368, "who gave up counts with its patience", "middle")
    picture.write("arbiter-waits.svg")


def draw_day(simulation):
    strategies = simulation["strategies"]
    hours = simulation["options"]["day_s"] / 3600
    picture = Picture(780, 620, "Use of the pools and waiting sessions over the day")
    parts = len(strategies[0]["parts"])
    x, y = Scale(0, hours, 60, 540), Scale(0, 100, 280, 40)
    marks = [(hours * i / 8, f"{hours * i / 8:g} h") for i in range(9)]
    picture.axes(x, y, marks, [(v, f"{v}%") for v in range(0, 101, 20)], "Held part of all pools")
    most = max(part["waiting"] for one in strategies for part in one["parts"])
    top = 100 * math.ceil(max(most, 1) / 100)
    below = Scale(0, top, 590, 350)
    picture.axes(x, below, marks, [(top * i / 4, f"{top * i / 4:g}") for i in range(5)], "Sessions that wait for memory")
    for i, one in enumerate(strategies):
        at = [x(hours * (k + 0.5) / parts) for k in range(parts)]
        picture.line([(a, y(100 * part["held"])) for a, part in zip(at, one["parts"])], f"l{i}")
        picture.line([(a, below(part["waiting"])) for a, part in zip(at, one["parts"])], f"l{i}")
    picture.legend(560, 60, [one["name"] for one in strategies])
    picture.write("arbiter-day.svg")


def draw_summary(strategies):
    picture = Picture(780, 110 + 26 * len(strategies), "Fairness, refusals and use under each strategy")
    groups = [("Jain's index", lambda one: one["jain"], "{:.2f}", 1.0),
              ("gave up", lambda one: one["all"]["gave_up_part"], "{:.1%}",
               max(0.01, max(one["all"]["gave_up_part"] for one in strategies))),
              ("use under contention", lambda one: one["contended_use"], "{:.0%}", 1.0)]
    for g, (words, value, form, most) in enumerate(groups):
        left = 190 + 190 * g
        picture.text(left, 34, words, kind="title")
        for i, one in enumerate(strategies):
            width = 120 * value(one) / most
            picture.bar(left, 50 + 26 * i, width, 18, f"f{i}")
            picture.text(left + round(width, 1) + 5, 64 + 26 * i, form.format(value(one)))
    for i, one in enumerate(strategies):
        picture.text(180, 64 + 26 * i, one["name"], "end")
    picture.write("arbiter-strategies.svg")


def duration(seconds):
    if seconds < 0.05:
        return "0"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def day_section(strategies):
    lines = ["| | " + " | ".join(one["name"] for one in strategies) + " |", "| --- |" + " --: |" * len(strategies)]

    def row(words, value):
        lines.append(f"| {words} | " + " | ".join(value(one) for one in strategies) + " |")

    row("Jain's index of the services", lambda one: f"{one['jain']:.3f}")
    row("the same, services cut off at 1", lambda one: f"{one['jain_capped']:.3f}")
    row("service: lowest tenth, median", lambda one: f"{one['service_p10']:.2f}, {one['service_p50']:.2f}")
    row("sessions that gave up", lambda one: f"{100 * one['all']['gave_up_part']:.2f}%")
    row("of sessions of a tenth of a pool and more", lambda one: f"{100 * one['large']['gave_up_part']:.0f}%")
    row("wait, p50", lambda one: duration(one["all"]["p50_s"]))
    row("wait, p90", lambda one: duration(one["all"]["p90_s"]))
    row("wait, p99", lambda one: duration(one["all"]["p99_s"]))
    row("wait, longest", lambda one: duration(one["all"]["max_s"]))
    row("within a guarantee: requests", lambda one: thousands(one["within_guarantee"]["requests"]))
    row("within a guarantee: p50, p99", lambda one: f"{duration(one['within_guarantee']['p50_s'])}, "
                                                    f"{duration(one['within_guarantee']['p99_s'])}")
    row("within a guarantee: longest", lambda one: duration(one["within_guarantee"]["max_s"]))
    row("within a guarantee: gave up", lambda one: thousands(one["within_guarantee"]["gave_up"]))
    row("use of the pools, all day", lambda one: f"{100 * one['use']:.1f}%")
    row("use while more was asked for", lambda one: f"{100 * one['contended_use']:.1f}%")
    row("part of the day that is", lambda one: f"{100 * one['contended_part_of_day']:.0f}%")
    row("memory given back when asked", lambda one: f"{one['yields']} times")
    return "\n".join(lines)


def core_section(strategies):
    lines = ["| | per floor | median | p99 | decisions | per second |", "| --- | --: | --: | --: | --: | --: |"]
    for one in strategies:
        if "decisions" in one:
            core = one["decisions"]
            lines.append(f"| {one['name']} | {core['median_per_floor']:.0f} | {core['median_us']:.1f} us | "
                         f"{core['p99_us']:.0f} us | {thousands(core['count'])} | {thousands(int(core['per_second']))} |")
    return "\n".join(lines)


def idle_section(benchmarks):
    one = next(one for one in benchmarks if one["name"] == "tenant_idle")
    return "\n".join(["| an idle tenant on 8 devices | bytes |", "| --- | --: |",
                      f"| named by a rule of its own | {one['bytes_per_configured']:.0f} |",
                      f"| of it the rule, as configured | {one['of_it_policy']:.0f} |",
                      f"| one of the others, with its session | {one['bytes_per_other_with_session']:.0f} |"])


def fill_in(page, name, words):
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
    if not pattern.search(page):
        sys.exit(f"{PAGE}: there is no place for '{name}'")
    return pattern.sub(lambda match: f"{match[1]}{words}\n{match[2]}", page)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    benchmarks = json.loads(pathlib.Path(sys.argv[1]).read_text())["benchmarks"]
    simulation = json.loads(pathlib.Path(sys.argv[2]).read_text())
    decided, by_broker = decisions(benchmarks, "decide"), decisions(benchmarks, "decide_broker")
    joint = decisions(benchmarks, "decide_joint")
    strategies = simulation["strategies"]
    draw_decisions(decided)
    draw_waits(strategies)
    draw_day(simulation)
    draw_summary(strategies)
    page = PAGE.read_text()
    for name, words in (("decide", decide_section(decided)), ("decide_growth", decide_growth_section(benchmarks)),
                        ("join", join_section(decided)),
                        ("decide_joint", joint_section(joint, decided)),
                        ("decide_broker", decide_section(by_broker)),
                        ("decide_broker_growth", growth_section(benchmarks)), ("idle", idle_section(benchmarks)),
                        ("day", day_section(strategies)), ("core", core_section(strategies))):
        page = fill_in(page, name, words)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
