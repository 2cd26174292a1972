"""tensorflow_program.py: TensorFlow from the package index on its GPUs, as one process. Prints what it found as a line of
JSON. Then it waits for its input to end, holding a region. No kernel runs: tensors are copied there and back."""
import ctypes
import json
import pathlib
import sys

import numpy
import tensorflow as tf
from tensorflow.python.client import device_lib

MIB = 1 << 20

devices = tf.config.list_physical_devices("GPU")
content = numpy.arange(MIB, dtype=numpy.float32)
with tf.device("/GPU:0"):
    tensor = tf.constant(content)
limits = {device.name: device.memory_limit for device in device_lib.list_local_devices()}

# The stubs that TensorFlow exports under the driver's own names, by which its parts call it.
stubs = ctypes.CDLL(str(pathlib.Path(tf.__file__).parent / "libtensorflow_framework.so.2"))
context = ctypes.c_void_p()
assert stubs.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert stubs.cuCtxSetCurrent(context) == 0  # TensorFlow has left the last device current
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert stubs.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
before, address = free.value, ctypes.c_uint64()
assert stubs.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16 * MIB)) == 0
assert stubs.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
taken = before - free.value
assert stubs.cuMemFree_v2(address) == 0

try:
    with tf.device("/GPU:0"):
        tf.constant(numpy.zeros(total.value, dtype=numpy.int8))
    refused = None
except tf.errors.OpError as error:
    refused = str(error)

print(json.dumps({
    "devices": [tf.config.experimental.get_device_details(device)["device_name"] for device in devices],
    "tensor": tensor.device,
    "is_whole": bool((tensor.numpy() == content).all()),
    "current": tf.config.experimental.get_memory_info("GPU:0")["current"],
    "limit": limits["/device:GPU:0"],
    "total": total.value,
    "used": total.value - before,
    "taken": taken,
    "refused": refused,
}), flush=True)
sys.stdin.read()
