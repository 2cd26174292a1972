"""program.py PACKAGE FIRST LINKAGE SCENARIO: a process that uses a package and gpumem together.

FIRST    `package` or `gpumem`: whose libraries are loaded first.
LINKAGE  `default`, or `global`: every library's symbols are seen by those loaded after it.
It prints `done` and ends with status 0, or says what went wrong.
"""
import multiprocessing
import os
import signal
import sys
import threading
import traceback

import gpumem
from gpumem import MIB

from packages import ENDS_AT_ONCE_IN_A_FORK, WORK

ROUNDS = 20
# A child that hangs is a failure, not a test that never ends.
HANG_SECONDS = 120


def load_gpumem(linkage: str) -> None:
    if linkage == "global":
        import ctypes

        ctypes.CDLL(os.environ["GPUMEM_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
    assert gpumem.version() == gpumem.__version__
    with gpumem.Session.connect(label="first") as session:
        session.ping()


def begin(package: str, first: str, linkage: str) -> None:
    if linkage == "global":
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    load = [WORK[package], lambda: load_gpumem(linkage)]
    for one in load if first == "package" else reversed(load):
        one()
    # From here on, standard error is gpumem's alone.
    os.dup2(int(os.environ["COEXISTENCE_STDERR"]), 2)


def borrow(session: gpumem.Session) -> None:
    """Blocks and a slice, given back."""
    with session.open_allocator() as allocator:
        for size in (1, 300, MIB, 3 * MIB + 5) * 5:
            allocator.allocate(size).free()
    with session.open_slice() as slice:
        assert slice.grow(4 * MIB) == 4 * MIB


def borrow_anew() -> None:
    with gpumem.Session.connect(label="child") as session:
        borrow(session)


def refuse_memory() -> None:
    """In a child of a process that has started the driver: it can connect, and is told why it has no memory."""
    with gpumem.Session.connect(label="child") as session:
        session.ping()
        refused(session.open_allocator, "before this process was forked")


def refused(call, why: str) -> None:
    try:
        call()
    except gpumem.FailedPrecondition as error:
        assert why in str(error), error
        return
    raise AssertionError(f"{call} was not refused")


def in_fork(body, *, exits: bool) -> None:
    """Runs `body` in a forked child, which must succeed. `exits`: as a program ends, else at once."""
    process = os.fork()
    if process:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0, "the child failed"
        return
    signal.alarm(HANG_SECONDS)
    try:
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if exits:
        sys.exit(0)
    os._exit(0)


def fork(package: str) -> None:
    """Forks before and after the driver is started. Both go on."""
    exits = package not in ENDS_AT_ONCE_IN_A_FORK
    with gpumem.Session.connect(label="parent") as session:
        def child() -> None:
            refused(session.ping, "forked")
            borrow_anew()

        in_fork(child, exits=exits)
        borrow(session)
        with session.open_allocator() as allocator, allocator.allocate(MIB) as block:
            def late_child() -> None:
                refused(block.free, "forked")
                refuse_memory()

            in_fork(late_child, exits=exits)
            allocator.allocate(MIB).free()
            WORK[package]()
            block.extend(MIB // 2)
        borrow(session)
        session.ping()


def started_child(package: str) -> None:
    signal.alarm(HANG_SECONDS)
    WORK[package]()
    borrow_anew()


def start(package: str, method: str) -> None:
    """A child of multiprocessing borrows, then its parent, then, if it starts anew, another child."""
    context = multiprocessing.get_context(method)
    # A forked child of a process that has used gRPC or TensorFlow may not use these; it may use gpumem.
    target, arguments = (borrow_anew, ()) if method == "fork" else (started_child, (package,))

    def run() -> None:
        child = context.Process(target=target, args=arguments)
        child.start()
        child.join()
        assert child.exitcode == 0, "the child failed"

    with gpumem.Session.connect(label="parent") as session:
        run()
        borrow(session)
        if method != "fork":
            run()
        borrow(session)
    WORK[package]()


def fork_amid(call, body) -> None:
    """Forks ROUNDS times from a thread while two others are in the middle of `call`."""
    ended, failed = threading.Event(), []

    def guarded(work) -> None:
        try:
            work()
        except BaseException:
            failed.append(traceback.format_exc())

    def busy() -> None:
        while not ended.is_set():
            call()

    def forks() -> None:
        try:
            for _ in range(ROUNDS):
                in_fork(body, exits=False)
        finally:
            ended.set()

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (busy, busy, forks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def threads(package: str) -> None:
    """Other threads connect, call the broker and allocate while one forks."""
    with gpumem.Session.connect(label="parent") as session:
        def calls() -> None:
            session.ping()
            session.usage()
            gpumem.Session.connect(label="busy").close()

        fork_amid(calls, borrow_anew)
        with session.open_allocator() as allocator, allocator.allocate(MIB):
            def allocations() -> None:
                with allocator.allocate(2 * MIB), allocator.allocate(300):
                    session.ping()

            fork_amid(allocations, refuse_memory)
            allocator.trim()
        borrow(session)
    WORK[package]()


def main(package: str, first: str, linkage: str, scenario: str) -> None:
    begin(package, first, linkage)
    if scenario in multiprocessing.get_all_start_methods() and scenario != "fork":
        start(package, scenario)
    else:
        {"fork": fork, "threads": threads, "multiprocessing-fork": lambda name: start(name, "fork")}[scenario](package)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
