"""TensorFlow within a slice, on regions, and with the broker's words.

    import gpumem.tensorflow
    gpumem.tensorflow.configure(session)                                # before TensorFlow uses a GPU
    with gpumem.tensorflow.publish_model(session, model, "weights"):    # one process
        ...
    gpumem.tensorflow.load_model_weights(session.map_region("weights"), model)     # others: no copy, one charge

Memory that TensorFlow allocates itself is the slice's under the drop-in driver (`gpumem run`). docs/regions-python.md
says more.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _driver
from ._framework import MIB, RESERVE, arrays_of, check_kind, device_limits, explained, with_private
from ._framework import memory_limit as memory_limit
from .arrays import Array
from .errors import FailedPrecondition, InvalidArgument, StaleLayout
from .publish import Publication, Replicas, map_nearest, publish_arrays, publish_replicas
from .region import Region
from .session import Session


def configure(session: Session, *, limit: int | Mapping[str, int] = 0, reserve: int = RESERVE) -> dict[str, int]:
    """Sets TensorFlow's memory limit of each GPU that it sees to what the process's slice may hold (memory_limit), and
    has it grow as needed. Answers the limits, in bytes, by TensorFlow's name of the GPU; nothing where it sees none.

    limit: bytes of each GPU, or by the device's UUID; of one that is not named there is none but the tenant's.
    Call it before TensorFlow uses a GPU. MirroredStrategy stays within the slices of all devices then.
    Raises FailedPrecondition (TensorFlow has its devices already, or sees a GPU that the broker does not lend),
    InvalidArgument, ImportError.
    """
    import tensorflow as tf

    limits: dict[str, int] = {}
    gpus = tf.config.list_physical_devices("GPU")
    for gpu, (_, may, _) in zip(gpus, device_limits(session, len(gpus), "TensorFlow", limit, reserve)):
        limits[gpu.name] = may
        try:
            tf.config.set_logical_device_configuration(
                gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=may // MIB)])
        except RuntimeError as error:
            raise FailedPrecondition("TensorFlow has its devices already; call gpumem.tensorflow.configure() at the "
                                     f"program's beginning ({error})") from error
    # TensorFlow has no growth for devices with a limit but by this, which it reads when it makes them.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return limits


def tensors(region: Region | Mapping[str, Array], **options: Any) -> dict[str, Any]:
    """The region's arrays as tensors, by name, without a copy. Each keeps the region mapped. TensorFlow makes copies of
    its own when a variable that was assigned one of them changes.

    options: of Region.arrays.
    Raises InvalidArgument (a type of elements that TensorFlow does not take by DLPack), others as Region.arrays.
    """
    import tensorflow as tf

    def tensor(array: Array) -> Any:
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except tf.errors.OpError as error:
            raise InvalidArgument(f"TensorFlow takes no array {array.name!r} of {array.dtype} {array.shape}: "
                                  f"{error.message}") from error

    return {name: tensor(array) for name, array in arrays_of(region, options).items()}


def publish_model(session: Session, model: Any, name: str, **options: Any) -> Publication:
    """Publishes the weights of a Keras model that is built, by their paths, for load_model_weights. Weights that layers
    write to while the model is used are private, besides gpumem.arrays.PRIVATE: those that a layer has made not
    trainable. Weights of a frozen or quantised layer are not private.

    options: of gpumem.publish_arrays; `private` is instead of all these.
    Raises InvalidArgument (no weights, two of one path), others as publish_arrays.
    """
    return publish_arrays(session, name, _tensors_of(model), **with_private(options, _written(model)))


def publish_model_replicas(session: Session, model: Any, name: str, **options: Any) -> Replicas:
    """Publishes the weights on each of several devices, for map_replicas.

    options: of gpumem.publish_replicas. Raises as publish_model and gpumem.publish_replicas.
    """
    return publish_replicas(session, name, _tensors_of(model), **with_private(options, _written(model)))


def map_replicas(session: Session, name: str, strategy: Any, **options: Any) -> list[Region]:
    """A region for each replica of a MirroredStrategy, for load_model_weights: the newest of the name on the replica's
    device. TensorFlow's GPUs have the driver's order, as for `configure`.

    options: of gpumem.map_nearest; with peer=True a replica without a region on its device uses another device's.
    Raises as gpumem.map_nearest; then none is mapped.
    """
    regions: list[Region] = []
    with contextlib.ExitStack() as mapped:
        for device in strategy.extended.worker_devices:
            uuid = _driver.device_uuid(int(device.rpartition(":")[2]))
            regions.append(map_nearest(session, name, device=uuid, **options))
            mapped.enter_context(regions[-1])
        mapped.pop_all()
    return regions


def load_model_weights(region: Region | Mapping[str, Array] | Sequence[Region | Mapping[str, Array]], model: Any,
                       **options: Any) -> None:
    """Has the weights of a Keras model that is built be those of a region, without a copy. Arrays are found by the
    weights' paths; those of a model whose layers were numbered otherwise by their order. Training goes on with copies
    of what it changes.

    region: of a model that was built under MirroredStrategy also one for each of its replicas, in their order: each has
    the weights of its own device then. With one region all replicas have the weights of that one.
    options: of Region.arrays.
    Raises StaleLayout (a region's arrays are not this model's; the words say which; the model is as before),
    InvalidArgument (another number of regions than of replicas), others as tensors.
    """
    weights = _weights(model)
    regions = region if isinstance(region, Sequence) else [region]
    chosen = [tensors(dict(zip(weights, _matching(weights, arrays_of(one, options))))) for one in regions]
    parts = {path: _replicas(weight) for path, weight in weights.items()}
    for path, variables in parts.items():
        if len(chosen) not in (1, len(variables)):
            raise InvalidArgument(f"the weight {path!r} has {len(variables)} replicas, and there are {len(chosen)} regions")
    for path, variables in parts.items():
        for number, variable in enumerate(variables):
            variable.assign(chosen[number % len(chosen)][path])


def explain(error: BaseException, session: Session) -> str:
    """TensorFlow's message in a ResourceExhaustedError, with the broker's figures of each device. Raises
    Unavailable."""
    return explained(str(getattr(error, "message", None) or error), session)


def _weights(model: Any) -> dict[str, Any]:
    """By their paths, in the model's order."""
    found: dict[str, Any] = {}
    for weight in model.weights:
        path = getattr(weight, "path", None) or weight.name
        if path in found:
            raise InvalidArgument(f"two weights of the model are called {path!r}; name its layers")
        found[path] = weight
    if not found:
        raise InvalidArgument("the model has no weights; build it before: call it, or model.build(shape)")
    return found


def _written(model: Any) -> list[str]:
    """Paths of weights that are no parameters. Freezing a layer of Keras 3 says of its parameters, too, that they are not
    trainable: the layer still has them among those that it made so. A quantised layer's kernels are never trainable."""
    layers = list(model._flatten_layers())
    parameters = {id(weight) for layer in layers for weight in getattr(layer, "_trainable_variables", ())}
    parameters |= {id(weight) for layer in layers if getattr(layer, "quantization_mode", None)
                   for weight in getattr(layer, "_non_trainable_variables", ())}
    return [path for path, weight in _weights(model).items() if not weight.trainable and id(weight) not in parameters]


def _tensors_of(model: Any) -> dict[str, Any]:
    import tensorflow as tf

    return {path: tf.convert_to_tensor(weight) for path, weight in _weights(model).items()}


def _replicas(weight: Any) -> Sequence[Any]:
    """The variables of a weight, one for each replica of its strategy; without one, the weight itself."""
    variable = getattr(weight, "value", None)
    return getattr(variable, "values", None) or [weight]


def _matching(weights: dict[str, Any], arrays: Mapping[str, Array]) -> Iterable[Array]:
    """An array for each weight. Raises StaleLayout."""
    by_path = all(path in arrays for path in weights)
    if not by_path and len(arrays) != len(weights):
        missing = next(path for path in weights if path not in arrays)
        raise StaleLayout(f"the region has no array {missing!r}, and {len(arrays)} arrays for {len(weights)} weights")
    chosen = [arrays[path] for path in weights] if by_path else list(arrays.values())
    for (path, weight), array in zip(weights.items(), chosen):
        if not by_path and path.rpartition("/")[2] != array.name.rpartition("/")[2]:
            raise StaleLayout(f"array {array.name!r} is where the model has {path!r}: the region is another model's")
        check_kind(path, (tuple(weight.shape), _dtype_name(weight)), array)
    return chosen


def _dtype_name(weight: Any) -> str:
    return str(getattr(weight.dtype, "name", weight.dtype))  # Keras has texts, TensorFlow objects
