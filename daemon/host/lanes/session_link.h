#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/core/broker/executor.h"
#include "daemon/core/sessions/effects.h"
#include "daemon/host/driver/extents.h"
#include "daemon/host/lanes/lane.h"
#include "daemon/host/lanes/shared_pages.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/sockets/peer.h"
#include "daemon/host/system/process.h"
#include "shm/pages.h"

namespace gpumem::host {

/// The connection of a session to its client: sends the loop's messages.
/// Threads  the loop's.
class SessionLink {
 public:
  virtual ~SessionLink() = default;
  SessionLink() = default;
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  /// The client in words: `pid 7 (uid 1000, python)`.
  virtual std::string who() const = 0;
  /// The connection is there: packets can be sent.
  virtual bool is_open() const = 0;
  /// The session's figures have changed.
  virtual void publish(const BrokerFigures& figures) = 0;
  /// The session is asked for more memory than before, as `figures` say.
  virtual void press(const BrokerFigures& figures) = 0;
  /// With the extents' descriptors.
  virtual void send(std::string_view packet, const core::SentExtents& extents) = 0;
  /// Whether much of what was sent is unread.
  virtual bool is_behind() const = 0;
  /// Whether the client has sent something that the broker has not read, as far as it can be told.
  virtual bool has_unread() const { return false; }
  /// The figures that the client reports; nothing if they cannot be true.
  virtual std::optional<ClientFigures> client_figures(core::DeviceIndex device, Bytes charged) const = 0;
  /// Errors  as ProcessWatch::signal.
  virtual Result<void> signal(core::Signal signal) = 0;
  /// The broker is stopping.
  virtual void stop() = 0;
  /// The session is over and holds nothing any more.
  virtual void forget() = 0;
};

/// A session of a lane: shared pages, a doorbell, descriptors.
class LaneLink final : public SessionLink {
 public:
  LaneLink(std::shared_ptr<Lane> lane, SharedPages pages, Doorbell doorbell)
      : lane_(std::move(lane)), pages_(std::move(pages)), doorbell_(std::move(doorbell)) {}

  std::string who() const override { return lane_->who(); }
  bool is_open() const override { return !lane_->ended(); }
  void publish(const BrokerFigures& figures) override { pages_.publish(figures); }
  void press(const BrokerFigures& figures) override;
  void send(std::string_view packet, const core::SentExtents& extents) override;
  bool is_behind() const override { return lane_->is_behind(); }
  bool has_unread() const override { return lane_->has_unread(); }
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
  /// As ProcessWatch::handle(). The handle of a process that cannot be watched stands for it, too: it shows
  /// no end before resumed_by().
  ProcessHandle handle();
  /// The process has come back, and this is a handle of it.
  void resumed_by(const ProcessHandle& process);
  const core::Peer& peer() const { return client_; }

  std::string who() const override { return in_words(client_); }
  bool is_open() const override { return false; }
  void publish(const BrokerFigures&) override {}
  void press(const BrokerFigures&) override {}
  void send(std::string_view, const core::SentExtents&) override {}
  bool is_behind() const override { return false; }
  std::optional<ClientFigures> client_figures(core::DeviceIndex, Bytes) const override { return {}; }
  Result<void> signal(core::Signal signal) override { return process_.signal(signal); }
  void stop() override {}
  void forget() override { process_.stop(); }

 private:
  core::Peer client_;
  ProcessWatch process_;
  ProcessHandle stand_in_;  ///< for the handle of a process that cannot be watched
};

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
  void send(std::string_view, const core::SentExtents&) override {}
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
