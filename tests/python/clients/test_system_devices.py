"""cuda.core.system: the layer of cuda-core that asks the management library."""
import os

import pytest
from cuda.bindings import driver as cu
from cuda.core import system
from cuda.core.system import typing

from bindings import MIB, ok, use


@pytest.fixture
def context():
    use(0)
    yield
    ok(cu.cuDevicePrimaryCtxRelease(0))


@pytest.fixture(params=[0, 1])
def device(request):
    return list(system.Device.get_all_devices())[request.param]


def test_versions_are_told():
    assert system.get_driver_branch() == "r580_00"
    assert system.get_kernel_mode_driver_version() == (580, 0, 0)
    assert system.get_user_mode_driver_version() == (13, 0)
    assert system.get_num_devices() == 2
    assert "python" in system.get_process_name(os.getpid())


def test_board_and_bus_are_told(device):
    assert device.serial.isdigit() and len(device.serial) == 13
    assert device.module_id == device.index
    bus = device.pci_info
    assert (bus.vendor_id, bus.base_class, bus.replay_counter) == (0x10DE, 3, 0)
    assert (bus.max_link_generation, bus.current_link_generation, bus.current_link_width) == (5, 5, 16)
    assert system.Device(pci_bus_id=bus.bus_id).index == device.index
    assert device.attributes.multiprocessor_count == 132
    assert device.inforom.board_part_number and device.inforom.image_version
    device.inforom.validate()
    assert not device.is_c2c_enabled and not device.repair_status.channel_repair_pending
    assert device.addressing_mode is None


def test_the_same_device_is_found_by_cuda(device):
    assert device.to_cuda_device().uuid == device.uuid_without_prefix


def test_memory_is_what_the_process_may_use(context):
    device = system.Device(index=0)
    before = device.memory_info
    assert before.total == ok(cu.cuMemGetInfo())[1]
    assert before.free + before.used + before.reserved == before.total
    address = ok(cu.cuMemAlloc(64 * MIB))
    assert device.memory_info.used - before.used == 64 * MIB
    ok(cu.cuMemFree(address))


def test_sensors_and_clocks_are_told(device):
    temperature = device.temperature
    assert temperature.get_sensor() == 35
    assert temperature.margin == temperature.get_threshold(typing.TemperatureThresholds.SLOWDOWN) - 35
    assert [one.current_temp for one in temperature.get_thermal_settings(typing.ThermalTarget.ALL)] == [35]
    assert device.performance_state == 0 and list(device.supported_pstates) == [0]
    assert {one.percentage for one in device.dynamic_pstates_info} == {0}
    assert set(device.current_clock_event_reasons) <= set(device.supported_clock_event_reasons)
    clock = device.get_clock(typing.ClockType.SM)
    assert clock.get_min_max_clock_of_pstate_mhz(0) == (1980, 1980)
    assert clock.get_current_mhz() == clock.get_max_customer_boost_mhz() == 1980
    assert clock.get_offsets(0).clock_offset_mhz == 0
    assert device.num_fans == 0


def test_devices_are_near_to_each_other_and_to_all_processors(device):
    other = list(system.Device.get_all_devices())[1 - device.index]
    assert system.get_p2p_status(device, other, typing.GpuP2PCapsIndex.READ) == typing.GpuP2PStatus.OK
    assert system.get_topology_common_ancestor(device, other) == typing.GpuTopologyLevel.HOSTBRIDGE
    near = device.get_topology_nearest_gpus(typing.GpuTopologyLevel.HOSTBRIDGE)
    assert [one.index for one in near] == [other.index]
    processors = device.get_cpu_affinity(typing.AffinityScope.NODE)
    assert set(os.sched_getaffinity(0)) <= set(processors)
    assert device.get_memory_affinity(typing.AffinityScope.NODE) == [0]
    assert len(list(system.Device.get_all_devices_with_cpu_affinity(0))) == 2


def test_counted_fields_are_there(device):
    asked = [typing.FieldId.DEV_TOTAL_ENERGY_CONSUMPTION, typing.FieldId.DEV_PCIE_COUNT_TX_BYTES]
    values = device.get_field_values(asked)
    values.validate()
    assert values.get_all_values() == [0, 0]


def test_events_are_waited_for_in_vain(device):
    assert typing.EventType.XID_CRITICAL_ERROR in device.get_supported_event_types()
    with pytest.raises(system.TimeoutError):
        device.register_events([typing.EventType.XID_CRITICAL_ERROR]).wait(timeout_ms=1)


def test_no_device_comes_or_goes():
    with pytest.raises(system.TimeoutError):
        system.register_events([typing.SystemEventType.UNBIND]).wait(timeout_ms=1, buffer_size=1)
