"""The examples of deploy/kubernetes, as objects."""
from __future__ import annotations

import json
import typing

import gpus
import product
from cluster import Cluster


def read(cluster: Cluster, name: str) -> list[dict[str, typing.Any]]:
    """kubectl prints one object after the other, or a list. Errors: Failed."""
    text = cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", product.EXAMPLES / name)
    decoder = json.JSONDecoder()
    found = []
    while text := text.strip():
        one, end = decoder.raw_decode(text)
        found += one["items"] if one["kind"] == "List" else [one]
        text = text[end:]
    return found


def start(cluster: Cluster, name: str) -> list[str]:
    """The example on the simulated GPU. Returns the names of its pods. Errors: Failed."""
    objects = read(cluster, name)
    started = [one for one in objects if one["kind"] == "Pod"]
    for one in started:
        gpus.with_simulated_gpu(one)
    cluster.apply(*objects)
    return [one["metadata"]["name"] for one in started]
