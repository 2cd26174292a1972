"""The layout of a region's arrays: written in one way, and read from bytes that anybody may have written."""
import json
import random
import struct

import pytest
from gpumem import InvalidArgument
from gpumem._dtypes import DTYPES
from gpumem.layout import ALIGNMENT, MAGIC, MOST_BYTES, ArrayLayout, Layout, contiguous_strides

SEEDS = range(300)
ONE = {"dtype": "float32", "name": "w", "offset": 0, "private": False, "shape": [2, 3], "strides": [12, 4]}


@pytest.fixture
def kept():
    """Nothing reaches a device."""


def written(text: bytes, magic: bytes = MAGIC, version: int = 1) -> bytes:
    return struct.pack("<8sII", magic, version, len(text)) + text


def of(*arrays: dict, **metadata: object) -> bytes:
    """As a layout of these would be written, whatever they are."""
    value = {"arrays": list(arrays), "metadata": metadata}
    return written(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def refused(encoded: bytes, *words: str, room: int | None = None) -> None:
    with pytest.raises(InvalidArgument) as why:
        Layout.decode(encoded, room)
    assert all(word in str(why.value) for word in words), str(why.value)


def some_layout(dice: random.Random) -> Layout:
    arrays, offset = [], 0
    for number in range(dice.randrange(6)):
        dtype = dice.choice(list(DTYPES))
        shape = tuple(dice.choice((0, 1, 1, 2, 3, 7)) for _ in range(dice.randrange(5)))
        strides, reach = [0] * len(shape), DTYPES[dtype].itemsize
        for axis in dice.sample(range(len(shape)), len(shape)):  # in any order, with gaps
            strides[axis] = reach * dice.randint(1, 3)
            reach = strides[axis] * max(1, shape[axis])
        offset += -offset % DTYPES[dtype].itemsize + DTYPES[dtype].itemsize * dice.randrange(3)
        arrays.append(ArrayLayout(f"block/{number}.gewicht-ä", dtype, shape, tuple(strides), offset, dice.random() < 0.3,
                                  {"scale": dice.choice(("0.5", ""))} if dice.random() < 0.2 else {}))
        offset = arrays[-1].end
    dice.shuffle(arrays)
    return Layout(tuple(arrays), {f"key{number}": dice.choice(("", "value", "\n\"'")) for number in range(dice.randrange(3))})


def test_what_is_written_is_read_again():
    digests = {}
    for seed in SEEDS:
        layout = some_layout(random.Random(seed))
        again = Layout.decode(layout.encoded, layout.end)
        assert again == layout and again.digest == layout.digest
        assert digests.setdefault(layout.digest, layout.encoded) == layout.encoded


def bytes_of(array: ArrayLayout) -> list[int]:
    """Every byte that an element has, one by one."""
    places = [array.offset]
    for count, stride in zip(array.shape, array.strides):
        places = [place + stride * number for place in places for number in range(count)]
    return [place + byte for place in places for byte in range(array.itemsize)]


def test_no_byte_belongs_to_two_elements_or_lies_beyond_the_end():
    for seed in SEEDS:
        layout = some_layout(random.Random(seed))
        taken = [byte for array in layout.arrays for byte in bytes_of(array)]
        assert len(taken) == len(set(taken)) == sum(array.nbytes for array in layout.arrays)
        assert max(taken, default=-1) + 1 == max((array.end for array in layout.arrays if array.span), default=0)


def test_arrays_whose_elements_overlap_are_never_accepted():
    overlapping = 0
    for seed in SEEDS:
        dice = random.Random(seed)
        shape = tuple(dice.randint(1, 4) for _ in range(3))
        strides = tuple(dice.randrange(0, 40, 4) for _ in range(3))
        try:
            array = ArrayLayout("w", "float32", shape, strides, 0)
        except InvalidArgument as why:
            assert "'w'" in str(why) and "overlap" in str(why)
            overlapping += 1
            continue
        places = bytes_of(array)
        assert len(places) == len(set(places))
    assert 0 < overlapping < len(SEEDS)


def test_bytes_that_were_changed_are_refused_or_are_another_layout():
    accepted = 0
    for seed in SEEDS:
        dice = random.Random(seed)
        layout = some_layout(dice)
        changed = bytearray(layout.encoded)
        for _ in range(dice.randint(1, 3)):
            place, how = dice.randrange(len(changed)), dice.randrange(4)
            if how == 0:
                changed[place] ^= 1 << dice.randrange(8)
            elif how == 1:
                changed[place] = dice.choice(b'0123456789-,:"[]{}')
            elif how == 2:
                del changed[place:]
            else:
                changed[place:place] = changed[dice.randrange(len(changed)):][:dice.randrange(20)]
            if not changed:
                break
        try:
            read = Layout.decode(bytes(changed), 10**6)
        except InvalidArgument as why:
            assert str(why)
        else:
            accepted += 1
            assert read.encoded == bytes(changed) and (read == layout) == (read.encoded == layout.encoded)
    assert accepted < len(SEEDS) / 2


def test_texts_that_are_no_layout_are_refused():
    good = of(ONE)
    assert Layout.decode(good, 24).arrays[0].shape == (2, 3)
    refused(b"", "bytes")
    refused(good[:15], "bytes")
    refused(good[:-1], "head")
    refused(good + b" ", "head")
    refused(bytes(MOST_BYTES + 1), "bytes")
    refused(written(good[16:], magic=b"safetens"), "begins otherwise")
    refused(written(good[16:], version=2), "one way")
    refused(written(good[16:], version=3), "version 3")
    refused(written(b"\xff\xfe"), "UTF-8")
    refused(written(b"{"), "JSON")
    refused(written(b"[" * 200_000), "nested")
    refused(written(b'{"arrays":' + b'{"a":' * 100_000), "nested")
    refused(written(b'{"arrays":[],"arrays":[],"metadata":{}}'), "twice")
    refused(written(b'{"arrays":[],"metadata":{"a":"1","a":"1"}}'), "twice")
    refused(written(b'{"metadata":{},"arrays":[]}'), "one way")
    refused(written(b'{"arrays": [],"metadata":{}}'), "one way")
    refused(written(b'{"arrays":[]}'), "metadata")
    refused(written(b'{"arrays":[],"metadata":{},"more":1}'), "nothing else")
    refused(written(b'[]'), "arrays")
    refused(written(b'{"arrays":{},"metadata":[]}'), "list")
    refused(written(b'{"arrays":[7],"metadata":{}}'), "array 0")
    refused(of(ONE, key=7), "metadata", "key")
    refused(of(ONE, key="\ud800"), "metadata", "key")
    refused(of(ONE, **{"": "text"}), "not empty")


@pytest.mark.parametrize("changes, words", [
    ({"dtype": "float31"}, ["'w'", "float31"]),
    ({"dtype": None}, ["'w'", "None"]),
    ({"dtype": ["float32"]}, ["'w'"]),
    ({"name": ""}, ["not empty"]),
    ({"name": 7}, ["text"]),
    ({"name": "a\0b"}, [r"a\x00b", "nobody sees"]),
    ({"name": "a\nb"}, ["nobody sees"]),
    ({"name": "\u202eslow"}, ["nobody sees"]),
    ({"name": "\ud800"}, ["nobody sees"]),
    ({"name": "ä" * 257}, ["512 bytes"]),
    ({"offset": 2}, ["'w'", "multiples of 4"]),
    ({"offset": -4}, ["'w'", "offset", "-4"]),
    ({"offset": True}, ["'w'", "offset"]),
    ({"offset": 2**63 - 8}, ["'w'", "2^63"]),
    ({"offset": 10**30}, ["too large"]),
    ({"offset": 1.5}, ["not whole"]),
    ({"offset": float("nan")}, ["not whole"]),
    ({"offset": "0"}, ["'w'", "offset"]),
    ({"shape": [2]}, ["'w'", "as many strides"]),
    ({"shape": 2}, ["'w'", "shape"]),
    ({"shape": [2, -3]}, ["'w'", "-3"]),
    ({"shape": [2**31, 2**31], "strides": [2**33, 4]}, ["'w'", "2^63"]),
    ({"shape": [2**62, 0], "strides": [4, 4]}, ["'w'", "2^63"]),
    ({"shape": [1] * 33, "strides": [4] * 33}, ["'w'", "33"]),
    ({"strides": [12, 2]}, ["'w'", "multiples"]),
    ({"strides": [-12, 4]}, ["'w'", "stride"]),
    ({"strides": [8, 4]}, ["'w'", "overlap"]),
    ({"strides": [0, 4]}, ["'w'", "overlap"]),
    ({"private": 1}, ["'w'", "private"]),
    ({"metadata": None}, ["'w'", "metadata", "None"]),
    ({"metadata": ["scale"]}, ["'w'", "metadata"]),
    ({"metadata": {"scale": 1}}, ["'w'", "'scale'", "no text"]),
    ({"metadata": {"scale": "\ud800"}}, ["'w'", "'scale'", "no text"]),
    ({"metadata": {"": "1"}}, ["'w'", "not empty"]),
    ({"metadata": {"a\n": "1"}}, ["'w'", "nobody sees"]),
    ({"metadata": {}}, ["one way"]),
    ({"metadata": {"scale": "1"}}, ["one way"]),  # which is of version 2
    ({"more": 1}, ["array 0"]),
])
def test_an_array_that_is_none_is_refused_by_its_name(changes, words):
    refused(of({**ONE, **changes}), *words)


def test_arrays_lie_within_the_region_and_not_over_each_other():
    refused(of(ONE), "'w'", "24", "23", room=23)
    refused(of(ONE, ONE), "two arrays", "'w'")
    refused(of({**ONE, "name": "second", "offset": 20}, {**ONE, "name": "first"}), "'first'", "'second'", "overlap")
    beside = of({**ONE, "name": "second", "offset": 24}, {**ONE, "name": "first"})
    assert Layout.decode(beside, 48).end == 48
    empty = {**ONE, "name": "empty", "shape": [0, 3], "offset": 8}  # has no bytes to overlap
    assert Layout.decode(of(ONE, empty), 24).end == 24


def test_packed_arrays_are_aligned_and_in_the_given_order():
    layout = Layout.packed({"b": ("float32", [3]), "a": ("bfloat16", (2, 5)), "none": ("int8", (0,)), "one": ("int64", ())},
                           {"format": "test"}, private=["a"])
    assert [(array.name, array.offset, array.private) for array in layout.arrays] == [
        ("b", 0, False), ("a", ALIGNMENT, True), ("none", 2 * ALIGNMENT, False), ("one", 2 * ALIGNMENT, False)]
    assert all(array.is_contiguous and array.strides == contiguous_strides(array.shape, array.itemsize)
               for array in layout.arrays)
    assert Layout.decode(layout.encoded, layout.end).metadata == {"format": "test"}
    with pytest.raises(InvalidArgument, match="float99"):
        Layout.packed({"a": ("float99", ())})


def test_a_layout_without_metadata_of_arrays_is_as_it_was_before_there_was_any():
    text = (b'{"arrays":[{"dtype":"float32","name":"w","offset":0,"private":false,"shape":[2,3],"strides":[12,4]}],'
            b'"metadata":{"step":"7"}}')
    before = MAGIC + b"\x01\0\0\0" + bytes([len(text), 0, 0, 0]) + text
    for given in (None, {}, {"w": {}}):
        layout = Layout.packed({"w": ("float32", (2, 3))}, {"step": "7"}, array_metadata=given)
        assert layout.encoded == before and layout.arrays[0].metadata == {}
    assert Layout.decode(before, 24) == layout
    assert hash(layout.arrays[0]) == hash(Layout.decode(before).arrays[0])


def test_arrays_have_metadata_of_their_own():
    arrays = {"w": ("float32", (2, 3)), "b": ("int8", (5,))}
    texts = {"w": {"scale": "0.5", "unit": "\n\u00e4"}}
    layout = Layout.packed(arrays, {"step": "7"}, array_metadata=texts)
    assert layout.encoded[8:12] == b"\x02\0\0\0" and b'"metadata":{"scale":"0.5","unit":"\\n\xc3\xa4"},"name":"w"' in layout.encoded
    again = Layout.decode(layout.encoded, layout.end)
    assert again == layout and [dict(one.metadata) for one in again.arrays] == [texts["w"], {}]
    plain = Layout.packed(arrays, {"step": "7"})
    assert again != plain and again.digest != plain.digest
    assert [one.digest for one in again.arrays] == [one.digest for one in plain.arrays], "readers' code is made for neither"
    texts["w"]["scale"] = "2"
    assert layout.arrays[0].metadata["scale"] == "0.5", "a copy"
    refused(written(layout.encoded[16:]), "one way")


@pytest.mark.parametrize("given, words", [
    ({"x": {"a": "1"}}, ["'x'", "no array"]),
    ({7: {"a": "1"}}, ["'7'", "no array"]),
    ({"w": {"a": 1}}, ["'w'", "'a'", "no text"]),
    ({"w": {"a": b"1"}}, ["'w'", "'a'", "no text"]),
    ({"w": {"a": "\ud800"}}, ["'w'", "'a'", "no text"]),
    ({"w": {1: "a"}}, ["'w'", "text"]),
    ({"w": {"": "a"}}, ["'w'", "not empty"]),
    ({"w": {"a" * 513: "a"}}, ["'w'", "512 bytes"]),
    ({"w": "a"}, ["'w'", "texts by names"]),
    ({"w": None}, ["'w'", "texts by names"]),
    ("w", ["array_metadata", "by the names"]),
    ([], ["array_metadata", "by the names"]),
])
def test_metadata_of_arrays_that_is_none_is_refused(given, words):
    with pytest.raises(InvalidArgument) as why:
        Layout.packed({"w": ("float32", (2, 3))}, array_metadata=given)
    assert all(word in str(why.value) for word in words), str(why.value)


def test_metadata_has_room_in_a_layout_or_is_refused():
    arrays = {"w": ("float32", (2, 3))}
    assert Layout.decode(Layout.packed(arrays, array_metadata={"w": {"a": "x" * (1 << 20)}}).encoded).arrays[0].metadata["a"]
    with pytest.raises(InvalidArgument, match="at most"):
        Layout.packed(arrays, array_metadata={"w": {"a": "x" * MOST_BYTES}}).encoded
