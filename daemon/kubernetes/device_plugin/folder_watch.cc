#include "daemon/kubernetes/device_plugin/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/signals_blocked.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::uint32_t kChanges = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR;

// What has changed is looked up by whoever is called.
void drain(int events) {
  std::array<char, 4096> buffer;
  while (::read(events, buffer.data(), buffer.size()) > 0) {
  }
}

}  // namespace

Result<std::unique_ptr<FolderWatch>> FolderWatch::start(const std::filesystem::path& folder,
                                                        std::function<void()> on_change) {
  UniqueFd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!events.valid() || !stop.valid() || ::inotify_add_watch(events.get(), folder.c_str(), kChanges) < 0)
    return errno_error(errno, "cannot watch " + folder.string());
  return std::unique_ptr<FolderWatch>(
      new FolderWatch(std::move(events), std::move(stop), std::move(on_change)));
}

FolderWatch::FolderWatch(UniqueFd events, UniqueFd stop, std::function<void()> on_change)
    : events_(std::move(events)), stop_(std::move(stop)), on_change_(std::move(on_change)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { loop(); });
}

FolderWatch::~FolderWatch() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void FolderWatch::loop() {
  std::array<pollfd, 2> waited{{{events_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    if (waited[0].revents == 0) continue;
    drain(events_.get());
    on_change_();
  }
}

}  // namespace gpumem::kubernetes
