"""TensorFlow processes that train on one data set in the host store: the first one loads it, all of them read it in place.

    GPUMEM_RUNTIME_DIR=~/.gpumem python3 tensorflow_data_set.py 3      # three processes; the broker's configuration has [host]
"""
import subprocess
import sys

import gpumem
import gpumem.tensorflow
import numpy
import tensorflow as tf

ROWS, BATCH = 8192, 256


def load() -> dict:
    """Called in one process: the others wait for the region."""
    dice = numpy.random.default_rng(0)
    images = dice.random((ROWS, 784), dtype="float32")
    return {"images": images, "labels": (images[:, :392].sum(1) > images[:, 392:].sum(1)).astype("int64")}


def batches(images, labels) -> tf.data.Dataset:
    """Only row numbers are shuffled. A batch is gathered from the region when it is needed."""
    return (tf.data.Dataset.range(len(labels)).shuffle(len(labels), seed=1).batch(BATCH)
            .map(lambda rows: (tf.gather(images, rows), tf.gather(labels, rows)), num_parallel_calls=tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE))


def train() -> None:
    tf.keras.utils.set_random_seed(1)
    with gpumem.Session.connect(label="trainer") as session:
        with gpumem.map_or_publish_arrays(session, "digits", load, device="host") as region:
            tensors = gpumem.tensorflow.tensors(region)
            model = tf.keras.Sequential([tf.keras.Input((784,)), tf.keras.layers.Dense(2)])
            model.compile(tf.keras.optimizers.Adam(0.02), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                          metrics=["accuracy"])
            history = model.fit(batches(tensors["images"], tensors["labels"]), epochs=5, verbose=0)
            print(f"{region.size >> 20} MiB on {region.device}: accuracy {history.history['accuracy'][-1]:.3f}", flush=True)


if sys.argv[1:]:
    processes = [subprocess.Popen([sys.executable, __file__]) for _ in range(int(sys.argv[1]))]
    sys.exit(max(process.wait() for process in processes))
train()
