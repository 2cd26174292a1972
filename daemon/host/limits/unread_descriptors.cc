#include "daemon/host/limits/unread_descriptors.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gpumem::host {
namespace {

using std::chrono::milliseconds;

// Nobody tells when descriptors were read. While nothing is, looks become rare: each costs a system call for
// every socket of the user.
constexpr milliseconds kShortestPause{5};
constexpr milliseconds kLongestPause{200};
constexpr milliseconds kBetweenLooks{20};  // for one sender after the other

}  // namespace

bool is_read(int socket) {
  int unread = 0;
  return ::ioctl(socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

UnreadDescriptors::~UnreadDescriptors() {
  for (auto& [account, user] : users_) {
    for (auto& [socket, unread] : user.by_socket)
      if (unread.closed.valid()) disposal_.close(std::move(unread.closed));
  }
}

bool UnreadDescriptors::has_room(std::uint64_t account, int socket, std::size_t count) {
  const auto found = users_.find(account);
  if (found == users_.end()) return true;
  User& user = found->second;
  if (const auto own = user.by_socket.find(socket); own != user.by_socket.end() && is_read(socket))
    forget(user, own);
  const auto fits = [&] {
    return user.closed <= of_a_user_ && (user.open == 0 || user.open + count <= of_a_user_);
  };
  if (!fits() && Clock::now() - user.looked >= kBetweenLooks) look(user);
  return fits();
}

void UnreadDescriptors::sent(std::uint64_t account, int socket, std::size_t count,
                             std::weak_ptr<DescriptorSender> sender) {
  if (count == 0) return;
  User& user = users_[account];
  Unread& unread = user.by_socket[socket];
  if (unread.count == 0) unread.since = Clock::now();
  unread.count += count;
  unread.sender = std::move(sender);
  user.open += count;
}

void UnreadDescriptors::await_room(std::uint64_t account, std::weak_ptr<DescriptorSender> sender) {
  users_[account].waiting.push_back(std::move(sender));
  arm();
}

void UnreadDescriptors::close(std::uint64_t account, UniqueFd socket, std::size_t uncounted) {
  const int number = socket.get();
  std::size_t count = uncounted;
  if (const auto found = users_.find(account); found != users_.end()) {
    User& user = found->second;
    if (const auto known = user.by_socket.find(number); known != user.by_socket.end()) {
      count += known->second.count;
      forget(user, known);
    }
  }
  if (count == 0 || is_read(number)) return disposal_.close(std::move(socket));
  ::shutdown(number, SHUT_RDWR);
  User& user = users_[account];
  user.by_socket[number] = {.count = count, .since = Clock::now(), .sender = {}, .closed = std::move(socket)};
  user.closed += count;
  arm();
}

bool UnreadDescriptors::is_full_of_closed(std::uint64_t account) const {
  const auto found = users_.find(account);
  return found != users_.end() && found->second.closed > of_a_user_;
}

void UnreadDescriptors::forget(User& user, std::map<int, Unread>::iterator entry) {
  Unread& unread = entry->second;
  (unread.closed.valid() ? user.closed : user.open) -= unread.count;
  if (unread.closed.valid()) disposal_.close(std::move(unread.closed));
  user.by_socket.erase(entry);
}

bool UnreadDescriptors::look(User& user) {
  user.looked = Clock::now();
  const std::size_t before = user.by_socket.size();
  for (auto next = user.by_socket.begin(); next != user.by_socket.end();) {
    const auto entry = next++;
    if (is_read(entry->first)) forget(user, entry);
  }
  return user.by_socket.size() != before;
}

// Cuts connections that have not read for long. Their descriptors stay unread and counted after the cut, so
// no more than a share of them.
void UnreadDescriptors::cut_silent(const User& user) const {
  if (user.closed > of_a_user_) return;
  const auto long_ago = Clock::now() - patience_;
  std::vector<std::shared_ptr<DescriptorSender>> silent;
  for (const auto& [socket, unread] : user.by_socket) {
    if (unread.since > long_ago) continue;
    if (auto sender = unread.sender.lock()) silent.push_back(std::move(sender));
  }
  for (const auto& sender : silent) sender->cut("it does not read its lane");
}

// As long as one after the other finds room.
void UnreadDescriptors::wake(User& user) {
  for (std::size_t left = user.waiting.size(); left != 0; --left) {
    const auto sender = user.waiting.front().lock();
    user.waiting.pop_front();
    const std::size_t before = user.waiting.size();
    if (sender) sender->try_again();
    if (user.waiting.size() > before) return;
  }
}

void UnreadDescriptors::arm() {
  if (std::exchange(armed_, true)) return;
  timer_.expires_after(std::max(pause_, kShortestPause));
  timer_.async_wait([this](const boost::system::error_code& error) {
    armed_ = false;
    if (!error) tick();
  });
}

void UnreadDescriptors::tick() {
  bool any_read = false;
  bool is_needed = false;
  std::vector<std::uint64_t> accounts;
  for (const auto& [account, user] : users_) accounts.push_back(account);
  for (const std::uint64_t account : accounts) {
    User& user = users_[account];
    if (!user.waiting.empty() || user.closed != 0) any_read |= look(user);
    if (!user.waiting.empty()) cut_silent(user);
    wake(user);
    is_needed |= !user.waiting.empty() || user.closed != 0;
    if (user.by_socket.empty() && user.waiting.empty()) users_.erase(account);
  }
  pause_ = any_read ? kShortestPause : std::min(2 * std::max(pause_, kShortestPause), kLongestPause);
  if (is_needed) arm();
}

}  // namespace gpumem::host
