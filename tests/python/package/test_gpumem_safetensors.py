"""Files of safetensors, whoever wrote them: headers are read strictly, and tensors arrive in the region as they are."""
import io
import json
import os
import random
import struct

import gpumem
import numpy as np
import pytest
from gpumem import MIB, InvalidArgument
from gpumem.safetensors import MOST_HEADER_BYTES, publish_safetensors, read_header

from brokered import broker, context, kept, session  # noqa: F401, fixtures

SEEDS = range(400)


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, shape: list, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def saved(tensors: dict, metadata: dict | None = None) -> bytes:
    """As the package safetensors writes NumPy's arrays."""
    kinds = {"float32": "F32", "int64": "I64", "uint8": "U8", "float16": "F16", "bool": "BOOL"}
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, tensor in tensors.items():
        header[name] = entry(at, at + tensor.nbytes, list(tensor.shape), kinds[tensor.dtype.name])
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return file_of(text, b"".join(tensor.tobytes() for tensor in tensors.values()))


def test_a_header_is_read():
    header = read_header(io.BytesIO(file_of({"b": entry(6, 10, [2], "F16"), "a": entry(0, 6, [2, 3]), "e": entry(6, 6, [0]),
                                             "__metadata__": {"format": "pt"}}, bytes(10))))
    assert [(one.name, one.dtype.name, one.shape, one.end - one.begin) for one in header.tensors] == [
        ("a", "uint8", (2, 3), 6), ("e", "uint8", (0,), 0), ("b", "float16", (2,), 4)]
    assert header.metadata == {"format": "pt"}
    assert read_header(io.BytesIO(file_of({}))).tensors == ()


LIES = [
    (b"", "0 bytes"),
    (b"\1\2\3", "3 bytes"),
    (struct.pack("<Q", 2**64 - 1) + b"{}", "at most"),
    (struct.pack("<Q", MOST_HEADER_BYTES + 1) + b"{}", "at most"),
    (struct.pack("<Q", 100) + b"{}", "truncated"),
    (file_of(b""), "does not begin"),
    (file_of(b" {}"), "does not begin"),
    (file_of(b"[]"), "does not begin"),
    (file_of(b"{"), "JSON"),
    (file_of({"a": entry(0, 0, [2**63 - 1] * 40_000)}), "shape"),
    (file_of({"a": entry(0, 0, [2**63 - 1] * 32)}), "2^63"),
    (file_of({"a": entry(0, 0, [10**4000])}), "too large"),
    (file_of(b"{}x"), "JSON"),
    (file_of(b'{"a":"\xff"}'), "UTF-8"),
    (file_of(b'{"a":' * 100_000), "nested"),
    (file_of(b'{"a":1,"a":1}'), "'a' twice"),
    (file_of(b'{"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"1"), "twice"),
    (file_of({"a": 1}), "'a'"),
    (file_of({"a": {}}), "'a'"),
    (file_of({"a": {**entry(0, 1, []), "more": 1}}, b"1"), "exactly"),
    (file_of({"": entry(0, 1, [])}, b"1"), "not empty"),
    (file_of({"a\n": entry(0, 1, [])}, b"1"), "nobody sees"),
    (file_of({"a": entry(0, 1, [], "F4")}, b"1"), "'F4'"),
    (file_of({"a": entry(0, 1, [], ["U8"])}, b"1"), "type"),
    (file_of({"a": entry(0, 2, [])}, b"12"), "1 bytes"),
    (file_of({"a": entry(0, 0, [])}), "1 bytes"),
    (file_of({"a": entry(-1, 0, [])}), "data_offsets"),
    (file_of({"a": entry(1, 0, [])}), "data_offsets"),
    (file_of({"a": entry(0, 1.0, [])}, b"1"), "not whole"),
    (file_of({"a": entry(0, True, [])}, b"1"), "whole numbers"),
    (file_of({"a": entry(0, 2**70, [])}, b"1"), "too large"),
    (file_of({"a": entry(0, 1, [-1])}, b"1"), "-1"),
    (file_of({"a": entry(0, 1, [2**62, 2**62])}, b"1"), "2^63"),
    (file_of({"a": entry(0, 1, "1")}, b"1"), "shape"),
    (file_of({"a": entry(0, 1, [1.5])}, b"1"), "not whole"),
    (file_of({"a": entry(0, 4, [4]), "b": entry(3, 7, [4])}, bytes(7)), "'b' overlaps with tensor 'a'"),
    (file_of({"a": entry(0, 4, [4]), "b": entry(0, 4, [4])}, bytes(4)), "overlaps"),
    (file_of({"a": entry(0, 4, [4]), "b": entry(5, 9, [4])}, bytes(9)), "'b' leaves 1 bytes"),
    (file_of({"a": entry(1, 5, [4])}, bytes(5)), "leaves 1 bytes behind the header"),
    (file_of({"a": entry(0, 4, [4])}, bytes(3)), "truncated"),
    (file_of({"a": entry(0, 4, [4])}, bytes(5)), "end at"),
    (file_of({"__metadata__": {"a": 1}}), "texts"),
    (file_of({"__metadata__": []}), "texts"),
    (file_of(b"{}\0{}"), "JSON"),  # the end, for some readers of JSON
    (file_of(b"{}\0"), "JSON"),
    (file_of(b'{"a\\u200c":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"1"), "nobody sees"),
    (file_of({"a": [entry(0, 1, [])]}, b"1"), "exactly"),
    (file_of({"a": {"b": entry(0, 1, [])}}, b"1"), "exactly"),
    (file_of({"a": {**entry(0, 1, []), "shape": [[]]}}, b"1"), "whole numbers"),
    (file_of({"a": {**entry(0, 1, []), "data_offsets": [0, 1, 1]}}, b"1"), "two whole numbers"),
    (file_of({"a": {**entry(0, 1, []), "data_offsets": {"0": 1}}}, b"1"), "two whole numbers"),
    (file_of({"a": {**entry(0, 1, []), "dtype": 7}}, b"1"), "type"),
    (file_of({"a": entry(0, 16, [1], "C128")}, bytes(16)), "type"),
    (file_of({"a": entry(0, 1, [1] * 33)}, b"1"), "dimensions"),
    (file_of({"a": entry(0, 0, [2**63, 0])}), "2^63"),
    (file_of({"a" * 513: entry(0, 1, [])}, b"1"), "512"),
    (file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,01]}}', b"1"), "JSON"),
    (file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],}}', b"1"), "JSON"),
    (file_of(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"1"), "NaN"),
]


@pytest.mark.parametrize("content, why", LIES)
def test_a_header_that_lies_is_refused_with_the_reason(content, why):
    with pytest.raises(InvalidArgument) as refused:
        read_header(io.BytesIO(content))
    assert why in str(refused.value), str(refused.value)


def test_files_that_were_changed_are_refused_or_read_within_their_bounds():
    good = saved({"w": np.arange(12, dtype="float32").reshape(3, 4), "b": np.ones(3, dtype="uint8")}, {"format": "np"})
    refused = 0
    for seed in SEEDS:
        dice = random.Random(seed)
        changed = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(changed))
            changed[place] = dice.choice((dice.randrange(256), *b'0123456789",:{}[]-'))
        changed = changed[:dice.randrange(len(changed))] if dice.random() < 0.2 else changed
        try:
            header = read_header(io.BytesIO(bytes(changed)))
        except InvalidArgument as why:
            assert str(why)
            refused += 1
        else:
            assert all(8 <= one.begin <= one.end <= len(changed) for one in header.tensors)
            assert sum(one.end - one.begin for one in header.tensors) <= len(changed)
    assert 0 < refused < len(SEEDS)


@pytest.mark.parametrize("staging", [1 << 20, 4096, 100])
def test_tensors_arrive_as_they_are_through_a_buffer_of_any_size(session, tmp_path, staging):
    dice = np.random.default_rng(7)
    tensors = {"embed.weight": dice.standard_normal((300, 64), dtype="float32"), "steps": np.array(3, dtype="int64"),
               "none": np.zeros((0, 3), dtype="float16"), "mask": dice.random(1001) < 0.5,
               "bn.running_mean": dice.standard_normal(7, dtype="float32"), "tail": np.arange(5000, dtype="uint8")}
    if staging < 4096:
        del tensors["embed.weight"]
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved(tensors, {"format": "np"}))
    seen = []
    with publish_safetensors(session, path, "weights", staging=staging, metadata={"step": "7"},
                             progress=lambda *figures: seen.append(figures)) as publication:
        assert [one.name for one in publication.layout.arrays if one.private] == ["bn.running_mean"]
        with session.map_region("weights") as region:
            arrays = region.arrays()
            assert set(arrays) == set(tensors) and arrays.metadata == {"format": "np", "step": "7"}
            for name, tensor in tensors.items():
                assert arrays[name].shape == tensor.shape and arrays[name].tobytes() == tensor.tobytes(), name
                assert arrays[name].read_only == (name != "bn.running_mean")
            del arrays
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert seen[-1] == (total, total) and seen == sorted(seen)


def test_tensors_have_the_metadata_that_the_caller_gives(session, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved({"w": np.zeros(3, dtype="uint8"), "b": np.zeros(3, dtype="uint8")}))
    with publish_safetensors(session, path, "weights", array_metadata={"b": {"scale": "2"}}):
        with session.map_region("weights") as region:
            assert {name: dict(array.metadata) for name, array in region.arrays().items()} == {"w": {}, "b": {"scale": "2"}}
    with pytest.raises(InvalidArgument, match="'c', and no array"):
        publish_safetensors(session, path, "weights", array_metadata={"c": {"scale": "2"}})


def test_a_file_that_lies_takes_no_memory(session, broker, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved({"w": np.zeros(MIB, dtype="uint8")})[:-1])
    with pytest.raises(InvalidArgument, match="model.safetensors: .*truncated"):
        publish_safetensors(session, path, "weights")
    with pytest.raises(FileNotFoundError):
        publish_safetensors(session, tmp_path / "none", "weights")
    assert broker.lent() == 0


def test_a_file_that_shrinks_while_it_is_read_publishes_nothing(session, broker, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved({"w": np.zeros(4 * MIB, dtype="uint8")}))

    def cut(done: int, total: int) -> None:
        os.truncate(path, 2 * MIB)

    with pytest.raises(InvalidArgument, match="while it was read, in tensor 'w'"):
        publish_safetensors(session, path, "weights", staging=MIB, progress=cut)
    with pytest.raises(gpumem.NotFound):
        session.map_region("weights")


def test_progress_is_drawn_for_people(session, tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved({"w": np.zeros(2 * MIB, dtype="uint8")}))
    publish_safetensors(session, path, "weights", staging=MIB, progress=True).close()
    said = capsys.readouterr().err
    assert said.count("\r") == 2 and said.endswith(f"\r[{'#' * 40}] 2 of 2 MiB\n")
