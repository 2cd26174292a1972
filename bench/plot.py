"""Draws pictures of measurements into docs/pictures, and fills tables into a page. Pictures depend on the input alone."""
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"

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


def fill_in(page, name, words):
    """`page` with `words` between the two comments of the section `name`."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
    if not pattern.search(page):
        sys.exit(f"the page has no place for '{name}'")
    return pattern.sub(lambda match: f"{match[1]}{words}\n{match[2]}", page)
