#pragma once
#include <functional>
#include <memory>

#include "daemon/host/peer.h"
#include "daemon/host/process_watch.h"
#include "daemon/host/session_link.h"

namespace gpumem::host {

/// A session of the broker before, as long as its client has not come back: nobody can be told anything. Its
/// process is watched, if the kernel shows it.
class AwaitedLink final : public SessionLink, public std::enable_shared_from_this<AwaitedLink> {
 public:
  AwaitedLink(boost::asio::io_context& loop, core::Peer client)
      : client_(std::move(client)), process_(loop) {}

  /// Errors  kNotFound: the process is gone; kFailedPrecondition: it is of another PID namespace, which does
  ///         not tell; kResourceExhausted: the kernel can watch no more.
  Result<void> watch();
  /// Calls `ended` once the process has ended, unless forget() comes first.
  void await_end(std::function<void()> ended);
  bool is_watching() const { return process_.is_watching(); }
  const core::Peer& peer() const { return client_; }

  std::string who() const override { return in_words(client_); }
  bool is_open() const override { return false; }
  void publish(const BrokerFigures&) override {}
  void press(const BrokerFigures&) override {}
  void send(std::string_view, std::span<const int>) override {}
  bool is_behind() const override { return false; }
  std::optional<ClientFigures> client_figures(core::DeviceIndex, Bytes) const override { return {}; }
  Result<void> signal(core::Signal signal) override { return process_.signal(signal); }
  void stop() override {}
  void forget() override { process_.stop(); }

 private:
  core::Peer client_;
  ProcessWatch process_;
};

}  // namespace gpumem::host
