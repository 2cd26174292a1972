#include "daemon/host/lane_link.h"

#include <vector>

#include "base/crash_point.h"
#include "proto/lane.h"

namespace gpumem::host {

void LaneLink::press(const BrokerFigures& figures) {
  pages_.publish(figures);  // the woken client reads the page at once
  crash_at(CrashPoint::kPressurePublished);
  doorbell_.ring();
  crash_at(CrashPoint::kPressureRung);
}

// One message speaks of one slice, and holds so many descriptors.
void LaneLink::offer(const core::Grant& grant, const Extents& extents) {
  if (lane_->speaks_frames()) return;  // whose answer is the offer
  for (auto next = grant.leases.begin(); next != grant.leases.end();) {
    v1::ToClient message;
    v1::Offer& offer = *message.mutable_offer();
    offer.set_grant(grant.id.value);
    offer.set_slice(next->slice.value);
    std::vector<int> descriptors;
    for (const SliceId slice = next->slice;
         next != grant.leases.end() && next->slice == slice && descriptors.size() < kLaneDescriptors;
         ++next) {
      offer.add_leases(next->lease.value);
      descriptors.push_back(extents.descriptor(next->extent.id));
    }
    lane_->send(message, descriptors);
  }
}

void LaneLink::send(std::string_view packet, std::span<const int> descriptors) {
  lane_->send(packet, descriptors);
}

std::optional<ClientFigures> LaneLink::client_figures(core::DeviceIndex device, Bytes charged) const {
  return read_figures(pages_.client_page(), device, charged.count);
}

}  // namespace gpumem::host
