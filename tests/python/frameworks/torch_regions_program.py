"""torch_regions_program.py ROLE [FILE]: a PyTorch process with a model of 201 MB. Prints what it found as a line of JSON, then does
what the lines of its input say, until it ends.

publish FILE    loads a file of safetensors as PyTorch loads one, predicts, and publishes the file as the region `model`
map             maps that region into a model of its own, and predicts
small           publishes a module with buffers of every kind, and loads it again
"""
import hashlib
import json
import struct
import sys

import gpumem
import gpumem.safetensors
import gpumem.torch
import torch

WIDTHS = (1024, 4096, 8192, 1536)
INPUT = torch.randn((8, WIDTHS[0]), generator=torch.Generator().manual_seed(3))
DTYPES = {"F32": torch.float32, "I64": torch.int64}


def model_of(device: str) -> torch.nn.Module:
    """Of the `meta` device it has shapes and no memory."""
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs, device=device), torch.nn.BatchNorm1d(outputs, device=device), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers).eval()


def load_ordinarily(model: torch.nn.Module, path: str) -> None:
    content = bytearray(open(path, "rb").read())
    [length] = struct.unpack_from("<Q", content)
    state = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        state[name] = torch.frombuffer(content[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    model.load_state_dict(state)


def predictions(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(INPUT)


def predicted(model: torch.nn.Module) -> str:
    return hashlib.sha256(predictions(model).numpy().tobytes()).hexdigest()


def say(**found) -> None:
    print(json.dumps(found), flush=True)


def publish(session: gpumem.Session, path: str) -> None:
    model = model_of("cpu")
    load_ordinarily(model, path)
    with gpumem.safetensors.publish_safetensors(session, path, "model"):
        say(predicted=predicted(model))
        sys.stdin.read()


def map_model(session: gpumem.Session) -> None:
    model = model_of("meta")
    with session.map_region("model") as region:
        arrays = region.arrays()
        gpumem.torch.load_module(arrays, model)
    state = model.state_dict()
    say(predicted=predicted(model), distinct=len(torch.unique(predictions(model))), names=sorted(state),
        in_place=sorted(name for name in state if state[name].data_ptr() == arrays[name].address),
        private=sorted(name for name, array in arrays.items() if not array.read_only))
    for line in sys.stdin:
        if line == "train\n":  # the layers' statistics alone: weights are others', too
            model.train()(INPUT)
            model.eval()
        say(predicted=predicted(model))


class Small(torch.nn.Module):
    """Two layers of one weight, and buffers that its calls write to, one of them not in its state_dict."""

    def __init__(self, width: int = 4, **options) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(width, width, **options), torch.nn.Linear(width, width, **options)
        self.last.weight = self.first.weight
        self.register_buffer("calls", torch.zeros((), **options))
        self.register_buffer("scale", torch.full((width,), 2.0, **options), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.scale *= 1
        return self.last(self.first(inputs)) * self.scale


def refused(region: gpumem.Region, module: torch.nn.Module) -> str:
    try:
        gpumem.torch.load_module(region, module)
    except gpumem.StaleLayout as error:
        return str(error)
    return ""


def small(session: gpumem.Session) -> None:
    module, copy, other = Small(), Small(device="meta"), Small(width=3)
    module.scale.mul_(1.5)
    before = [tensor.clone() for tensor in other.state_dict().values()]
    ones = torch.ones(2, 4)
    with gpumem.torch.publish_module(session, "small", module) as publication:
        private = [array.name for array in publication.layout.arrays if array.private]
        with session.map_region("small") as region:
            gpumem.torch.load_module(region, copy)
            same = torch.equal(copy(ones), module(ones))
            gradients = {name: parameter.requires_grad for name, parameter in copy.named_parameters()}
            own = Small()
            gpumem.torch.load_module(region, own, private=["*"])
            own_gradients = all(parameter.requires_grad for parameter in own.parameters())
            with gpumem.torch.publish_module(session, "one", module.first):
                lacking = refused(session.map_region("one"), Small(device="meta"))
            wrong = refused(region, other)
    with gpumem.publish_arrays(session, "saved", module.state_dict()):  # as a file has it
        loaded, scaled = Small(), Small(device="meta")
        gpumem.torch.load_module(session.map_region("saved"), loaded, private=["calls"])
        say(private=private, same=same, calls=[float(copy.calls), float(module.calls)], gradients=gradients,
            own_gradients=own_gradients, tied=copy.first.weight is copy.last.weight, wrong=wrong, lacking=lacking,
            unchanged=all(map(torch.equal, before, other.state_dict().values())), scale=loaded.scale.tolist(),
            without_memory=refused(session.map_region("saved"), scaled))
    sys.stdin.read()


with gpumem.Session.connect(label=sys.argv[1]) as connected:
    {"publish": publish, "map": map_model, "small": small}[sys.argv[1]](connected, *sys.argv[2:])
