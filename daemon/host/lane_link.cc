#include "daemon/host/lane_link.h"

#include "base/crash_point.h"

namespace gpumem::host {

void LaneLink::press(const BrokerFigures& figures) {
  pages_.publish(figures);  // the woken client reads the page at once
  crash_at(CrashPoint::kPressurePublished);
  doorbell_.ring();
  crash_at(CrashPoint::kPressureRung);
}

void LaneLink::send(std::string_view packet, std::span<const int> descriptors) {
  lane_->send(packet, descriptors);
}

std::optional<ClientFigures> LaneLink::client_figures(core::DeviceIndex device, Bytes charged) const {
  return read_figures(pages_.client_page(), device, charged.count);
}

}  // namespace gpumem::host
