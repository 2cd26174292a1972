"""Writes files of safetensors, for tests, without the package."""
import json
import pathlib
import struct
from collections.abc import Mapping

import numpy as np

DTYPES = {"float32": "F32", "int64": "I64"}


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Answers the bytes of all arrays."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            out.write(array.tobytes())
    return at
