#!/usr/bin/env python3
"""The drawing, from events written by hand: what must be in it, its size, and that it is always the same."""
import unittest
import xml.etree.ElementTree

import history
import picture

GIB = 1 << 30
SVG = "{http://www.w3.org/2000/svg}"


def event(milliseconds: int, kind: str, tenant: str, gibibytes: int = 0, **more: object) -> history.Event:
    return {"time": f"2030-01-01T00:00:{milliseconds // 1000:02}.{milliseconds % 1000:03}000Z", "kind": kind, "tenant": tenant,
            "bytes": gibibytes * GIB, **more}


EVENTS = [event(0, "granted", "ann", 10), event(10, "granted", "bob", 12), event(200, "waiting", "carol", 8),
          event(201, "pressure", "ann", 6), event(201, "pressure", "bob", 2), event(230, "returned", "bob", 2),
          event(240, "freed", "bob", 2), event(300, "returned", "ann", 6), event(320, "freed", "ann", 6),
          event(325, "granted", "carol", 8, waited_ms=125), event(700, "denied", "carol", 30),
          event(800, "debt", "ann", 2), event(850, "debt-paid", "ann"), event(900, "terminating", "bob"),
          event(950, "killing", "bob"), event(960, "freed", "bob", 10)]


def panel(title: str = "a claim & <its> way") -> picture.Panel:
    start = history.seconds(EVENTS[0])
    quota = (2 * GIB, [(start, 20 * GIB), (start + 0.75, 10 * GIB)])
    return picture.panel(title, EVENTS, {name: quota for name in ("ann", "bob", "carol")}, start, start + 1)


class Drawing(unittest.TestCase):
    def test_charged_bytes_follow_the_events(self) -> None:
        self.assertEqual([history.charged(EVENTS, name) // GIB for name in ("ann", "bob", "carol")], [4, 0, 8])
        self.assertEqual([count // GIB for _, count in panel().tracks[1].charged], [0, 12, 10, 0])

    def test_what_came_before_a_panel_is_charged_in_it(self) -> None:
        later = history.track(EVENTS, "bob", history.seconds(EVENTS[0]) + 0.5, 0, 0)
        self.assertEqual(picture.value_at(later.charged, 0.0), 10 * GIB)
        self.assertEqual([mark.kind for mark in later.marks], ["terminating", "killing"])

    def test_is_xml_and_names_everything(self) -> None:
        root = xml.etree.ElementTree.fromstring(picture.timeline("claims", [panel()]))
        words = {element.text for element in root.iter(f"{SVG}text")}
        for expected in ("ann", "carol", "asks for 8 GiB", "give back 6 GiB", "granted after 125 ms", "30 GiB refused", "SIGKILL",
                         "a claim & <its> way", "guarantee", "limit"):
            self.assertIn(expected, words)

    def test_is_the_same_each_time_and_small(self) -> None:
        drawn = picture.timeline("claims", [panel(), panel()])
        self.assertEqual(drawn, picture.timeline("claims", [panel(), panel()]))
        self.assertLess(len(drawn), 60 * 1024)

    def test_words_do_not_lie_on_each_other(self) -> None:
        words = picture.Words(0)
        places = [words.place(200 + i, "give back 6 GiB") for i in range(6)]
        self.assertEqual(len(set(places)), 6)
        for row in {y for _, y in places}:
            starts = sorted(x for x, y in places if y == row)
            self.assertTrue(all(b - a > 15 * picture.CHARACTER for a, b in zip(starts, starts[1:])))

    def test_many_events_draw_few_points(self) -> None:
        steps = [(i / 10_000, i) for i in range(10_000)]
        line = picture.outline(steps, 1.0, lambda at: at * 700, lambda count: float(count))
        self.assertLess(line.count("H"), 3600)


if __name__ == "__main__":
    unittest.main()
