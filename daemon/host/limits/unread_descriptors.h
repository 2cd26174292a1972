#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "daemon/host/limits/socket_disposal.h"

namespace gpumem::host {

/// Somebody whose socket brings descriptors.
class DescriptorSender {
 public:
  virtual ~DescriptorSender() = default;
  /// There may be room for what it waits to send.
  virtual void try_again() = 0;
  /// Its client does not read, and others wait for that: it is to close the socket.
  virtual void cut(const std::string& why) = 0;
};

/// Whether everything that was sent on it has been received.
bool is_read(int socket);

/// The descriptors that were sent to each user's sockets and may be unread. The kernel counts them all
/// against the broker, closed sockets included. Beyond the limit of open files the broker cannot send any to
/// anybody. So each user has a share for open connections, and one for those that have ended. Senders without
/// room wait here for it.
///
/// Threads  the loop's.
class UnreadDescriptors {
 public:
  using Clock = std::chrono::steady_clock;
  /// `of_a_user`  so many may be unread.   `disposal`  closes sockets; outlives it.
  /// `patience`   with those who do not read while others wait.
  UnreadDescriptors(boost::asio::io_context& loop, std::size_t of_a_user, SocketDisposal& disposal,
                    Clock::duration patience = std::chrono::seconds(10))
      : of_a_user_(of_a_user), disposal_(disposal), patience_(patience), timer_(loop) {}

  ~UnreadDescriptors();
  UnreadDescriptors(const UnreadDescriptors&) = delete;
  UnreadDescriptors& operator=(const UnreadDescriptors&) = delete;

  /// Whether the user's `socket` may be sent `count` more; or any number, if nothing is unread.
  bool has_room(std::uint64_t account, int socket, std::size_t count);
  void sent(std::uint64_t account, int socket, std::size_t count, std::weak_ptr<DescriptorSender> sender);
  /// Calls try_again() when there may be room, in the order of these calls. If there is none because somebody
  /// of the same user has not read for long, that one is cut.
  void await_room(std::uint64_t account, std::weak_ptr<DescriptorSender> sender);
  /// Ends a connection. Its unread descriptors stay counted, and `uncounted` more.
  void close(std::uint64_t account, UniqueFd socket, std::size_t uncounted);
  /// Whether connections that were closed leave a new one of the user no room.
  bool is_full_of_closed(std::uint64_t account) const;

 private:
  struct Unread {
    std::size_t count = 0;  ///< at most: some may have been read since
    Clock::time_point since{};
    std::weak_ptr<DescriptorSender> sender{};
    UniqueFd closed{};  ///< the socket, when its connection has ended
  };
  struct User {
    std::size_t open = 0;    ///< unread on connections that there are
    std::size_t closed = 0;  ///< on those that have ended
    Clock::time_point looked{};
    std::map<int, Unread> by_socket{};
    std::deque<std::weak_ptr<DescriptorSender>> waiting{};
  };

  /// Forgets what has been read. Answers whether anything was.
  bool look(User& user);
  void forget(User& user, std::map<int, Unread>::iterator entry);
  void cut_silent(const User& user) const;
  static void wake(User& user);
  void arm();
  void tick();

  const std::size_t of_a_user_;
  SocketDisposal& disposal_;
  const Clock::duration patience_;
  boost::asio::steady_timer timer_;
  bool armed_ = false;
  std::chrono::milliseconds pause_{};  ///< between two looks for those who wait
  std::map<std::uint64_t, User> users_;
};

}  // namespace gpumem::host
