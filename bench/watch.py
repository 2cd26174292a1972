#!/usr/bin/env python3
"""The cost of viewers: processor time of the broker, its deciding thread and `gpumem top`, and the time of a growth beside them.

    bench/watch.py [--build build/release] [--sessions 2000] [--changes 200] [--viewers 1] [--nice 0] [--seconds 20]

Starts a broker on a simulated device, and opens the sessions from a few processes. They grow and shrink, `changes` times a second.
Then it starts the viewers, each on a terminal of its own. More than 16 viewers need root, because a user has 16 at most. Prints
percents of one processor over the seconds, with viewers, and before and after that without. The deciding thread is the one that has
worked most while the sessions came. In each of the three, one more program asks for 2 MiB every 5 ms. It is another user's, if root
runs this. Before each request it times an echo: a byte to a process that sends it back. The slowdown of the echo is the machine's
part, which no broker can save.
"""
import argparse
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time

from running_broker import running_broker

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROCESSES = 8
VIEWERS_OF_A_USER = 16
FIRST_USER = 10_001
GROUP = 10_000
OPEN = """
import sys, time, gpumem
count, pause = int(sys.argv[1]), float(sys.argv[2])
kept = []
for i in range(count):
    session = gpumem.Session.connect(label=f"bench {i}", timeout=60)
    kept.append((session, session.open_slice(limit=64 << 20)))
print("there", flush=True)
due = time.monotonic()
for i in range(sys.maxsize if pause else 0):
    held = kept[i % count][1]
    held.shrink(0) if i // count % 2 else held.grow(2 << 20)
    due = max(due + pause, time.monotonic() - 1)
    time.sleep(max(0, due - time.monotonic()))
sys.stdin.read()
"""
GROW = """
import os, socket, sys, time
near, far = socket.socketpair()
if os.fork() == 0:
    near.close()
    while byte := far.recv(1):
        far.send(byte)
    os._exit(0)
far.close()
import gpumem
held = gpumem.Session.connect(label="growth").open_slice(limit=64 << 20)
print("there", flush=True)

def timed(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun

for seconds in map(float, sys.stdin):
    echoes, growths, end = [], [], time.monotonic() + seconds
    while time.monotonic() < end:
        echoes.append(timed(lambda: (near.send(b"x"), near.recv(1))))
        growths.append(timed(lambda: held.grow(2 << 20)))
        held.shrink(0)
        time.sleep(0.005)
    print(*(round(1e6 * sorted(times)[len(times) * part // 100]) for times in (echoes, growths) for part in (50, 99)), flush=True)
"""


def ticks(stat: str) -> int:
    fields = pathlib.Path(stat).read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def threads(pid: int) -> dict[str, int]:
    return {task.name: ticks(f"{task}/stat") for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def measured(broker: int, deciding: str, viewers: list[int], grower: subprocess.Popen, seconds: float) -> dict[str, float]:
    def now() -> tuple[int, int, int]:
        return ticks(f"/proc/{broker}/stat"), threads(broker)[deciding], sum(ticks(f"/proc/{pid}/stat") for pid in viewers)

    before = now()
    print(seconds, file=grower.stdin, flush=True)
    times = [int(time) for time in grower.stdout.readline().split()]
    percents = [100 * (b - a) / os.sysconf("SC_CLK_TCK") / seconds for a, b in zip(before, now())]
    return dict(zip(("broker_percent", "deciding_thread_percent", "viewers_percent", "echo_p50_us", "echo_p99_us", "growth_p50_us",
                     "growth_p99_us"),
                    [round(one, 2) for one in percents] + times))


def started(program: str, *arguments: object, **options: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, **options)


def await_there(programs: list[subprocess.Popen]) -> None:
    for program in programs:
        if program.stdout.readline() != "there\n":
            sys.exit("sessions cannot be opened")


def drained(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def start_viewer(program: pathlib.Path, number: int, nicer: int) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.nice(nicer)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(FIRST_USER + number // VIEWERS_OF_A_USER)
        os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        os.execv(program, [program, "top"])
    threading.Thread(target=drained, args=(terminal,), daemon=True).start()
    return pid


def end(viewers: list[int]) -> None:
    for pid in viewers:
        os.kill(pid, signal.SIGTERM)
    while viewers:
        os.waitpid(viewers.pop(), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--changes", type=float, default=200, help="a second, of all sessions")
    parser.add_argument("--viewers", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0, help="how much nicer the viewers are")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="gpumem-watch-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        runtime = folder / "run"
        os.environ |= {"GPUMEM_RUNTIME_DIR": str(runtime), "GPUMEM_LIBRARY": str(build / "client/libgpumem.so.0"),
                       "PYTHONPATH": str(ROOT / "client/python/src")}
        config = folder / "gpumemd.toml"
        config.write_text(f"[broker]\nreserve = \"all-but 1GiB\"\n{f'socket_group = {GROUP}' if os.geteuid() == 0 else ''}\n")
        openers, viewers = [], []
        with running_broker(build, runtime, "--config", config, "--state-dir", folder / "state", "--simulate", "1x24GiB") as broker:
            try:
                before = threads(broker.pid)
                pause = PROCESSES / options.changes if options.changes else 0
                openers = [started(OPEN, options.sessions // PROCESSES, pause) for _ in range(PROCESSES)]
                await_there(openers)
                worked = {task: now - before.get(task, 0) for task, now in threads(broker.pid).items()}
                deciding = max(worked, key=lambda task: worked[task])
                other = {"user": FIRST_USER - 1, "group": GROUP} if os.geteuid() == 0 else {}
                grower = started(GROW, **other)
                openers.append(grower)
                await_there([grower])
                of_broker = (broker.pid, deciding)
                before_viewers = measured(*of_broker, [], grower, options.seconds)
                viewers = [start_viewer(build / "client/cli/gpumem", number, options.nice) for number in range(options.viewers)]
                time.sleep(3)  # the first whole samples
                with_viewers = measured(*of_broker, viewers, grower, options.seconds)
                end(viewers)
                after_viewers = measured(*of_broker, [], grower, options.seconds)
                print(json.dumps({"sessions": options.sessions, "changes": options.changes, "viewers": options.viewers,
                                  "before": before_viewers, "with": with_viewers, "after": after_viewers}, indent=2))
            finally:
                end(viewers)
                for opener in openers:
                    opener.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
