#include "daemon/host/loop/loop.h"

// The pages that clients and monitors read.

namespace gpumem::host {
namespace {

// A session's own calls show in its page at once; what others do, this late at most.
constexpr auto kBroadcastDelay = std::chrono::milliseconds(10);
constexpr std::size_t kPagesInARow = 64;

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
    if (error) {
      broadcast_armed_ = false;
      return;
    }
    queue(kOwnFlow, [this] {
      broadcast_revision_ = broker_.figures_revision();
      for (const auto& [session, client] : clients_) to_publish_.push_back(session);
      publish_next();
    });
  });
}

// In pieces: there may be thousands of sessions.
void Loop::publish_next() {
  for (std::size_t i = 0; i < kPagesInARow && !to_publish_.empty(); ++i) {
    publish(to_publish_.back());
    to_publish_.pop_back();
  }
  if (!to_publish_.empty()) return queue(kOwnFlow, [this] { publish_next(); });
  broadcast_armed_ = false;
  publish_devices();
  publish_soon();  // what has changed meanwhile
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
