#pragma once
#include <memory>

#include "daemon/core/session_holder.h"
#include "daemon/host/api_connections.h"
#include "daemon/host/peer.h"
#include "daemon/host/process_watch.h"
#include "daemon/host/session_link.h"

namespace gpumem::host {

/// A session of a stream of gRPC, whose holder tells its client; and the watch over the client's process.
class StreamLink final : public SessionLink, public std::enable_shared_from_this<StreamLink> {
 public:
  /// `client`  as the kernel said when its connection was accepted.
  /// Errors    kUnauthenticated: the process has ended; kResourceExhausted: no descriptor left.
  static Result<std::shared_ptr<StreamLink>> create(boost::asio::io_context& loop,
                                                    ApiConnections::Caller client,
                                                    std::shared_ptr<core::SessionHolder> holder);

  /// Calls `ended` once the process has ended, unless forget() comes first.
  void await_end(std::function<void()> ended);
  /// Tells the holder that the session is over.
  void close(const Error& why) { holder_->closed(why); }
  /// How far the process's descriptors are used up.
  int descriptor() const { return descriptor_; }

  std::string who() const override { return in_words(client_.peer); }
  bool is_open() const override { return false; }
  void publish(const BrokerFigures&) override {}
  void press(const BrokerFigures& figures) override { holder_->pressed(figures); }
  void send(std::string_view, std::span<const int>) override {}
  bool is_behind() const override { return false; }
  std::optional<ClientFigures> client_figures(core::DeviceIndex, Bytes) const override { return {}; }
  Result<void> signal(core::Signal signal) override;
  void stop() override;
  void forget() override { process_.stop(); }

 private:
  StreamLink(boost::asio::io_context& loop, ApiConnections::Caller client,
             std::shared_ptr<core::SessionHolder> holder)
      : client_(std::move(client)), holder_(std::move(holder)), process_(loop) {}
  Result<void> watch();

  const ApiConnections::Caller client_;
  const std::shared_ptr<core::SessionHolder> holder_;
  ProcessWatch process_;
  int descriptor_ = -1;
};

}  // namespace gpumem::host
