"""Regions of the host store: one copy of a data set for processes and their forked workers, without a GPU."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import gpumem
import gpumem.safetensors
import numpy as np
import pytest
from gpumem import MIB

import safetensors_file
from brokered import BUILD, Broker, context, eventually, kept, session  # noqa: F401, fixtures
from test_gpumem_examples import run

PROGRAM = pathlib.Path(__file__).with_name("data_set_program.py")
# Larger by hand, as on a machine that trains: GPUMEM_DATA_SET_BYTES=2147483648.
DATA_SET = int(os.environ.get("GPUMEM_DATA_SET_BYTES", 64 * MIB))
READERS, WORKERS = 4, 4


@pytest.fixture(scope="module")
def broker():
    with Broker(f'[host]\nsize = "{4 * DATA_SET}"\n') as running:
        yield running


@pytest.fixture
def arrays():
    return {"images": np.arange(MIB, dtype="uint8").reshape(1024, 1024), "labels": np.arange(1024, dtype="int64")}


def store(broker) -> dict:
    [device] = [device for device in broker.devices() if device["uuid"] == "host"]
    return device


def test_arrays_are_read_in_place_and_charged_once(session, broker, arrays):
    with gpumem.publish_arrays(session, "data", arrays, device="host") as publication:
        charged = broker.lent()
        assert publication.device == "host" and publication.slice.ordinal == -1
        with session.map_region("data", device="host") as region:
            found = region.arrays()
            images = np.asarray(found["images"])
            assert (images == arrays["images"]).all() and not images.flags.writeable
            assert found["images"].__dlpack_device__() == (1, 0)
            assert (np.from_dlpack(found["labels"]) == arrays["labels"]).all()
            assert not hasattr(found["images"], "__cuda_array_interface__")
            assert broker.lent() == charged
        del found, images


def test_views_are_of_the_same_bytes(session):
    with session.open_slice(device="host") as slice:
        slice.grow(2 * MIB)
        slice.view()[:4] = b"data"
        with pytest.raises(gpumem.InvalidArgument, match="not committed"):
            slice.view(MIB, 2 * MIB)
        slice.publish("bytes")
        region, writer = session.map_region("bytes"), session.map_region("bytes", writable=True)
        shown = region.view()
        assert shown.readonly and bytes(shown[:4]) == b"data" and len(shown) == 2 * MIB
        writer.view()[:4] = b"more"
        region.close()
        assert bytes(shown[:4]) == b"more", "a view keeps it mapped"
        writer.close()
        del shown


@pytest.mark.parametrize("writable", [False, True])
def test_it_is_pinned_where_a_device_is_to_copy_it(session, context, arrays, writable):
    from bindings import cu, ok

    ok(cu.cuCtxPushCurrent(context))
    with gpumem.publish_arrays(session, "data", arrays, device="host"):
        with session.map_region("data", writable=writable, pinned=True) as region:
            assert region.is_pinned
        with session.map_region("data", writable=writable) as region:
            assert not region.is_pinned
    ok(cu.cuCtxPopCurrent())


def test_a_device_takes_the_arrays_and_gives_its_own(session, arrays):
    with gpumem.publish_arrays(session, "data", arrays, device="host", private=["labels"]):
        with session.map_region("data") as region:
            copied = region.arrays()
            np.asarray(copied["labels"])[0] = 7  # a copy of its own
            with gpumem.publish_arrays(session, "on the GPU", copied) as on_device:
                assert on_device.device != "host"
                with session.map_region("on the GPU") as other:
                    with gpumem.publish_arrays(session, "back", other.arrays(private=()), device="host"):
                        with session.map_region("back") as back:
                            assert back.arrays()["labels"].tobytes()[:8] == b"\7" + bytes(7)
            del copied


def test_files_are_published_and_read_from_the_command_line(session, broker, tmp_path):
    raw, tensors = tmp_path / "bytes.bin", tmp_path / "arrays.safetensors"
    raw.write_bytes(os.urandom(3 * MIB + 5))
    safetensors_file.write(tensors, {"weight": np.arange(MIB, dtype="float32")})
    with gpumem.safetensors.publish_safetensors(session, tensors, "arrays", device="host"):
        assert broker._run("verify", "arrays", str(tensors)).returncode == 0
    command = [BUILD / "client/cli/gpumem", "--runtime-dir", broker.runtime]
    publisher = subprocess.Popen([*command, "publish", raw, "--device", "host"], stdout=subprocess.PIPE, text=True)
    try:
        assert " on host, sharing private" in publisher.stdout.readline()
        assert subprocess.run([*command, "cat", raw.name], capture_output=True).stdout == raw.read_bytes()
    finally:
        publisher.send_signal(signal.SIGINT)
        publisher.wait()


def test_the_example_loads_it_once_and_forks_workers(broker):
    assert re.fullmatch(r"\d+ MiB on host, the mean is 0\.500\n", run("data_set.py"))
    eventually(broker.at_rest, "nothing lent")


class Reader:
    """A process that maps the data set and forks workers; see data_set_program.py."""

    def __init__(self):
        self._process = subprocess.Popen([sys.executable, PROGRAM, str(WORKERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, env={**os.environ, "GPUMEM_DRIVER_DIR": "/nonexistent"})
        self.said = json.loads(self._process.stdout.readline())
        self.pids = [self._process.pid, *self.said["workers"]]

    def kill_a_worker(self) -> None:
        os.kill(self.pids.pop(), signal.SIGKILL)

    def kill(self) -> None:
        self._process.kill()
        self._process.stdin.close()  # its workers end
        self._process.wait()

    def leave(self) -> None:
        self._process.stdin.close()
        assert self._process.wait() == 0


def shared_bytes(pid: int) -> int:
    """Of the mappings of the store: what is the process's part of pages that several have (Pss)."""
    total, counts = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            counts = "/memfd:gpumem-host" in line
        elif counts and words[0] == "Pss:":
            total += int(words[1]) << 10
    return total


def test_four_processes_with_four_workers_each_have_one_copy_of_a_data_set(broker, session):
    data = np.random.default_rng(1).integers(0, 256, DATA_SET, dtype="uint8")
    publication = gpumem.publish_arrays(session, "data set", {"data": data}, device="host", keep=True)
    publication.release()  # nobody has it now
    charged = store(broker)["active"]
    readers = [Reader() for _ in range(READERS)]
    try:
        whole = int(data.sum(dtype="uint64"))
        for reader in readers:
            assert reader.said["sums"] == [whole] * (1 + WORKERS)
        assert sum(shared_bytes(pid) for reader in readers for pid in reader.pids) <= 1.15 * DATA_SET
        assert store(broker)["active"] == charged, "readers and workers cost nothing"
        for reader in readers:
            reader.kill_a_worker()
        readers.pop().kill()  # and its workers, which see the end of its pipe
        assert sum(shared_bytes(pid) for reader in readers for pid in reader.pids) <= 1.15 * DATA_SET
    finally:
        for reader in readers:
            reader.leave()
    session.remove_region("data set")
    eventually(lambda: broker.lent() == 0, "nothing lent")
