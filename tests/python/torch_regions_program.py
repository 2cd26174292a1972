"""torch_regions_program.py ROLE: a PyTorch process with a model of 201 MB. Prints what it found as a line of JSON, then does
what the lines of its input say, until it ends.

publish         makes the model from a seed, predicts, and publishes it as the region `model`
map             maps that region into a model of its own, and predicts
"""
import hashlib
import json
import sys

import gpumem
import gpumem.torch
import torch

WIDTHS = (1024, 4096, 8192, 1536)
INPUT = torch.randn((8, WIDTHS[0]), generator=torch.Generator().manual_seed(3))


def model_of(device: str) -> torch.nn.Module:
    """Of the `meta` device it has shapes and no memory."""
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs, device=device), torch.nn.BatchNorm1d(outputs, device=device), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers).eval()


def predictions(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(INPUT)


def predicted(model: torch.nn.Module) -> str:
    return hashlib.sha256(predictions(model).numpy().tobytes()).hexdigest()


def say(**found) -> None:
    print(json.dumps(found), flush=True)


def publish(session: gpumem.Session) -> None:
    torch.manual_seed(5)
    model = model_of("cpu")
    model.train()(torch.randn((64, WIDTHS[0])))  # the statistics are no longer those of a new model
    model.eval()
    with gpumem.publish_arrays(session, "model", model.state_dict()) as publication:
        say(predicted=predicted(model), bytes=sum(array.nbytes for array in publication.layout.arrays))
        sys.stdin.read()


def map_model(session: gpumem.Session) -> None:
    model = model_of("meta")
    with session.map_region("model") as region:
        arrays = region.arrays()
        with torch.no_grad():
            model.load_state_dict(gpumem.torch.tensors(arrays), assign=True)
    state = model.state_dict()
    say(predicted=predicted(model), distinct=len(torch.unique(predictions(model))), names=sorted(state),
        in_place=sorted(name for name in state if state[name].data_ptr() == arrays[name].address),
        private=sorted(name for name, array in arrays.items() if not array.read_only))
    for line in sys.stdin:
        if line == "train\n":  # the layers' statistics alone: weights are others', too
            model.train()(INPUT)
            model.eval()
        say(predicted=predicted(model))


with gpumem.Session.connect(label=sys.argv[1]) as connected:
    {"publish": publish, "map": map_model}[sys.argv[1]](connected)
