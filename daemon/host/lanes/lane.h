#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/packet.h"
#include "daemon/core/sessions/effects.h"
#include "daemon/host/driver/host_file.h"
#include "daemon/host/limits/unread_descriptors.h"
#include "daemon/host/sockets/peer_listener.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

class Lane;

/// What a lane tells. Called on the loop's thread.
class LaneHandler {
 public:
  virtual ~LaneHandler() = default;
  /// A frame may wait on the lane: Lane::take_frame() is to be called in the turn of its user.
  virtual void readable(const std::shared_ptr<Lane>& lane) = 0;
  /// To be called in the turn of the lane's user, too.
  virtual void in_turn(const std::shared_ptr<Lane>& lane, std::function<void()> work) = 0;
  /// A frame of proto/lane/frames.h, unread. The first is a Hello, which the handler welcomes or refuses.
  virtual void frame(const std::shared_ptr<Lane>& lane, std::string_view packet) = 0;
  /// The descriptor to send for an extent; not held: the extent is gone. `read_only`  for reading alone,
  /// where the kind of memory has such descriptors. `client`  of the process that it is sent to.
  virtual SentDescriptor descriptor(ExtentId extent, bool read_only, ProcessWatch& client) = 0;
  /// Something is wrong with a connection, or with all that are to come.
  virtual void warn(const std::string& words) = 0;
  /// The connection is gone; `released`: the client has said that it has unmapped everything, or it has
  /// closed the connection itself and lives on.
  virtual void closed(const std::shared_ptr<Lane>& lane, bool released) = 0;
  /// The process is gone, and with it its mappings. After closed() or before.
  virtual void process_exited(const std::shared_ptr<Lane>& lane) = 0;
};

/// One peer's connection, from accept to its end; and, as long as it is kept, the watch over its
/// process. A peer that breaks the protocol, does not read, or does not greet in time is disconnected.
/// Threads  the loop's.
class Lane final : public DescriptorSender, public std::enable_shared_from_this<Lane> {
 public:
  /// `disposal`  closes the socket; outlives it, as `unread` and `handler` do.
  /// Errors      kResourceExhausted: the kernel can watch no more sockets; the connection is cut.
  static Result<std::shared_ptr<Lane>> create(boost::asio::io_context& loop, Connection connection,
                                              LaneHandler& handler, SocketDisposal& disposal,
                                              UnreadDescriptors& unread);

  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void start();
  /// Hands one frame over. False: there was none, or much is to be sent before the next one is read;
  /// LaneHandler::readable() follows.
  bool take_frame();
  /// The earliest time at which the frame that take_frame() hands over could have been read.
  core::TimePoint readable_since() const { return readable_since_; }
  const core::Peer& peer() const { return peer_; }
  bool is_admin() const { return admin_; }
  /// As ProcessWatch::handle().
  std::shared_ptr<const UniqueFd> handle() { return process_.handle(); }
  /// Whether the process may still use what it has mapped.
  bool process_may_live() const { return process_.is_watching(); }
  /// The peer in words.
  std::string who() const { return in_words(peer_); }

  /// None: it has not greeted yet.
  SessionId session() const { return session_; }
  /// The session's first answer. `descriptors`  stay the caller's. A lane that cannot take it is closed.
  void welcome(SessionId session, std::string_view frame, std::span<const int> descriptors);
  /// The connection is closed: nothing is sent any more.
  bool ended() const { return ended_; }
  /// Says why, then closes. `request`  the number of the Hello.
  void refuse(const Error& error, std::uint64_t request = 0);
  /// Sends now, or, if the socket is full, too many descriptors are unread or none can be opened, as soon as
  /// there is room. The extents' descriptors come from LaneHandler::descriptor(): what waits holds none.
  void send(std::string_view packet, const core::SentExtents& extents = {});
  /// Whether much of what was sent is unread.
  bool is_behind();
  /// Whether a frame of the peer lies in the socket.
  bool has_unread();
  /// The client has said that it has unmapped everything.
  void note_goodbye() { released_ = true; }
  /// Closes the connection without telling anybody: the session goes on with the next broker.
  void leave_to_next();
  /// Closes the connection without a word; closed() follows.
  void close(const std::string& why);
  /// Sends `signal` to the process itself, whose pid may be another's by now.
  /// Errors  kNotFound: it is gone; kFailedPrecondition: the kernel does not let the broker reach it;
  /// kPermissionDenied.
  Result<void> signal(core::Signal signal);
  /// Stops watching the process too: nobody is interested any more.
  void forget();

  void try_again() override;
  void cut(const std::string& why) override { close_in_turn(why); }

 private:
  struct Outgoing {
    std::string bytes;
    core::SentExtents extents;
  };

  Lane(boost::asio::io_context& loop, LaneHandler& handler, SocketDisposal& disposal,
       UnreadDescriptors& unread);
  Result<void> adopt(Connection& connection);
  void await_message();
  Result<void> try_to_send(std::string_view packet, std::span<const int> descriptors);
  Result<void> try_to_send(std::string_view packet, const core::SentExtents& extents);
  void await_room(const Error& obstacle);
  void close_after_patience();
  void stop_sending();
  Result<std::string_view> next_message(std::span<char> buffer);
  void flush();
  void close_in_turn(const std::string& why);
  bool lives_on() const;
  void end();
  void close_socket();

  LaneHandler& handler_;
  SocketDisposal& disposal_;
  UnreadDescriptors& unread_;
  core::Peer peer_;
  bool admin_ = false;
  boost::asio::posix::stream_descriptor socket_;
  ProcessWatch process_;
  boost::asio::steady_timer patience_;  ///< for the greeting, then for a client that does not read
  bool awaits_message_ = false;
  core::TimePoint readable_since_{};
  std::deque<Outgoing> outbox_;
  std::size_t to_send_ = 0;  ///< bytes in outbox_
  bool is_paused_ = false;   ///< no frame is read until much of outbox_ is sent
  SessionId session_;
  std::size_t welcome_descriptors_ = 0;
  bool released_ = false;
  bool reset_ = false;       ///< the client has closed; what it said before may still be there
  bool is_unheard_ = false;  ///< the client reads no more: nothing is sent
  bool ended_ = false;
};

}  // namespace gpumem::host
