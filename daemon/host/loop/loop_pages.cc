#include "daemon/host/loop/loop.h"

// The pages that clients and monitors read.

namespace gpumem::host {
namespace {

// A session's own calls show in its page at once; what others do, this late at most.
constexpr auto kBroadcastDelay = std::chrono::milliseconds(10);

}  // namespace

void Loop::publish(SessionId session) {
  const auto client = clients_.find(session);
  if (client != clients_.end() && broker_.knows(session))
    client->second.link->publish(broker_.figures(session));
}

void Loop::publish_soon() {
  // Most calls change nothing, and with many sessions the pages are the largest part of the loop's work.
  if (broadcast_armed_ || broadcast_revision_ == broker_.figures_revision()) return;
  broadcast_armed_ = true;
  broadcast_.expires_after(kBroadcastDelay);
  broadcast_.async_wait([this](const boost::system::error_code& error) {
    broadcast_armed_ = false;
    if (error) return;
    broadcast_revision_ = broker_.figures_revision();
    for (const auto& [session, client] : clients_) publish(session);
    publish_devices();
  });
}

void Loop::show(DevicePages pages) {
  run_and_wait([&](core::Broker&, core::TimePoint) {
    pages_.emplace(std::move(pages));
    publish_devices();
  });
}

void Loop::publish_devices() {
  if (!pages_) return;
  pages_revisions_.resize(broker_.policy().devices.size(), ~0ULL);
  for (core::DeviceIndex i = 0; i < pages_revisions_.size(); ++i) {
    const std::uint64_t revision = broker_.figures_revision(i);
    if (std::exchange(pages_revisions_[i], revision) == revision) continue;
    broker_.list(i, listing_);
    pages_->publish(i, listing_);
  }
}

}  // namespace gpumem::host
