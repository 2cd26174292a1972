"""Calls that wait, which a signal calls off."""
import os
import signal
import threading

import gpumem
import pytest
from gpumem import MIB

from brokered import POOL, broker, context, kept, session  # noqa: F401, fixtures

LONG = 3600.0  # seconds: a wait that is not called off lasts longer than the test may


class Alarm(Exception):
    """Of a signal's handler, as KeyboardInterrupt is that of Ctrl-C."""


@pytest.fixture
def alarm():
    """Rings in a moment."""
    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_wait_for_a_region_is_called_off(session, alarm, broker):
    with pytest.raises(Alarm):
        session.map_region("never", wait=LONG)
    with session.open_slice() as slice:  # nobody waits for it any more, whose map would count
        slice.grow(2 * MIB)
        slice.publish("never")
        assert [one["mapped"] for one in broker.ask("regions")["regions"]] == [0]


def test_a_wait_for_what_another_makes_is_called_off(session, alarm):
    with gpumem.Session.connect(label="maker") as maker, maker.map_or_reserve("made"):
        with pytest.raises(Alarm):
            session.map_or_reserve("made", wait=LONG)


def test_a_wait_for_memory_is_called_off(session, alarm):
    with gpumem.Session.connect(label="holder") as holder, holder.open_slice() as all, session.open_slice() as slice:
        all.grow(POOL)
        with pytest.raises(Alarm):
            slice.grow(4 * MIB, wait=LONG)
        assert slice.committed == 0
        all.shrink(0)
        assert slice.grow(4 * MIB, wait=LONG) == 4 * MIB


def test_ctrl_c_ends_the_wait_of_an_allocation(session):
    with gpumem.Session.connect(label="holder") as holder, holder.open_slice() as all, \
         session.open_allocator(wait=LONG) as allocator:
        all.grow(POOL)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            allocator.allocate(4 * MIB)
        all.shrink(0)
        allocator.allocate(4 * MIB).free()


def test_a_signal_to_end_ends_the_waits_of_other_threads(session):
    codes = []

    def wait_for_never():
        try:
            session.map_region("never", wait=LONG)
        except gpumem.GpumemError as error:
            codes.append(error.code)

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    thread = threading.Thread(target=wait_for_never)
    thread.start()
    while thread.is_alive():
        os.kill(os.getpid(), signal.SIGTERM)  # it may come before the wait
        thread.join(0.1)
    signal.signal(signal.SIGTERM, before)
    assert codes == [gpumem.Code.CANCELLED]


def test_what_other_threads_wait_for_comes(session):
    found = []
    thread = threading.Thread(target=lambda: found.append(session.map_region("later", wait=LONG).version))
    thread.start()
    with session.open_slice() as slice:
        slice.grow(2 * MIB)
        version = slice.publish("later")
        thread.join()
        assert found == [version]


def test_words_of_a_wait_in_vain_are_the_brokers(session):
    with gpumem.Session.connect(label="holder") as holder, holder.open_slice() as all, session.open_slice() as slice:
        all.grow(POOL)
        with pytest.raises(gpumem.OutOfMemory, match="MiB"):
            slice.grow(4 * MIB, wait=0.05)
    with pytest.raises(gpumem.NotFound, match="never"):
        session.map_region("never", wait=0.05)
