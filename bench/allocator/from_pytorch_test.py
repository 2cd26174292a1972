#!/usr/bin/env python3
"""Tests of from_pytorch.py on snapshots as PyTorch writes them."""
import unittest

from from_pytorch import lines_of


def event(action, addr, size, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1}


class FromPytorch(unittest.TestCase):
    def test_allocations_and_frees_become_lines_and_other_events_do_not(self):
        history = [event("segment_alloc", 1000, 2 << 20), event("alloc", 1000, 512), event("alloc", 1512, 100),
                   event("free_requested", 1000, 512), event("free_completed", 1000, 512), event("alloc", 1000, 300)]
        self.assertEqual(lines_of({"device_traces": [history]}), ["a 0 512 0", "a 1 100 0", "f 0 0", "a 2 300 0"])

    def test_streams_are_numbered_as_they_come(self):
        history = [event("alloc", 1, 8, 0x55aa), event("alloc", 2, 8, 0), event("alloc", 3, 8, 0x66bb),
                   event("free_requested", 1, 8, 0x55aa)]
        self.assertEqual(lines_of({"device_traces": [history]}), ["a 0 8 1", "a 1 8 0", "a 2 8 2", "f 0 1"])

    def test_what_was_there_before_comes_first(self):
        history = [event("free_requested", 7, 64), event("alloc", 9, 8)]
        segment = {"device": 0, "address": 100, "stream": 0,
                   "blocks": [{"state": "inactive", "size": 50},
                              {"state": "active_allocated", "size": 512, "requested_size": 500}]}
        elsewhere = {"device": 1, "address": 300, "stream": 0, "blocks": [{"state": "active_allocated", "size": 1}]}
        snapshot = {"device_traces": [history], "segments": [segment, elsewhere]}
        self.assertEqual(lines_of(snapshot), ["a 0 500 0", "a 1 64 0", "f 1 0", "a 2 8 0"])

    def test_without_a_history_it_says_what_to_do(self):
        with self.assertRaisesRegex(ValueError, "_record_memory_history"):
            lines_of({"device_traces": [[]]})


if __name__ == "__main__":
    unittest.main()
