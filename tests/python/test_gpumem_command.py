"""What the command `gpumem publish` makes of a file of safetensors: the same region as publish_safetensors."""
import contextlib
import gc
import json
import random
import struct
import subprocess

import gpumem
import numpy as np
import pytest
from gpumem import MIB, InvalidArgument
from gpumem.arrays import PRIVATE
from gpumem.layout import Layout
from gpumem.safetensors import publish_safetensors, read_header

from bindings import cu, ok
from brokered import BUILD, broker, context, kept, session  # noqa: F401, fixtures
from test_gpumem_safetensors import LIES, entry, file_of, saved


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


def test_the_same_arrays_are_private(session, tmp_path):
    path, own = tmp_path / "model.safetensors", [pattern.replace("*", "own/") for pattern in PRIVATE]
    path.write_bytes(saved({name: np.ones(1, dtype="uint8") for one in own for name in (one, one + "x", one[4:], one[5:])}))
    with published(path), publish_safetensors(session, path, "python") as publication:
        assert set(own) <= {one.name for one in publication.layout.arrays if one.private}
        with session.map_region("weights") as region:
            assert region.read_layout() == publication.layout


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


@pytest.mark.parametrize("number", range(len(LIES)))
def test_a_header_that_lies_is_refused_as_python_refuses_it(broker, tmp_path, number):
    content, _ = LIES[number]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused = gpumem_command("publish", path, check=False)
    assert refused.returncode == 1 and not refused.stdout, refused.stdout
    said = refused.stderr.decode()
    assert "model.safetensors" in said and (not content or "--raw" in said), said
    assert broker.lent() == 0


MORE = [
    file_of(b"{}\0{}"),  # the end, for some readers of JSON
    file_of(b"{}\0"),
    file_of(b'{"a\\u200c":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"1"),
    file_of({"\u00ad": entry(0, 1, [])}, b"1"),
    file_of({"a": entry(0, 1, [])} | {"__metadata__": {"\n": "1"}}, b"1"),
    file_of({"__metadata__": {"a": [["1"]]}}),
    file_of({"__metadata__": {"a": None}}),
    file_of({"__metadata__": 7}),
    file_of(b'{"__metadata__":{"a":"1","a":"1"}}'),
    file_of(b'{"__metadata__":{"a":"\\ud800"}}'),
    file_of({"a": [entry(0, 1, [])]}, b"1"),
    file_of({"a": {"b": entry(0, 1, [])}}, b"1"),
    file_of({"a": {**entry(0, 1, []), "shape": [[]]}}, b"1"),
    file_of({"a": {**entry(0, 1, []), "data_offsets": [0, 1, 1]}}, b"1"),
    file_of({"a": {**entry(0, 1, []), "data_offsets": [0]}}, b"1"),
    file_of({"a": {**entry(0, 1, []), "data_offsets": {"0": 1}}}, b"1"),
    file_of({"a": {**entry(0, 1, []), "dtype": 7}}, b"1"),
    file_of({"a": entry(0, 1, [], "")}, b"1"),
    file_of({"a": entry(0, 16, [1], "C128")}, bytes(16)),
    file_of({"a": entry(0, 1, [1] * 33)}, b"1"),
    file_of({"a": entry(0, 0, [2**63, 0])}),
    file_of({"a": entry(0, 0, [2**62, 4, 0])}),
    file_of({"a": entry(2**63 - 1, 2**63, [])}, b"1"),
    file_of({"a" * 513: entry(0, 1, [])}, b"1"),
    file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1e0]}}', b"1"),
    file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,01]}}', b"1"),
    file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],}}', b"1"),
    file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}} // tensors', b"1"),
    file_of(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"1"),
]


@pytest.mark.parametrize("number", range(len(MORE)))
def test_what_python_refuses_is_refused(broker, tmp_path, number):
    path = tmp_path / "model.safetensors"
    path.write_bytes(MORE[number])
    with open(path, "rb") as file, pytest.raises(InvalidArgument):
        header = read_header(file)
        Layout.packed({one.name: (one.dtype.name, one.shape) for one in header.tensors}, header.metadata)
    refused = gpumem_command("publish", path, check=False)
    assert refused.returncode == 1 and b"--raw" in refused.stderr, refused.stderr
    assert broker.lent() == 0


def test_files_that_were_changed_are_taken_by_both_or_by_none(session, tmp_path):
    tensors = {"w": np.arange(12, dtype="float32").reshape(3, 4), "b": np.ones(3, dtype="uint8")}
    good, path = saved(tensors, {"format": "np"}), tmp_path / "model.safetensors"
    verdicts = []
    for seed in range(150):
        dice = random.Random(seed)
        changed = bytearray(good)
        for _ in range(dice.randint(1, 2)):
            place = dice.randrange(len(changed) - 51)
            changed[place] = dice.choice((dice.randrange(256), *b'0123456789",:{}[]- '))
        path.write_bytes(changed)
        try:
            with open(path, "rb") as file:
                header = read_header(file)
            layout = Layout.packed({one.name: (one.dtype.name, one.shape) for one in header.tensors}, header.metadata)
        except InvalidArgument:
            layout = None
        done = gpumem_command("publish", path, "--name", "weights", "--keep", check=False)
        assert (done.returncode == 0) == (layout is not None), (seed, done.stderr, bytes(changed))
        if layout is not None:
            with session.map_region("weights") as region:
                assert region.digest == layout.digest, seed
            gc.collect()
            gpumem_command("regions", "rm", "weights")
        verdicts.append(layout is not None)
    assert any(verdicts) and not all(verdicts)


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
