"""program.py SOCKET STEP: a client of the broker that has nothing of gpumem but its .proto files. STEP `whole`: a session
from its opening to its end, which prints what it saw as JSON. STEP `held`: one that holds memory until its standard
input ends."""
import itertools
import json
import queue
import sys

import grpc
from gpumem.v1 import broker_pb2 as pb
from gpumem.v1 import broker_pb2_grpc as services

MIB = 1 << 20
PATIENCE_SECONDS = 60


class Session:
    """A session, as long as it is entered."""

    def __init__(self, channel, label):
        self._requests = queue.Queue()
        self._ids = itertools.count(1)
        self._answers = services.BrokerStub(channel).Session(iter(self._requests.get, None), timeout=PATIENCE_SECONDS)
        self.opened = self.ask(open=pb.OpenSessionRequest(label=label)).opened

    def tell(self, **request):
        number = next(self._ids)
        self._requests.put(pb.SessionRequest(id=number, **request))
        return number

    def answer(self, number):
        return next(answer for answer in self._answers if answer.id == number)

    def ask(self, **request):
        return self.answer(self.tell(**request))

    def leave(self):
        self._requests.put(None)
        assert list(self._answers) == []  # raises grpc.RpcError if the stream ends badly

    def grow(self, slice, size):
        part = pb.GrowPart(slice=slice, bytes=size)
        return self.ask(grow=pb.GrowRequest(parts=[part])).granted


def whole(channel):
    session = Session(channel, "foreign")
    device = session.opened.devices[0].uuid
    slice = session.ask(open_slice=pb.OpenSliceRequest(device=device, limit=64 * MIB)).slice_opened.slice
    granted = session.grow(slice, 6 * MIB)
    exported = session.ask(export_handle=pb.ExportHandleRequest(slice=slice, bytes=4096,
                                                                leases=[lease.id for lease in granted.leases]))
    assert exported.handle_exported.handle.startswith(b"GPUMEMH1") and len(exported.handle_exported.handle) == 64
    refused = session.ask(grow=pb.GrowRequest(parts=[pb.GrowPart(slice=slice, bytes=128 * MIB)])).failed
    described = session.ask(describe=pb.DescribeRequest()).described
    monitor = services.MonitorStub(channel)
    listed = monitor.ListSessions(pb.ListSessionsRequest()).sessions
    explained = monitor.Explain(pb.ExplainRequest(session=session.opened.session))  # who asks, the kernel says
    back = pb.ReturnRequest(slice=slice, leases=[lease.id for lease in granted.leases])
    returned = session.ask(give_back=back).HasField("done")
    closed = session.ask(close_slice=pb.CloseSliceRequest(slice=slice)).HasField("done")
    session.leave()
    return {"granted": sum(lease.size for lease in granted.leases), "refused": refused.code,
            "asked": refused.denial.asked, "charged": [one.charged for one in described.slices],
            "listed": [[one.label, one.pid, len(one.slices)] for one in listed],
            "tenant": explained.tenant == session.opened.tenant, "returned": returned, "closed": closed}


def held(channel):
    session = Session(channel, "held")
    slice = session.ask(open_slice=pb.OpenSliceRequest(device=session.opened.devices[0].uuid)).slice_opened.slice
    session.grow(slice, 32 * MIB)
    print("held", flush=True)
    sys.stdin.read()


with grpc.insecure_channel(f"unix:{sys.argv[1]}") as channel:
    if sys.argv[2] == "whole":
        print(json.dumps(whole(channel)))
    else:
        held(channel)
