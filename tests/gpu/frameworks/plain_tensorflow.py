"""TensorFlow as its users run it. GPUMEM_ACCEPTANCE_WAY is `whole`, TensorFlow's default, which takes all memory at
once, or `growing`. Stages: plain.py."""
import os
from typing import Any, List

import plain
import stages

os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "false" if plain.WAY == "whole" else "true"
WIDTH, BATCH = 1024, 4096  # so many that the device is what a step waits for


def train(tensorflow: Any) -> List[float]:
    tf = tensorflow
    tf.random.set_seed(20)
    inner = tf.Variable(tf.random.stateless_normal((WIDTH, 4 * WIDTH), (20, 1)) * 0.02)
    outer = tf.Variable(tf.random.stateless_normal((4 * WIDTH, WIDTH), (20, 2)) * 0.02)

    @tf.function
    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(batch @ inner) @ outer - batch) ** 2)
        for variable, slope in zip((inner, outer), tape.gradient(loss, (inner, outer))):
            variable.assign_sub(0.05 * slope)
        return loss

    count = 0

    def next_step() -> float:
        nonlocal count
        count += 1
        return float(step(tf.random.stateless_normal((BATCH, WIDTH), (7, count))))

    return plain.train(next_step)


def refused(tensorflow: Any, total: int) -> str:
    try:
        tensorflow.zeros((total,), dtype=tensorflow.uint8)
        return "nothing: it got as much as the device has"
    except tensorflow.errors.ResourceExhaustedError:
        right = float(tensorflow.reduce_sum(tensorflow.ones(1 << 20))) == 1 << 20
        return "" if right else "the device does not compute any more"


def main() -> None:
    tensorflow = stages.use("tensorflow")
    devices = tensorflow.config.list_physical_devices("GPU")
    if not devices:
        stages.leave("tensorflow sees no GPU (a build without CUDA, or libraries of CUDA are missing)")
    if plain.AHEAD and plain.WAY == "whole":
        limit = int(plain.AHEAD * stages.budget()) >> 20
        part = tensorflow.config.LogicalDeviceConfiguration(memory_limit=limit)
        tensorflow.config.set_logical_device_configuration(devices[0], [part])
    float(tensorflow.reduce_sum(tensorflow.ones(1)))
    stages.stage("context", total=None, seen=None)
    stages.stage("trained", losses=train(tensorflow), correct=True)
    stages.stage("refused", wrong=refused(tensorflow, stages.budget() * 4))


stages.play(main)
