"""Processes of a test's own, each with a channel to the test."""
import contextlib
import multiprocessing
import multiprocessing.reduction
from multiprocessing.connection import Connection

# A driver does not survive fork().
multiprocessing.set_start_method("spawn", force=True)


@contextlib.contextmanager
def child(body, *arguments):
    """Runs body(channel, *arguments) in a process of its own and gives the test the channel's other end. Leaving waits
    for the process, which must have succeeded; a test that fails meanwhile ends it. A `recv` from a process that ended
    raises EOFError."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=body, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours
        process.join()
        assert process.exitcode == 0, "the child failed"
    finally:
        if process.is_alive():
            process.kill()
            process.join()


def send_fd(channel: Connection, fd: int) -> None:
    """Sends a copy of the descriptor, by SCM_RIGHTS."""
    multiprocessing.reduction.send_handle(channel, fd, None)


def receive_fd(channel: Connection) -> int:
    """The caller closes it."""
    return multiprocessing.reduction.recv_handle(channel)
