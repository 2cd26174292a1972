#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

namespace gpumem::host {

/// The descriptors that were sent to each user's sockets and may be unread. The kernel counts them all
/// against the broker, and beyond its limit of open files lets it send none, to nobody: so each user has a
/// share. Threads  one.
class UnreadDescriptors {
 public:
  /// `of_a_user`  so many may be unread.
  explicit UnreadDescriptors(std::size_t of_a_user) : of_a_user_(of_a_user) {}

  /// Whether the user's sockets may be sent `count` more; or any number, if nothing is unread.
  bool has_room(std::uint32_t uid, std::size_t count);
  void sent(std::uint32_t uid, int socket, std::size_t count);
  /// Before the socket is closed. Does nothing for one that was sent none.
  void forget(std::uint32_t uid, int socket);

 private:
  struct User {
    std::size_t unread = 0;  ///< at most: some may have been read since
    std::map<int, std::size_t> by_socket{};
  };

  const std::size_t of_a_user_;
  std::map<std::uint32_t, User> users_;
};

}  // namespace gpumem::host
