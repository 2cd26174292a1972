#!/usr/bin/env python3
"""Draws what the allocator's benchmarks measured, and fills in the tables.

    bench/allocator/draw.py BENCHMARKS.json [GROWTH.json]

BENCHMARKS.json is gpumem_allocator_bench's, GROWTH.json is gpumem_bench's with --costs h200. Writes
docs/pictures/allocator-speed.svg and the tables of docs/allocator-measured.md, each between its own two comments. Equal files
give equal pictures. bench/peers/run.py does the rest of that page.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import plot  # noqa: E402  (bench/plot.py: scales, axes and colours)

PAGE = plot.ROOT / "docs/allocator-measured.md"
AIM = 1.03
ALLOCATORS = ["gpumem", "gpumem_lag"]
SPEED = ["gpumem", "malloc"]
GIB, MIB = 1 << 30, 1 << 20


def size_words(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def found(benchmarks, pattern):
    """{groups of the name: the benchmark}, in the order of the file."""
    matches = ((re.fullmatch(pattern, one["name"]), one) for one in benchmarks)
    return {match.groups(): one for match, one in matches if match}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " --: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# ---- Fragmentation ----

def draw_committed(peaks, names):
    """`peaks`: of each trace, by allocator, peak committed by peak in use. `names`: the allocators', in the order of the picture."""
    height = 60 + len(peaks) * (14 * len(names) + 16)
    picture = plot.Picture(780, height, "Peak committed memory over peak memory in use, by trace and allocator")
    x = plot.Scale(1, 2.5, 130, 560)
    picture.text(130, 24, "Peak committed by peak in use; 1 is what no allocator passes below", kind="title")
    y = 40
    for trace, each in peaks.items():
        picture.text(120, y + 7 * len(names) + 4, trace, "end")
        for i, allocator in enumerate(names):
            if allocator in each:
                ratio = each[allocator]
                picture.bar(x.start, y + 14 * i, x(ratio) - x.start, 11, f"f{i}")
                picture.text(x(ratio) + 5, y + 14 * i + 10, f"{ratio:.3f}")
        y += 14 * len(names) + 16
    picture.line([(x(AIM), 36), (x(AIM), y - 10)], "aim")
    picture.text(x(AIM), y + 4, f"aim {AIM}", "middle")
    picture.legend(610, 60, list(names.values()))
    picture.write("allocator-committed.svg")


def replay_section(replays, traces):
    def cells(allocator, value):
        return [value(replays[allocator, trace]) if (allocator, trace) in replays else "" for trace in traces]

    ratios = table(["committed over used"] + traces,
                   [[name] + cells(name, lambda one: f"{one['committed_over_used']:.3f}") for name in ALLOCATORS])
    peaks = "| peak in use |" + "".join(f" {size_words(replays['gpumem', t]['peak_in_use'] // (1 << 20) * (1 << 20))} |"
                                        if replays["gpumem", t]["peak_in_use"] < GIB else
                                        f" {replays['gpumem', t]['peak_in_use'] / GIB:.1f} GiB |" for t in traces)
    times = table(["ns for each call"] + traces,
                  [[name] + cells(name, lambda one: f"{one['call_ns']:.0f} ({one['per_mimalloc']:.2f})")
                   for name in ALLOCATORS])
    return f"{ratios}\n{peaks}\n\nIn brackets: divided by mimalloc's time for the same calls.\n\n{times}"


# ---- Speed ----

def draw_speed(pairs):
    picture = plot.Picture(780, 640, "Time of an allocation and its free by that of mimalloc, by size")
    sizes = sorted({int(size) for _, size, _ in pairs})
    for panel, threads in enumerate(("1", "4")):
        bottom = 300 + 310 * panel
        x = plot.Scale(sizes[0], sizes[-1], 60, 560, log=True)
        y = plot.Scale(0.03, 100, bottom, bottom - 250, log=True)
        picture.axes(x, y, [(size, size_words(size)) for size in sizes],
                     [(v, f"{v:g}") for v in (0.1, 1, 10, 100)],
                     f"Allocation and free, by mimalloc's, {threads} thread{'s' if threads != '1' else ''}")
        aim = 1.5 if threads == "1" else 2
        picture.line([(x.start, y(aim)), (x.end, y(aim))], "aim")
        for i, name in enumerate(SPEED):
            points = [(x(size), y(pairs[name, str(size), threads]["per_mimalloc"])) for size in sizes
                      if (name, str(size), threads) in pairs]
            picture.line(points, f"l{i}")
    picture.legend(580, 60, SPEED)
    picture.text(580, 60 + 18 * len(SPEED), "dashed: aim")
    picture.write("allocator-speed.svg")


def pair_section(pairs):
    sizes = sorted({int(size) for _, size, _ in pairs})
    parts = []
    for threads in ("1", "4"):
        rows = [[name] + [f"{pairs[name, str(size), threads]['per_mimalloc']:.2f}, "
                          f"{pairs[name, str(size), threads]['pair_ns']:.0f}" for size in sizes] for name in SPEED]
        rows.append(["mimalloc, ns"] + [f"{pairs['gpumem', str(size), threads]['mimalloc_ns']:.0f}" for size in sizes])
        head = [f"{threads} thread{'s' if threads != '1' else ''}"] + [size_words(size) for size in sizes]
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def batch_section(batches):
    sizes = sorted({int(size) for _, _, size in batches})
    rows = [[f"`{what}`, {name}"] + [f"{batches[what, name, str(size)]['per_mimalloc']:.2f}, "
                                     f"{batches[what, name, str(size)]['pair_ns']:.0f}" for size in sizes
                                     if (what, name, str(size)) in batches]
            for what in ("alloc_batch", "handover") for name in SPEED]
    return table(["by mimalloc's, ns"] + [size_words(size) for size in sizes], rows)


# ---- Memory given back ----

def given_back_section(benchmarks):
    named = {one["name"]: one for one in benchmarks}
    rows = []
    for name in ("given_back/burst", "given_back/scattered_burst"):
        one = named[name]
        rows.append([f"`{name}`"] + [f"{one[key] / MIB:,.1f}".replace(",", " ") for key in
                                     ("live", "committed_before", "committed_after", "over_live", "least_over_live", "largest_extent")])
    pressed = named["given_back/pressure"]
    words = (f"Pressed for everything it can spare at the end of the same burst, it gives {pressed['given_back'] / GIB:.1f} "
             f"GiB in {pressed['extents']:.0f} extents back in {pressed['trim_us'] / 1000:.2f} ms"
             + (f", {pressed['per_floor']:.1f} times what the memory alone takes to let go of as many."
                if "per_floor" in pressed else "."))
    return table(["MiB", "live", "committed at the end of the trace", "after the idle time", "over live",
                  "with extents of 2 MiB", "largest extent held"], rows) + "\n\n" + words


def growth_section(benchmarks):
    first = found(benchmarks, r"first_allocation/(\w+)")
    rows = [[f"first allocation of {size}", f"{one['first_us']:.0f}", f"{one['grow_us']:.0f}", f"{one['per_grow']:.2f}"]
            for (size,), one in first.items()]
    for (kind,), one in found(benchmarks, r"growth_curve/(\w+)").items():
        rows.append([f"8 GiB in blocks of 64 MiB, {kind.replace('_', ' ')}", f"{one['total_us']:.0f}",
                     f"{one['grow_us']:.0f}", f"{one['per_grow']:.2f}"])
    through_c = found(benchmarks, r"alloc_free/gpumem_c/size:(\d+)/threads:1")
    calls = table(["`gpumem_allocate` and `gpumem_deallocate`"] + [size_words(int(size)) for (size,) in through_c],
                  [["by mimalloc's, ns"] + [f"{one['per_mimalloc']:.2f}, {one['pair_ns']:.0f}"
                                            for one in through_c.values()]])
    words = [table(["", "us", "us, the slice alone", "by the slice's"], rows)]
    for one in found(benchmarks, r"(pressed_allocator)").values():
        words.append(f"Three eighths of the pool, a quarter of it taken from another user's allocator that has it cached: "
                     f"{one['pressed_ms']:.0f} ms from the growth to mapped memory, {one['slowest_ms']:.0f} at the most; "
                     f"{one['free_ms']:.1f} ms where all of it is free.")
    for (kind,), one in found(benchmarks, r"after_burst/(\w+)").items():
        words.append(f"After `{kind}` {one['over_live'] / MIB:.0f} MiB are held over what lives, {one['least'] / MIB:.0f} to "
                     f"{one['most'] / MIB:.0f} in five runs.")
    return "\n\n".join(words + ([calls] if through_c else []))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    benchmarks = json.loads(pathlib.Path(sys.argv[1]).read_text())["benchmarks"]
    replays = found(benchmarks, r"replay/(\w+)/([\w.-]+)")
    traces = list(dict.fromkeys(trace for _, trace in replays))
    pairs = found(benchmarks, r"alloc_free/(\w+)/size:(\d+)/threads:(\d+)")
    draw_speed(pairs)
    sections = {"replays": replay_section(replays, traces), "pairs": pair_section(pairs),
                "batches": batch_section(found(benchmarks, r"(alloc_batch|handover)/(\w+)/size:(\d+)")),
                "given_back": given_back_section(benchmarks)}
    if len(sys.argv) == 3:
        sections["growth"] = growth_section(json.loads(pathlib.Path(sys.argv[2]).read_text())["benchmarks"])
    page = PAGE.read_text()
    for name, words in sections.items():
        page = plot.fill_in(page, name, words)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
