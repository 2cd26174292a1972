#include "daemon/host/unread_descriptors.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

namespace gpumem::host {
namespace {

bool is_read(int socket) {
  int unread = 0;
  return ::ioctl(socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

}  // namespace

bool UnreadDescriptors::has_room(std::uint32_t uid, std::size_t count) {
  const auto found = users_.find(uid);
  if (found == users_.end()) return true;
  User& user = found->second;
  if (user.unread + count <= of_a_user_) return true;
  std::erase_if(user.by_socket, [&](const auto& entry) {
    const bool all_read = is_read(entry.first);
    if (all_read) user.unread -= entry.second;
    return all_read;
  });
  return user.unread == 0 || user.unread + count <= of_a_user_;
}

void UnreadDescriptors::sent(std::uint32_t uid, int socket, std::size_t count) {
  if (count == 0) return;
  User& user = users_[uid];
  user.unread += count;
  user.by_socket[socket] += count;
}

void UnreadDescriptors::forget(std::uint32_t uid, int socket) {
  const auto found = users_.find(uid);
  if (found == users_.end()) return;
  User& user = found->second;
  if (const auto entry = user.by_socket.extract(socket)) user.unread -= entry.mapped();
  if (user.by_socket.empty()) users_.erase(found);
}

}  // namespace gpumem::host
