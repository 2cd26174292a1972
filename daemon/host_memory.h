#pragma once
#include <filesystem>
#include <map>

#include "daemon/devices.h"
#include "daemon/host/config/config.h"
#include "daemon/host/state/journal.h"
#include "daemon/host/state/passed_descriptors.h"

namespace gpumem {

/// Decides whether the host store is memory of the driver, on which NUMA nodes, or files. Memory that the
/// broker before has lent keeps its kind: `before`  its journal, null if there is none, and `kept`  the
/// descriptors. The driver is tried on each node by a program of its own, since it has crashed processes
/// there. The log says what fails, and what to do.   Blocks: for some seconds at most on each node.
void choose_host_memory(Machine& machine, const host::Config& config, const std::filesystem::path& driver,
                        const host::Journal::Content* before,
                        const std::map<LeaseId, host::KeptDescriptor>& kept);

/// The program that tries one node: makes memory there, shares it with itself, maps it for the CPUs and the
/// devices, and writes to it. Its output says why it fails. Returns its exit status.
int try_host_node(const std::filesystem::path& driver, int node);

}  // namespace gpumem
