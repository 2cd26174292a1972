"""tensorflow_limits_program.py: TensorFlow from the package index, its limits set by gpumem.tensorflow. Prints what it found as
a line of JSON. At the next line of its input it takes many small tensors, drops them, and takes one near the limit, of which it
tells, too. Then it waits for its input to end, holding what it has."""
import json
import sys

import gpumem
import gpumem.tensorflow
import numpy
import tensorflow as tf
from tensorflow.python.client import device_lib

with gpumem.Session.connect(label="limits") as session:
    limits = gpumem.tensorflow.configure(session)
    with tf.device("/GPU:0"):
        tensor = tf.constant(numpy.arange(1 << 20, dtype=numpy.float32))
    seen = {device.name: device.memory_limit for device in device_lib.list_local_devices()}
    try:
        gpumem.tensorflow.configure(session, limit=300 << 20)
        late = None
    except gpumem.FailedPrecondition as error:
        late = str(error)
    print(json.dumps({"limits": limits, "seen": seen, "late": late, "device": tensor.device}), flush=True)
    if sys.stdin.readline():
        with tf.device("/GPU:0"):
            pieces = [tf.constant(numpy.full(1 << 20, number, dtype=numpy.float32)) for number in range(96)]
            whole = all((piece.numpy() == number).all() for number, piece in enumerate(pieces))
            del pieces[::2]  # holes first
            pieces.clear()
            large = tf.constant(numpy.full(448 << 20, 7, dtype=numpy.uint8))
        print(json.dumps({"pieces": bool(whole), "large": bool((large.numpy() == 7).all()), "device": large.device}), flush=True)
        sys.stdin.read()
