"""tensorflow_regions_program.py ROLE [FILE]: a TensorFlow process with a model of 201 MB. Prints what it found as a line of
JSON, then does what the lines of its input say, until it ends.

publish FILE    loads a file's tensors as NumPy reads them, predicts, and publishes the model as the region `model`; with
                `everywhere` behind the file, on each device
map             maps that region into its own model, and predicts
mirror          the same with a replica of the model on each of two logical devices (MirroredStrategy)
tensors         maps the region `file`, and predicts by its tensors alone, without Keras
"""
import hashlib
import json
import struct
import sys

import gpumem
import gpumem.tensorflow
import keras
import numpy as np
import tensorflow as tf

WIDTHS = (1024, 4096, 8192, 1536)
INPUT = np.random.default_rng(3).standard_normal((8, WIDTHS[0]), dtype="float32")


def model_of_zeros() -> keras.Model:
    layers = [keras.Input((WIDTHS[0],))]
    for number, width in enumerate(WIDTHS[1:]):
        layers.append(keras.layers.Dense(width, activation="tanh", kernel_initializer="zeros", name=f"dense_{number}"))
    layers.insert(3, keras.layers.BatchNormalization(name="norm"))
    return keras.Sequential(layers, name="net")


def load_ordinarily(model: keras.Model, path: str) -> None:
    content = open(path, "rb").read()
    [length] = struct.unpack_from("<Q", content)
    for name, entry in json.loads(content[8:8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(content[begin:end], "float32").reshape(entry["shape"])
        next(weight for weight in model.weights if weight.path == name).assign(values)


def predictions(model: keras.Model) -> np.ndarray:
    return model(tf.constant(INPUT), training=False).numpy()


def predicted(model: keras.Model) -> str:
    return hashlib.sha256(predictions(model).tobytes()).hexdigest()


def address_of(weight) -> int:
    """Of the elements that TensorFlow reads."""
    return weight.value.read_value()._numpy().ctypes.data


def say(**found) -> None:
    print(json.dumps(found), flush=True)


def publish(session: gpumem.Session, path: str, where: str = "") -> None:
    model = model_of_zeros()
    load_ordinarily(model, path)
    if where == "everywhere":
        with gpumem.tensorflow.publish_model_replicas(session, model, "model") as replicas:
            say(predicted=predicted(model), devices=replicas.devices)
            sys.stdin.read()
        return
    with gpumem.tensorflow.publish_model(session, model, "model") as publication:
        say(predicted=predicted(model), bytes=sum(array.nbytes for array in publication.layout.arrays))
        sys.stdin.read()


def map_model(session: gpumem.Session) -> None:
    limits = gpumem.tensorflow.configure(session)
    model = model_of_zeros()
    before = predicted(model)
    with session.map_region("model") as region:
        arrays = region.arrays()
        gpumem.tensorflow.load_model_weights(arrays, model)
    in_place = [weight.path for weight in model.weights if address_of(weight) == arrays[weight.path].address]
    private = [name for name, array in arrays.items() if not array.read_only]
    say(predicted=predicted(model), distinct=len(np.unique(predictions(model))), before=before, limits=limits,
        in_place=sorted(in_place), private=sorted(private), weights=sorted(weight.path for weight in model.weights))
    for line in sys.stdin:
        if line == "train\n":
            for weight in model.weights:
                weight.assign_add(tf.ones_like(weight))
        say(predicted=predicted(model))


def mirror_model(session: gpumem.Session) -> None:
    limits = gpumem.tensorflow.configure(session)
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = model_of_zeros()

    def predictions_of_replicas() -> list[str]:
        found = strategy.run(lambda: model(tf.constant(INPUT), training=False))
        return [hashlib.sha256(one.numpy().tobytes()).hexdigest() for one in strategy.experimental_local_results(found)]

    before = predictions_of_replicas()
    # The logical devices of the CPU stand for the simulated GPUs of the same numbers, whose memory is the host's.
    first, second = gpumem.tensorflow.map_replicas(session, "model", strategy, peer=True)
    with first, second:
        arrays = [first.arrays(), second.arrays()]
        try:
            gpumem.tensorflow.load_model_weights([*arrays, arrays[0]], model)
            refused = None
        except gpumem.InvalidArgument as error:
            refused = str(error)
        unchanged = predictions_of_replicas() == before
        gpumem.tensorflow.load_model_weights(arrays, model)
    parts = {weight.path: strategy.experimental_local_results(weight.value) for weight in model.weights}
    in_place = [path for path, variables in parts.items()
                if [variable.read_value()._numpy().ctypes.data for variable in variables]
                == [one[path].address for one in arrays]]
    mirrored = predictions_of_replicas()
    gpumem.tensorflow.load_model_weights(arrays[0], model)
    say(predicted=mirrored, by_one=predictions_of_replicas(), before=before, refused=refused, unchanged=unchanged,
        in_place=sorted(in_place), weights=sorted(parts), limits=limits, regions=[first.device, second.device],
        devices=[variable.device for variable in next(iter(parts.values()))])
    sys.stdin.read()


def of_other_names(session: gpumem.Session) -> bool:
    """Whether a model takes the weights of one whose layers are called otherwise, and refuses those of another order."""
    def small(name: str, *layers: keras.Layer) -> keras.Model:
        return keras.Sequential([keras.Input((3,)), *layers], name=name)

    first = small("first", keras.layers.Dense(3, name="a"), keras.layers.BatchNormalization(name="b"))
    second = small("second", keras.layers.Dense(3), keras.layers.BatchNormalization())
    third = small("third", keras.layers.BatchNormalization(), keras.layers.Dense(3))
    with gpumem.tensorflow.publish_model(session, first, "small"):
        gpumem.tensorflow.load_model_weights(session.map_region("small"), second)
        try:
            gpumem.tensorflow.load_model_weights(session.map_region("small"), third)
        except gpumem.StaleLayout:
            return all((one.numpy() == other.numpy()).all() for one, other in zip(first.weights, second.weights))
    return False


class Counting(keras.layers.Layer):
    """Counts its calls, in a weight whose name says nothing."""

    def build(self, shape) -> None:
        self.calls = self.add_weight(shape=(), name="calls", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1.0)
        return inputs


def private_weights(session: gpumem.Session, **options) -> list[str]:
    """Of a model with a layer that writes, one that is frozen, and one that is quantised."""
    frozen, quantised = keras.layers.Dense(3, name="frozen"), keras.layers.Dense(3, name="quantised")
    model = keras.Sequential([keras.Input((3,)), frozen, quantised, Counting(name="counting"),
                              keras.layers.BatchNormalization(name="norm")], name="net")
    frozen.trainable = False
    quantised.quantize("int8")
    with gpumem.tensorflow.publish_model(session, model, "writes", **options) as publication:
        return [array.name for array in publication.layout.arrays if array.private]


def refused_tensors(session: gpumem.Session) -> list[str]:
    """What is said of tensors whose elements cannot be published."""
    said = []
    for tensor in (tf.constant(["a"]), tf.cast(tf.constant([1]), tf.qint8), tf.Variable(["a"])):
        try:
            gpumem.publish_arrays(session, "refused", {"odd": tensor})
        except gpumem.InvalidArgument as error:
            said.append(str(error))
    return said


def by_tensors(session: gpumem.Session) -> None:
    tensors = gpumem.tensorflow.tensors(session.map_region("file"))
    at = tf.constant(INPUT)
    for number in range(3):
        at = tf.tanh(tf.matmul(at, tensors[f"net/dense_{number}/kernel"]) + tensors[f"net/dense_{number}/bias"])
    wrong = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    before = [weight.numpy().tolist() for weight in wrong.weights]
    try:
        gpumem.tensorflow.load_model_weights(session.map_region("file"), wrong)
        refused = None
    except gpumem.StaleLayout as error:
        refused = str(error)
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    say(predicted=hashlib.sha256(at.numpy().tobytes()).hexdigest(), refused=refused, tenant=session.tenant,
        renamed=of_other_names(session), unpublished=refused_tensors(session),
        written=private_weights(session), chosen=private_weights(session, private=["*/bias"]),
        unchanged=before == [weight.numpy().tolist() for weight in wrong.weights],
        explained=gpumem.tensorflow.explain(error, session))


with gpumem.Session.connect(label=sys.argv[1]) as connected:
    {"publish": publish, "map": map_model, "mirror": mirror_model, "tensors": by_tensors}[sys.argv[1]](connected, *sys.argv[2:])
