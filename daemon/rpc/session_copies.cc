#include "daemon/rpc/session_copies.h"

#include <utility>

#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

v1::SessionMemory memory_of(const core::MemoryView& view, const std::optional<ClientFigures>& figures,
                            const std::vector<std::string>& devices) {
  v1::SessionMemory memory;
  memory.set_device(devices.at(view.device));
  memory.set_held(view.charges.held().count);
  memory.set_returning(view.charges[core::Charge::kReturning].count);
  memory.set_quarantined(view.charges[core::Charge::kQuarantined].count);
  for (const auto& [size, count] : view.extents) {
    v1::ExtentCount& extents = *memory.add_extents();
    extents.set_size(size.count);
    extents.set_count(count);
  }
  memory.set_told(figures.has_value());
  if (!figures) return memory;
  memory.set_reserved(figures->reserved);
  memory.set_committed(figures->committed);
  memory.set_in_use(figures->in_use);
  memory.set_peak(figures->peak);
  return memory;
}

}  // namespace

std::vector<SessionCopy> copy_sessions(const core::Broker& broker, const core::Executor& executor,
                                       SessionId after, std::size_t most_slices) {
  std::vector<core::SessionView> views = broker.sessions(after, most_slices);
  std::vector<SessionCopy> copies;
  copies.reserve(views.size());
  for (core::SessionView& view : views) {
    std::vector<std::optional<ClientFigures>> told;
    told.reserve(view.slices.size());
    for (const core::SliceView& slice : view.slices)
      told.push_back(executor.client_figures(view.id, slice.device, slice.charged));
    std::vector<std::optional<ClientFigures>> of_device;
    of_device.reserve(view.memory.size());
    for (const core::MemoryView& memory : view.memory)
      of_device.push_back(executor.client_figures(view.id, memory.device, memory.charges.total()));
    copies.push_back({std::move(view), std::move(told), std::move(of_device)});
  }
  return copies;
}

v1::SessionInfo to_proto(const SessionCopy& copy, const std::vector<std::string>& devices,
                         core::TimePoint now) {
  v1::SessionInfo info = to_proto(copy.view, devices, now);
  for (std::size_t i = 0; i < copy.view.slices.size(); ++i) {
    v1::SliceInfo& one = *info.add_slices();
    one = to_proto(copy.view.slices[i], devices);
    if (!copy.told[i]) continue;
    one.set_in_use(copy.told[i]->in_use);
    one.set_peak(copy.told[i]->peak);
  }
  for (std::size_t i = 0; i < copy.view.memory.size(); ++i)
    *info.add_memory() = memory_of(copy.view.memory[i], copy.told_of_device[i], devices);
  return info;
}

}  // namespace gpumem::rpc
