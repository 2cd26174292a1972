"""tensorflow_limits_program.py: TensorFlow from the package index, its limits set by gpumem.tensorflow. Prints what it found as
a line of JSON. Then it waits for its input to end, holding what it has."""
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
    sys.stdin.read()
