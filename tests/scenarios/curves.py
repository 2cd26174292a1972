"""How many clients had come how far at which time, as SVG."""
import picture
from picture import LEFT, PLOT, RIGHT, WIDTH, number, path, text

HEIGHT = 300
TOP = 40.0
STAGES = (("connected", "connected", "0"), ("start", "has a slice", "1"), ("grow", "ready: has its memory", "2"))


def race(times: list[dict[str, float]], lone: float, bound: float) -> str:
    """`times` of each client's steps, `lone` one's time when it is alone, `bound` the time for all; seconds."""
    count = len(times)
    length = max(bound, max(max(one.values()) for one in times)) * 1.04
    bottom = TOP + HEIGHT

    def x_of(at: float) -> float:
        return LEFT + at / length * PLOT

    def y_of(clients: float) -> float:
        return bottom - clients / count * HEIGHT

    body = [text(14, 24, f"{count} clients that start at once: how many have come how far", "title")]
    for at in picture.ticks(length):
        body.append(path(f"M{number(x_of(at))} {number(TOP)}V{number(bottom)}", "axis"))
        body.append(text(x_of(at), bottom + 16, picture.time_words(at, length), "soft", "middle"))
    for clients in range(0, count + 1, max(1, count // 4)):
        body.append(path(f"M{LEFT} {number(y_of(clients))}H{WIDTH - RIGHT}", "axis"))
        body.append(text(LEFT - 8, y_of(clients) + 4, str(clients), "soft", "end"))
    for did, words, colour in STAGES:
        steps = [(0.0, 0)] + [(at, i + 1) for i, at in enumerate(sorted(one[did] for one in times if did in one))]
        body.append(path(picture.outline(steps, length, x_of, y_of), f"curve t{colour}"))
    for at, style, words in ((lone, "guarantee", "one alone"), (bound, "limit", "2 x one alone + work")):
        body.append(path(f"M{number(x_of(at))} {number(TOP)}V{number(bottom)}", style))
        left = x_of(at) > WIDTH / 2
        body.append(text(x_of(at) + (-5 if left else 5), bottom - 8, f"{words}: {picture.time_words(round(at, 3), length)}", "",
                         "end" if left else ""))
    x = LEFT
    for _, words, colour in STAGES:
        body.append(f'<rect class="t{colour}" x="{number(x)}" y="{number(bottom + 30)}" width="14" height="8"/>')
        body.append(text(x + 20, bottom + 38, words))
        x += 40 + len(words) * picture.CHARACTER
    return picture.document(bottom + 52, f"{count} clients at once", body)
