"""Packages that bring large native libraries of their own. Each has a function that imports it and does real work with
it: call it before the package is wanted first, and again to see that the package still works."""
import os


def tensorflow() -> None:
    import tensorflow as tf

    assert float(tf.reduce_sum(tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64))))) == 64.0**3


def grpcio() -> None:
    """Asks the broker for its status, with code that protoc has generated."""
    import grpc
    from gpumem.v1 import broker_pb2, broker_pb2_grpc

    with grpc.insecure_channel(f"unix:{os.environ['GPUMEM_RUNTIME_DIR']}/api.sock") as channel:
        status = broker_pb2_grpc.MonitorStub(channel).GetStatus(broker_pb2.GetStatusRequest(), timeout=60)
    assert status.version and all(device.pool for device in status.devices)


def pyarrow() -> None:
    import pyarrow
    import pyarrow.compute

    assert pyarrow.compute.sum(pyarrow.array(range(1000))).as_py() == 499500


def onnxruntime() -> None:
    import numpy
    import onnxruntime

    value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.arange(1000))
    assert value.numpy().sum() == 499500 and "CPUExecutionProvider" in onnxruntime.get_available_providers()


def jax() -> None:
    import jax.numpy

    assert int(jax.numpy.arange(1000).sum()) == 499500


def ray() -> None:
    """Without a cluster: its processes would outlive a test that fails."""
    import ray
    import ray._raylet

    assert ray._raylet.JobID(ray._raylet.JobID.from_int(7).binary()).int() == 7


def torch() -> None:
    import torch

    assert int(torch.arange(1000).sum()) == 499500


# A forked child with one of these packages crashes or hangs while its interpreter ends, even without gpumem, because
# threads are missing. So it leaves by os._exit, as multiprocessing's children do.
ENDS_AT_ONCE_IN_A_FORK = {"jax", "onnxruntime"}

WORK = {"tensorflow-cpu": tensorflow, "grpcio": grpcio, "pyarrow": pyarrow, "onnxruntime": onnxruntime, "jax": jax,
        "ray": ray, "torch": torch}
