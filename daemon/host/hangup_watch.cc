#include "daemon/host/hangup_watch.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace gpumem::host {

HangupWatch::HangupWatch(boost::asio::io_context& loop) : epoll_(loop) {
  epoll_.assign(::epoll_create1(EPOLL_CLOEXEC));
  await();
}

Result<void> HangupWatch::add(UniqueFd socket, std::function<void()> ended) {
  epoll_event event{};
  event.events = EPOLLONESHOT;  // besides what is always told: EPOLLHUP and EPOLLERR
  const int number = event.data.fd = socket.get();
  watched_.insert_or_assign(number, Watched{std::move(socket), std::move(ended)});
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, number, &event) == 0) return {};
  const Error error = errno_error(errno, "cannot watch the connection");
  watched_.erase(number);
  return error;
}

void HangupWatch::stop() {
  boost::system::error_code ignored;
  epoll_.close(ignored);
  watched_.clear();
}

void HangupWatch::await() {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](const boost::system::error_code& error) {
                      if (error) return;
                      take_ended();
                      await();
                    });
}

void HangupWatch::take_ended() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.native_handle(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const auto ended = watched_.extract(events[static_cast<std::size_t>(i)].data.fd);
    if (!ended.empty()) ended.mapped().ended();
  }
}

}  // namespace gpumem::host
