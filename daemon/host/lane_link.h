#pragma once
#include <memory>

#include "daemon/host/lane.h"
#include "daemon/host/session_link.h"
#include "daemon/host/shared_pages.h"

namespace gpumem::host {

/// A session of a lane: shared pages, a doorbell, descriptors.
class LaneLink final : public SessionLink {
 public:
  LaneLink(std::shared_ptr<Lane> lane, SharedPages pages, Doorbell doorbell)
      : lane_(std::move(lane)), pages_(std::move(pages)), doorbell_(std::move(doorbell)) {}

  std::string who() const override { return lane_->who(); }
  bool is_open() const override { return !lane_->ended(); }
  void publish(const BrokerFigures& figures) override { pages_.publish(figures); }
  void press(const BrokerFigures& figures) override;
  void send(std::string_view packet, std::span<const int> descriptors) override;
  bool is_behind() const override { return lane_->is_behind(); }
  std::optional<ClientFigures> client_figures(core::DeviceIndex device, Bytes charged) const override;
  Result<void> signal(core::Signal signal) override { return lane_->signal(signal); }
  // Clients keep what they have, and those that can go on with the next broker.
  void stop() override {
    if (!lane_->ended()) lane_->leave_to_next();
  }
  void forget() override { lane_->forget(); }

 private:
  std::shared_ptr<Lane> lane_;
  SharedPages pages_;
  Doorbell doorbell_;
};

}  // namespace gpumem::host
