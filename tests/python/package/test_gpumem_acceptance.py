"""The GPU acceptance's section on allocators, as far as it goes without a GPU: one of its scripts on the simulated
driver, its traces, its comparisons."""
import pathlib
import subprocess
import sys

from acceptance_on_simulator import broker, context  # noqa: F401, fixtures; first, for it finds the acceptance
from brokered import kept  # noqa: F401, a fixture
import traces
from nvml import Nvml
from sections import allocators, frameworks
from session import MIB, Outcome


def test_a_script_borrows_and_is_seen(broker):
    with Nvml(broker.session.driver_folder) as nvml:
        device = nvml.device(broker.session.device)
        found = allocators.measure(broker.session, device, broker, "gpumem_numba", "gpumem", 100)
    assert (found["verdict"], found["why"]) == ("passed", ""), found
    held = allocators.stage_of([found], "gpumem_numba", "gpumem", "worked")
    assert held["correct"] and held["sessions"] == 1 and held["charged"] >= held["bytes"] > 0
    assert allocators.stage_of([found], "gpumem_numba", "gpumem", "context")["manager"] == "GpumemMemoryManager"


def test_a_script_beside_the_broker_is_looked_at(broker):
    with Nvml(broker.session.driver_folder) as nvml:
        device = nvml.device(broker.session.device)
        found = frameworks.measure(broker.session, device, "numba_arrays", 256 * MIB, 100)
    assert (found["verdict"], found["why"]) == ("passed", ""), found
    assert found["grew"] == found["asked"] == 32 * MIB


def test_a_script_whose_framework_is_missing_is_skipped_with_the_reason(broker):
    with Nvml(broker.session.driver_folder) as nvml:
        device = nvml.device(broker.session.device)
        for name, on in allocators.ALL:
            if name != "gpumem_numba":
                found = allocators.measure(broker.session, device, broker, name, on, 100)
                assert found["verdict"] == "skipped" and "No module named" in found["why"]


def test_an_example_that_fails_is_a_failure(broker):
    outcome = Outcome()
    passed = [{"framework": "gpumem_pytorch", "on": on, "verdict": "passed"} for on in ("own", "gpumem")]
    allocators.run_examples(broker.session, broker, passed, outcome)  # there is no PyTorch here
    assert outcome.verdict == "failed" and "torch_allocate.py" in outcome.why and outcome.data["examples"] == {}


def test_what_is_wrong_is_complained_of():
    held = {"bytes": 100, "charged": 50, "correct": {"pool": True, "gpumem": False}}
    wrong = allocators.complaints("gpumem_cupy", "all", {"worked": held})
    assert "content is wrong" in wrong[0] and "gpumem ps" in wrong[1]
    assert allocators.complaints("gpumem_pytorch", "own", {"trained": held | {"correct": True}}) == []
    trained = [{"framework": "gpumem_pytorch", "on": on, "stages": [{"stage": "trained", "losses": [1.0, loss]}]}
               for on, loss in (("own", 0.5), ("gpumem", 0.6))]
    assert "0.5" in allocators.losses_differ(trained)
    assert allocators.losses_differ(trained[:1] * 2) == ""


def test_times_are_compared_size_by_size():
    def timed(*medians):
        return [{"size": size, "median_ns": median} for size, median in zip((256, 4096), medians)]

    found = [{"framework": "gpumem_pytorch", "on": on, "verdict": "passed", "why": "",
              "stages": [{"stage": "pairs", "tensors": timed(*medians), "raw": []}]}
             for on, medians in (("own", (300, 400)), ("async", (1000, 1000)), ("gpumem", (200, 500)))]
    found.append({"framework": "gpumem_cupy", "on": "all", "verdict": "passed", "why": "",
                  "stages": [{"stage": "pairs", "allocators": {"pool": timed(50, 50), "gpumem": timed(25, 50)}}]})
    rows = allocators.ratios(found)
    assert [(r["framework"], r["way"], r["of"], r["size"], r["ratio"]) for r in rows] == [
        ("PyTorch", "tensors", "caching allocator", 256, 1.5), ("PyTorch", "tensors", "caching allocator", 4096, 0.8),
        ("PyTorch", "tensors", "cudaMallocAsync", 256, 5.0), ("PyTorch", "tensors", "cudaMallocAsync", 4096, 2.0),
        ("CuPy", "gpumem", "pool", 256, 2.0), ("CuPy", "gpumem", "pool", 4096, 1.0)]
    assert all(shown["rows"] for shown in allocators.tables(found, rows, [["pytorch", 3]]))


def test_traces_are_in_the_format_of_the_benchmarks():
    events = [{"op": "segment_alloc", "size": 2 << 20, "stream": 0, "address": 4096},
              {"op": "free_requested", "size": 512, "stream": 0, "address": 99},
              {"op": "alloc", "size": 512, "stream": 0, "address": 4096},
              {"op": "alloc", "size": 1024, "stream": 0x7f00, "address": 8192},
              {"op": "free_requested", "size": 512, "stream": 0, "address": 4096},
              {"op": "free_completed", "size": 512, "stream": 0, "address": 4096},
              {"op": "alloc", "size": 256, "stream": 0, "address": 4096}]
    assert traces.of_pytorch(events).text("a test") == "# a test\na 1 512 0\na 2 1024 1\nf 1 0\na 3 256 0\n"
    log = ["I0000 bfc_allocator.cc:1] AllocateRaw GPU_0_bfc  1024 0x7f0", "AllocateRaw gpu_host_bfc  64 0x1",
           "AllocateRaw GPU_0_bfc  1024 0x7f8", "DeallocateRaw GPU_0_bfc 1024", "DeallocateRaw GPU_0_bfc 77"]
    assert traces.of_xla(log).lines == ["a 1 1024 0", "a 2 1024 0", "f 2 0"]


def test_it_is_skipped_on_the_simulated_driver(broker):
    outcome = allocators.run(broker.session)
    assert outcome.verdict == "skipped" and "CUDA runtime" in outcome.why
    ended = subprocess.run([sys.executable, "-c", "import sections; print([s.NAME for s in sections.ALL])"],
                           cwd=pathlib.Path(allocators.__file__).parents[1], capture_output=True, text=True)
    assert "'allocators'" in ended.stdout
