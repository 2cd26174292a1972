"""Timelines as SVG: panels one below the other, in each a strip for every tenant. Equal input gives equal text."""
import collections.abc
import dataclasses
import math
from xml.sax.saxutils import escape

from history import Event, Mark, Steps, Track, amount, track

WIDTH, LEFT, RIGHT = 880, 92, 22
PLOT = WIDTH - LEFT - RIGHT
ROWS, ROW, STRIP = 2, 12, 46  # rows of words above a strip, their height, the strip's own
CHARACTER = 5.7  # the mean width of one, at the size of the words
NEAR = 7.0  # marks of one kind closer than this are one

MARKS = {  # shape, class, what the legend says
    "waiting": ("M0-5A5 5 0 1 0 0 5A5 5 0 1 0 0-5Z", "wait", "a request waits"),
    "granted": ("M-5 4L0-5L5 4Z", "good", "granted"),
    "pressure": ("M-5-4L0 5L5-4Z", "ask", "asked to give back"),
    "returned": ("M0-4L4 0L0 4L-4 0Z", "back", "gives back"),
    "denied": ("M-4-4L4 4M4-4L-4 4", "bad line", "refused"),
    "debt": ("M-4-4H4V4H-4Z", "bad", "in debt"),
    "debt-paid": ("M-4-4H4V4H-4Z", "good", "debt paid"),
    "terminating": ("M-2-6H2V1H-2ZM-2 3H2V6H-2Z", "ask", "SIGTERM"),
    "killing": ("M-2-6H2V1H-2ZM-2 3H2V6H-2Z", "bad", "SIGKILL"),
    "note": ("M0-3A3 3 0 1 0 0 3A3 3 0 1 0 0-3Z", "plain", ""),
}
COLOURS = {  # class: light, dark
    "0": ("#4c8fce", "#3f7fbd"), "1": ("#d9853b", "#c47430"), "2": ("#4aa37c", "#3f936e"), "3": ("#b07aa8", "#a26c9a"),
}
STYLE = """text{font:10.5px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:13px}.soft{fill:#59636e}
.paper{fill:#fff}.axis{stroke:#d1d9e0;fill:none}.lead{stroke:#8c959f;stroke-width:.7;fill:none}
.guarantee{stroke:#1f2328;stroke-dasharray:6 3;fill:none}.limit{stroke:#cf222e;stroke-dasharray:2 3;fill:none}
.mark{stroke:#fff;stroke-width:.8}.wait{fill:#bf8700}.good{fill:#1a7f37}.ask{fill:#bc4c00}.back{fill:#0969da}.bad{fill:#cf222e}
.curve{fill:none!important;stroke-width:2.2}
.plain{fill:#59636e}.line{fill:none;stroke:#cf222e;stroke-width:2.2}"""
DARK = """text{fill:#e6edf3}.soft{fill:#9198a1}.paper{fill:#0d1117}.axis{stroke:#3d444d}.lead{stroke:#6e7681}
.guarantee{stroke:#e6edf3}.limit{stroke:#ff7b72}.mark{stroke:#0d1117}.wait{fill:#e3b341}.good{fill:#3fb950}.ask{fill:#f0883e}
.back{fill:#58a6ff}.bad{fill:#ff7b72}.plain{fill:#9198a1}.line{fill:none;stroke:#ff7b72}"""


@dataclasses.dataclass
class Panel:
    """`length` seconds; `top` is the highest amount that a strip shows."""
    title: str
    length: float
    top: int
    tracks: list[Track]


def panel(title: str, events: list[Event], quotas: dict[str, tuple[int, int | Steps]], start: float, end: float) -> Panel:
    """A panel of the events of these tenants (guarantee, and limit over time) from `start` to `end` of the wall clock."""
    tracks = [track(events, name, start, guarantee, limit) for name, (guarantee, limit) in quotas.items()]
    seen = [count for one in tracks for at, count in one.charged + one.limit if at <= end - start]
    return Panel(title, end - start, max(seen) * 9 // 8, tracks)


def number(value: float) -> str:
    """At most one decimal: finer than the eye, and short."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, style: str = "", anchor: str = "") -> str:
    attributes = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escape(words)}</text>'


def path(points: str, style: str) -> str:
    return f'<path class="{style}" d="{points}"/>'


def mark(x: float, y: float, kind: str, hint: str = "") -> str:
    shape, style, _ = MARKS[kind]
    title = f"<title>{escape(hint)}</title>" if hint else ""
    return f'<path class="mark {style}" transform="translate({number(x)} {number(y)})" d="{shape}">{title}</path>'


def ticks(length: float, most: int = 8) -> list[float]:
    """Round times from 0 to `length`."""
    rough = length / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [round(i * step, 9) for i in range(int(length / step + 1e-9) + 1)]


def time_words(seconds: float, length: float) -> str:
    return f"{seconds * 1000:.4g} ms" if length < 1 else f"{seconds:.4g} s"


def document(height: float, title: str, body: list[str]) -> str:
    fills = "".join(f".t{name}{{fill:{light};fill-opacity:.55;stroke:{light}}}" for name, (light, _) in COLOURS.items())
    dark = "".join(f".t{name}{{fill:{colour};stroke:{colour}}}" for name, (_, colour) in COLOURS.items())
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{fills}@media(prefers-color-scheme:dark){{{DARK}{dark}}}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{number(height)}" rx="6"/>', *body, "</svg>"]) + "\n"


class Words:
    """Places words above a strip: in the first row where they do not touch the ones before them."""

    def __init__(self, y: float):
        self._y = y
        self._ends = [0.0] * ROWS

    def place(self, x: float, words: str) -> tuple[float, float]:
        """Where the words begin, and their base line."""
        width = len(words) * CHARACTER
        start = max(LEFT, min(x - 3, WIDTH - RIGHT - width))
        row = next((i for i, end in enumerate(self._ends) if start > end), None)
        if row is None:
            row = self._ends.index(min(self._ends))
            start = self._ends[row] + 4
        self._ends[row] = start + width + 6
        return start, self._y + (row + 1) * ROW - 3


def outline(steps: Steps, length: float, x_of: collections.abc.Callable[[float], float],
            y_of: collections.abc.Callable[[int], float]) -> str:
    """A step line from 0 to `length`; what changes within a fifth of a pixel is one step."""
    kept: list[tuple[float, float]] = []
    for at, count in steps:
        if at > length:
            break
        x, y = round(x_of(at), 1), y_of(count)
        if kept and x - kept[-1][0] < 0.2:
            kept[-1] = (kept[-1][0], y)
        else:
            kept.append((x, y))
    line = f"M{number(kept[0][0])} {number(kept[0][1])}"
    for x, y in kept[1:]:
        line += f"H{number(x)}V{number(y)}"
    return line + f"H{number(x_of(length))}"


def value_at(steps: Steps, at: float) -> int:
    return next((count for time, count in reversed(steps) if time <= at), 0)


def thinned(marks: list[Mark], x_of: collections.abc.Callable[[float], float]) -> list[Mark]:
    """Without those that repeat the kind and words of one just before."""
    kept: list[Mark] = []
    last: dict[tuple[str, str], float] = {}
    for one in sorted(marks, key=lambda m: (m.at, m.kind)):
        key, x = (one.kind, one.words), x_of(one.at)
        if key not in last or x - last[key] >= NEAR:
            kept.append(one)
            last[key] = x
    return kept


def strip(panel: Panel, one: Track, colour: int, y: float) -> list[str]:
    """One tenant: its words, its charged bytes as an area, its guarantee and limit, its marks."""
    top, bottom = y + ROWS * ROW, y + ROWS * ROW + STRIP

    def x_of(at: float) -> float:
        return LEFT + min(at, panel.length) / panel.length * PLOT

    def y_of(count: int) -> float:
        return bottom - min(count, panel.top) / panel.top * STRIP

    line = outline(one.charged, panel.length, x_of, y_of)
    body = [path(f"{line}V{number(bottom)}H{LEFT}Z", f"t{colour}"), path(f"M{LEFT} {number(bottom)}H{WIDTH - RIGHT}", "axis")]
    if one.guarantee:
        body.append(path(f"M{LEFT} {number(y_of(one.guarantee))}H{WIDTH - RIGHT}", "guarantee"))
    body.append(path(outline(one.limit, panel.length, x_of, y_of), "limit"))
    body.append(text(LEFT - 8, top + 12, one.tenant, "title", "end"))
    body.append(text(LEFT - 8, top + 26, amount(value_at(one.charged, panel.length)), "soft", "end"))
    words = Words(y)
    for each in thinned([m for m in one.marks if m.at <= panel.length], x_of):
        x, at = x_of(each.at), y_of(value_at(one.charged, each.at))
        if each.words:
            start, base = words.place(x, each.words)
            body.append(path(f"M{number(x)} {number(at)}L{number(max(start, min(x, start + 8)))} {number(base + 2)}", "lead"))
            body.append(text(start, base, each.words))
        body.append(mark(x, at, each.kind, f"{time_words(each.at, panel.length)} {each.kind} {each.words}".strip()))
    return body


def draw_panel(panel: Panel, colours: dict[str, int], y: float) -> tuple[list[str], float]:
    body = [text(14, y + 16, panel.title, "title")]
    y += 24
    height = len(panel.tracks) * (ROWS * ROW + STRIP + 4)
    for at in ticks(panel.length):
        x = LEFT + at / panel.length * PLOT
        body.append(path(f"M{number(x)} {number(y)}v{number(height)}", "axis"))
        body.append(text(x, y + height + 13, time_words(at, panel.length), "soft", "middle"))
    for one in panel.tracks:
        body += strip(panel, one, colours[one.tenant], y)
        y += ROWS * ROW + STRIP + 4
    return body, y + 30


def legend(kinds: set[str], y: float) -> tuple[list[str], float]:
    """Its marks and words, and the line that its last row stands on."""
    entries = [(path(f"M-9 0H9", style), words) for style, words in (("guarantee", "guarantee"), ("limit", "limit"))]
    entries += [(mark(0, 0, kind), MARKS[kind][2]) for kind in MARKS if kind in kinds and MARKS[kind][2]]
    body, x = [], 24.0
    for drawn, words in entries:
        width = len(words) * CHARACTER + 38
        if x + width > WIDTH - RIGHT:
            x, y = 24.0, y + 18
        body.append(f'<g transform="translate({number(x)} {number(y)})">{drawn}{text(13, 3.5, words)}</g>')
        x += width
    return body, y


def timeline(title: str, panels: list[Panel]) -> str:
    body: list[str] = []
    y = 8.0
    tenants = dict.fromkeys(one.tenant for panel in panels for one in panel.tracks)
    colours = {tenant: i % len(COLOURS) for i, tenant in enumerate(tenants)}
    for panel in panels:
        drawn, y = draw_panel(panel, colours, y)
        body += drawn
    kinds = {one.kind for panel in panels for each in panel.tracks for one in each.marks if one.at <= panel.length}
    key, last = legend(kinds, y + 4)
    return document(last + 16, title, [*body, *key])
