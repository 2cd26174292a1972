"""The commands `gpumem publish`, `cat` and `verify` hand files of safetensors over to Python."""
import contextlib
import gc
import json
import os
import signal
import struct
import subprocess
import sys

import gpumem
import numpy as np
import pytest
from gpumem import MIB, InvalidArgument
from gpumem.safetensors import publish_safetensors, read_header

from bindings import cu, ok
from brokered import BUILD, PATIENCE_SECONDS, broker, context, eventually, kept, session  # noqa: F401, fixtures
from test_gpumem_safetensors import entry, file_of, saved


def gpumem_command(*words: object, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run([BUILD / "client/cli/gpumem", *map(str, words)], capture_output=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@contextlib.contextmanager
def published(path: object, *words: str):
    """A file, published as `weights` by the command."""
    said = json.loads(gpumem_command("publish", path, "--name", "weights", "--keep", "--json", *words).stdout)
    try:
        yield said
    finally:
        gc.collect()
        gpumem_command("regions", "rm", "weights", "--version", said["version"])


def some_tensors() -> dict:
    dice = np.random.default_rng(7)
    return {"embed.weight": dice.standard_normal((300, 64), dtype="float32"), "steps": np.array(3, dtype="int64"),
            "none": np.zeros((0, 3), dtype="float16"), "mask": dice.random(1001) < 0.5, "empty": np.zeros((2, 0), dtype="bool"),
            "bn.running_mean": dice.standard_normal(7, dtype="float32"), "x.moving_average.y": np.ones(3, dtype="uint8"),
            "gewicht-\u00e4\U0001f600\"\\": np.arange(5000, dtype="uint8"),
            "large": np.frombuffer(dice.bytes(17 * MIB + 3), dtype="uint8")}


TEXTS = {"format": "np", "\u00e4": "\x00\x1f\x7f\b\f\n\r\t\"\\/\u2028\u00e9\U0001f600", "Z": ""}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved(some_tensors(), TEXTS))
    return path


def test_it_publishes_what_publish_safetensors_does(session, path):
    with published(path) as said, publish_safetensors(session, path, "python") as publication:
        with session.map_region("weights") as mine, session.map_region("python") as theirs:
            assert said["arrays"] == len(some_tensors()) and said["bytes"] == mine.size == theirs.size
            assert mine.digest == theirs.digest == publication.digest and mine.layout == theirs.layout
            assert mine.read_layout() == publication.layout
            arrays = mine.arrays(expect_digest=publication.digest)
            assert arrays.metadata == TEXTS
            for name, tensor in some_tensors().items():
                assert arrays[name].shape == tensor.shape and arrays[name].tobytes() == tensor.tobytes(), name
            assert [name for name, one in arrays.items() if not one.read_only] == ["bn.running_mean", "x.moving_average.y"]
            del arrays
        gc.collect()


@contextlib.contextmanager
def holding(path: object, *words: str):
    """The command, once it has published, until it ends."""
    with subprocess.Popen([BUILD / "client/cli/gpumem", "publish", path, "--name", "held", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as command:
        try:
            yield command, command.stdout.readline()
        finally:
            command.kill()


def test_it_holds_the_region_until_it_is_interrupted(broker, session, path):
    for interruption in (signal.SIGINT, signal.SIGTERM):
        with holding(path, "--life", "1h") as (command, said):
            assert said.startswith("published 'held', version ") and " in 9 arrays on gpu0, " in said, said
            assert said.endswith("sharing private; kept until this program is interrupted or 3600 s are over\n"), said
            session.map_region("held").close()
            command.send_signal(interruption)
            status = command.wait(PATIENCE_SECONDS)
            assert (status, command.stderr.read()) == (0, "")
        with pytest.raises(gpumem.NotFound):
            session.map_region("held")


def test_a_life_that_is_over_ends_it(path):
    with holding(path, "--life", "500ms") as (command, _):
        assert command.wait(PATIENCE_SECONDS) == 0


def test_it_gives_the_memory_back_when_the_region_is_removed(broker, path):
    with holding(path) as (command, _):
        gpumem_command("regions", "rm", "held")
        assert command.wait(PATIENCE_SECONDS) == 1
        assert "has ended: it was removed" in command.stderr.read()
    eventually(lambda: broker.lent() == 0, "no memory is lent")


def test_the_options_are_those_of_a_region(broker, session, path):
    device = broker.devices()[1]["uuid"]
    said = json.loads(gpumem_command("publish", path, "--device", "1", "--keep", "--linger", "2h", "--seal", "--sharing", "group",
                                     "--wait", "1s", "--json").stdout)
    assert said["device"] == device and said["sharing"] == "group" and said["owner"] == session.tenant
    [region] = broker.ask("regions")["regions"]
    assert (region["name"], region["version"], region["device"]) == ("model.safetensors", said["version"], device)
    assert region["kept"] and region["linger_ms"] == 7_200_000 and region["sealed"] and region["sharing"] == "group"
    gpumem_command("regions", "rm", "model.safetensors")


def test_a_broker_that_refuses_is_not_missing(session, path, monkeypatch):
    from gpumem import _safetensors_command

    def refuse(*_, **__):
        raise gpumem.Unavailable("nothing is lent")

    monkeypatch.setattr(_safetensors_command, "publish_safetensors", refuse)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert _safetensors_command.main(["publish", str(path)]) == 1
        monkeypatch.setenv("GPUMEM_RUNTIME_DIR", "/nowhere")
        assert _safetensors_command.main(["publish", str(path)]) == 3
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_the_module_is_a_command_of_its_own(session, path):
    with published(path):
        done = subprocess.run([sys.executable, "-m", "gpumem.safetensors", "verify", "weights", path], capture_output=True)
        assert done.returncode == 0 and b"are equal" in done.stdout and not done.stderr, done
        done = subprocess.run([sys.executable, "-m", "gpumem.safetensors", "cat", "nothing"], capture_output=True)
        assert done.returncode == 1 and done.stderr.startswith(b"gpumem: ") and b"'nothing'" in done.stderr


def test_what_is_read_again_is_such_a_file(session, path, tmp_path):
    copy = tmp_path / "copy.safetensors"
    with published(path):
        copy.write_bytes(gpumem_command("cat", "weights").stdout)
        assert gpumem_command("verify", "weights", path).stdout.startswith(b"'weights' and")
        gpumem_command("verify", "weights", copy)
        with session.map_region("weights") as region:
            raw = gpumem_command("cat", "weights", "--raw").stdout
            assert len(raw) == region.size and raw.endswith(region.read_layout().encoded)
        (tmp_path / "raw").write_bytes(raw)
        gpumem_command("verify", "weights", tmp_path / "raw")
    for one in (path, copy):
        with open(one, "rb") as file:
            header = read_header(file)
        assert [tensor.name for tensor in header.tensors] == list(some_tensors()) and header.metadata == TEXTS


def test_the_file_comes_back_as_the_package_safetensors_has_written_it(session, tmp_path):
    """Compact JSON, spaces up to a multiple of 8."""
    text = (b'{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
            b'"a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}')
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(text + b" " * (-len(text) % 8), bytes(range(9))))
    with published(path):
        assert gpumem_command("cat", "weights").stdout == path.read_bytes()


def test_arrays_of_any_publisher_are_read_as_such_a_file(session, tmp_path):
    copy = tmp_path / "copy.safetensors"
    with gpumem.publish_arrays(session, "python", {"w": np.arange(7, dtype="float32"), "b": bytes(3)}, metadata={"step": "7"},
                               array_metadata={"w": {"scale": "2"}}):
        copy.write_bytes(gpumem_command("cat", "python").stdout)
        with open(copy, "rb") as file:
            header = read_header(file)
        assert [(one.name, one.dtype.name, one.shape) for one in header.tensors] == [("w", "float32", (7,)), ("b", "uint8", (3,))]
        assert header.metadata == {"step": "7"} and copy.read_bytes().endswith(np.arange(7, dtype="float32").tobytes() + bytes(3))
        other = gpumem_command("verify", "python", copy, check=False)
        assert other.returncode == 1 and b"the arrays' bytes are equal" in other.stdout, "it has no metadata of arrays"
    with gpumem.publish_arrays(session, "python", {"c": np.zeros(2, dtype="complex128")}):
        refused = gpumem_command("cat", "python", check=False)
        assert refused.returncode == 1 and not refused.stdout and b"'c' of complex128" in refused.stderr
        assert b"--raw" in refused.stderr
        assert len(gpumem_command("cat", "python", "--raw").stdout) > 256


def test_other_arrays_than_the_files_are_told(session, path, tmp_path):
    other = tmp_path / "other.safetensors"
    tensors = some_tensors()
    with published(path):
        for change in ({"steps": np.array(4, dtype="int64")}, {"more": np.zeros(1, dtype="uint8")}):
            other.write_bytes(saved({**tensors, **change}, TEXTS))
            found = gpumem_command("verify", "weights", other, "--json", check=False)
            assert found.returncode == 1 and json.loads(found.stdout)["first_difference"] > 0
        for changed in (saved({name + "x" if name == "steps" else name: one for name, one in tensors.items()}, TEXTS),
                        saved(tensors, {**TEXTS, "Z": "1"}),
                        saved({name: one.reshape(64, 300) if one.ndim == 2 and one.size else one
                               for name, one in tensors.items()}, TEXTS)):
            other.write_bytes(changed)
            found = gpumem_command("verify", "weights", other, check=False)
            assert found.returncode == 1 and b"the arrays' bytes are equal" in found.stdout, found.stdout
        other.write_bytes(b"no such file")
        found = gpumem_command("verify", "weights", other, check=False)
        assert found.returncode == 1 and b"no file of safetensors" in found.stderr


def test_it_can_be_published_as_plain_bytes(session, path):
    with published(path, "--raw") as said:
        assert said["arrays"] is None and said["bytes"] == path.stat().st_size
        assert gpumem_command("cat", "weights").stdout == path.read_bytes()
        gpumem_command("verify", "weights", path)
        with session.map_region("weights") as region, pytest.raises(InvalidArgument):
            region.arrays()
    plain = path.rename(path.with_suffix(".bin"))
    with published(plain) as said:
        assert said["arrays"] is None and said["bytes"] == plain.stat().st_size


def test_a_damaged_file_is_refused_and_nothing_is_published(broker, tmp_path):
    path = tmp_path / "model.safetensors"
    good = saved(some_tensors(), TEXTS)
    for content, why in ((good[:-1], "it is truncated"), (good[:100], "the file is truncated"), (b"", "it has 0 bytes"),
                         (good[:8] + b"[" + good[9:], "does not begin with {"), (b"weights", "it has 7 bytes"),
                         (file_of({"a": entry(0, 1, [2])}, b"1"), "tensor 'a'")):
        path.write_bytes(content)
        refused = gpumem_command("publish", path, check=False)
        said = refused.stderr.decode()
        assert refused.returncode == 1 and not refused.stdout, refused
        assert said.startswith(f"gpumem: {path}: ") and why in said and "--raw" in said and "Traceback" not in said, said
    assert broker.ask("regions")["regions"] == [] and broker.lent() == 0


def test_a_file_that_cannot_be_read_is_named(broker, tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name, why in (("pipe", "is not a regular file"), ("folder", "Is a directory"), ("none", "No such file")):
        refused = gpumem_command("publish", tmp_path / f"{name}.safetensors", check=False)
        assert refused.returncode == 1 and f"{name}.safetensors" in refused.stderr.decode(), refused
        assert why in refused.stderr.decode(), refused
    assert broker.lent() == 0


def test_a_file_without_tensors_is_a_region_without_arrays(session, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"__metadata__": {"format": "np"}}))
    with published(path), publish_safetensors(session, path, "python") as publication:
        with session.map_region("weights") as region:
            assert region.digest == publication.digest and not region.arrays()
        gpumem_command("verify", "weights", path)


def test_layouts_that_others_wrote_are_not_believed(session):
    """`cat` reads them, too."""
    array = {"dtype": "float32", "name": "w", "offset": 0, "private": False, "shape": [2, 3], "strides": [12, 4]}

    def of(*arrays: object, metadata: object = None, version: int = 1, **more: object) -> bytes:
        text = json.dumps({"arrays": list(arrays), "metadata": metadata or {}, **more}, sort_keys=True, separators=(",", ":"))
        return struct.pack("<8sII", b"gpumemLA", version, len(text)) + text.encode()

    def cat(layout: bytes) -> subprocess.CompletedProcess:
        slice.grow(2 * MIB)
        copy_in(slice, MIB - len(layout), layout)
        version = slice.publish("w", 0, MIB, layout=len(layout))
        try:
            return gpumem_command("cat", "w", check=False)
        finally:
            session.remove_region("w", version=version)

    with session.open_slice() as slice:
        assert cat(of(array)).returncode == 0
        assert cat(of({**array, "metadata": {"a": "1"}}, version=2)).returncode == 0
        other = cat(b"something else")
        assert other.returncode == 0 and len(other.stdout) == MIB, "of whatever it is: the bytes"
        for layout in (of(array, array), of({**array, "offset": MIB - 140}), of({**array, "offset": 2**63 - 4}),
                       of({**array, "offset": -4}), of({**array, "offset": "0"}), of({**array, "shape": [2**62, 2**62]}),
                       of({**array, "shape": [2]}), of({**array, "strides": [24, 4]}), of({**array, "dtype": "float31"}),
                       of({**array, "name": "a\n"}), of({**array, "name": "__metadata__"}), of({**array, "more": 1}),
                       of(array, {**array, "name": "v", "offset": 20}), of(array, more=1), of(array, metadata={"a": 1}),
                       of({**array, "metadata": {"a": "1"}}), of({**array, "metadata": []}, version=2), of(7), of([[[[[[1]]]]]]),
                       of(array, version=3), of(array)[:-1], of(array) + b" ", b"gpumemLA", b"gpumemLA" + bytes(8),
                       b"gpumemLA" + bytes(8) + b"[" * 100_000, b"gpumemLA" + bytes(8) + b'{"arrays":[],"metadata":{}}',
                       of(array).replace(b'"w"', b'"\xff"')):
            refused = cat(layout)
            assert refused.returncode == 1 and not refused.stdout and b"--raw" in refused.stderr, (layout[:200], refused.stderr)
        slice.shrink(0)


def copy_in(slice: gpumem.Slice, offset: int, content: bytes) -> None:
    ok(cu.cuCtxPushCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    ok(cu.cuMemcpyHtoD(slice.base + offset, content, len(content)))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuCtxPopCurrent())
    ok(cu.cuDevicePrimaryCtxRelease(0))
