#include "daemon/rpc/session_copies.h"

#include <utility>

#include "daemon/rpc/convert.h"

namespace gpumem::rpc {

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
    copies.push_back({std::move(view), std::move(told)});
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
  return info;
}

}  // namespace gpumem::rpc
