#!/usr/bin/env python3
"""Makes a trace for gpumem_allocator_bench of what PyTorch's allocator noted.

    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=10_000_000)
    ...                                               # some training steps
    torch.cuda.memory._dump_snapshot("steps.pickle")  # or pickle.dump(torch.cuda.memory._snapshot(), file)

    bench/allocator/from_pytorch.py steps.pickle steps.trace [--device 0]

Blocks that were there before the recording began come first: they are those that are freed without having been
allocated, and those of the snapshot that are in use and never named. A block counts as freed when the program
let go of it; whether another stream still used it, PyTorch has to find out, and so has gpumem. Streams are numbered in
the order in which they come, the default stream being 0. Reading a pickle runs what it says: only take your own.
"""
import argparse
import pathlib
import pickle
import sys


def old_blocks(snapshot, device, events):
    """{address: (bytes, stream)} of what is in use all the time, as the snapshot's segments have it."""
    named = {event["addr"] for event in events}
    found = {}
    for segment in snapshot.get("segments", []):
        if segment.get("device", 0) != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            address = block.get("address", address)
            if block["state"] == "active_allocated" and address not in named:
                found[address] = (block.get("requested_size") or block["size"], segment.get("stream", 0))
            address += block["size"]
    return found


def lines_of(snapshot, device=0):
    """The trace's lines. Raises ValueError where the snapshot has no history of the device."""
    histories = snapshot.get("device_traces", [])
    if device >= len(histories) or not histories[device]:
        raise ValueError(f"no history of device {device}: call torch.cuda.memory._record_memory_history() first")
    events = [event for event in histories[device] if event["action"] in ("alloc", "free_requested")]
    streams = {0: 0}
    live = {}
    before, during = [], []

    def number(stream):
        return streams.setdefault(stream, len(streams))

    next_block = 0
    for address, (size, stream) in sorted(old_blocks(snapshot, device, events).items()):
        before.append(f"a {next_block} {size} {number(stream)}")
        next_block += 1
    for event in events:
        address, size, stream = event["addr"], event["size"], number(event.get("stream", 0))
        if event["action"] == "alloc":
            if size == 0:
                continue
            live[address] = next_block
            during.append(f"a {next_block} {size} {stream}")
            next_block += 1
        elif address in live:
            during.append(f"f {live.pop(address)} {stream}")
        elif size > 0:
            before.append(f"a {next_block} {size} {stream}")
            during.append(f"f {next_block} {stream}")
            next_block += 1
    return before + during


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=pathlib.Path)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--device", type=int, default=0, help="ordinal (default 0)")
    arguments = parser.parse_args()
    with arguments.snapshot.open("rb") as file:
        snapshot = pickle.load(file)
    try:
        lines = lines_of(snapshot, arguments.device)
    except ValueError as wrong:
        sys.exit(f"{arguments.snapshot}: {wrong}")
    arguments.trace.write_text(f"# from {arguments.snapshot.name}\n" + "\n".join(lines) + "\n")
    print(f"{arguments.trace}: {len(lines)} calls")


if __name__ == "__main__":
    main()
