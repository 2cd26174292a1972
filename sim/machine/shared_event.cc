#include "sim/machine/shared_event.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "sim/machine/process.h"

namespace gpumem::sim {

struct SharedEvent::Page {
  std::atomic<std::uint64_t> begun;
  std::atomic<std::uint64_t> finished;
  std::atomic<std::uint32_t> changes;  ///< what waiters sleep on
  std::atomic<std::int32_t> recorder_pid;
  std::atomic<std::uint64_t> recorder_start;
};

namespace {

constexpr std::string_view kEventPrefix = "event-";

/// A waiter looks up now and then, for the case that the recorder has ended.
constexpr timespec kLookAgain{0, 20'000'000};

std::uint32_t* word(std::atomic<std::uint32_t>& value) { return reinterpret_cast<std::uint32_t*>(&value); }

}  // namespace

SharedEvent::SharedEvent(std::string path, std::string name, Page* page, bool is_owner)
    : path_(std::move(path)), name_(std::move(name)), page_(page), is_owner_(is_owner) {}

SharedEvent::~SharedEvent() {
  ::munmap(page_, sizeof(Page));
  if (is_owner_) ::unlink(path_.c_str());
}

Result<std::shared_ptr<SharedEvent>> SharedEvent::map(const std::string& folder, std::string name,
                                                      UniqueFd fd, bool is_owner) {
  void* const at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  const std::string path = folder + name;
  if (at == MAP_FAILED) return errno_error(errno, path);
  return std::shared_ptr<SharedEvent>(
      new SharedEvent(path, std::move(name), static_cast<Page*>(at), is_owner));
}

Result<std::shared_ptr<SharedEvent>> SharedEvent::create(const std::string& folder) {
  std::string path = folder + std::string(kEventPrefix) + "XXXXXX";
  UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid() || ::fchmod(fd.get(), 0666) != 0 || ::ftruncate(fd.get(), sizeof(Page)) != 0) {
    return errno_error(errno, path);
  }
  return map(folder, path.substr(folder.size()), std::move(fd), true);
}

Result<std::shared_ptr<SharedEvent>> SharedEvent::open(const std::string& folder, const std::string& name) {
  if (!name.starts_with(kEventPrefix) || name.find('/') != std::string::npos) {
    return Error{Code::kNotFound, "not the handle of an event"};
  }
  UniqueFd fd(::open((folder + name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || status.st_size != sizeof(Page)) {
    return Error{Code::kNotFound, "the event is no more"};
  }
  return map(folder, name, std::move(fd), false);
}

std::uint64_t SharedEvent::begin() {
  static const ProcessId self = this_process();
  page_->recorder_pid = self.pid;
  page_->recorder_start = self.start;
  return ++page_->begun;
}

void SharedEvent::finish(std::uint64_t turn) {
  std::uint64_t known = page_->finished;
  while (known < turn && !page_->finished.compare_exchange_weak(known, turn)) {
  }
  ++page_->changes;
  ::syscall(SYS_futex, word(page_->changes), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

std::uint64_t SharedEvent::latest() const { return page_->begun; }

bool SharedEvent::is_done() const { return is_over(latest()); }

bool SharedEvent::is_over(std::uint64_t turn) const {
  if (page_->finished >= turn) return true;
  return !is_alive({page_->recorder_pid, page_->recorder_start});
}

void SharedEvent::wait(std::uint64_t turn) const {
  for (;;) {
    const std::uint32_t seen = page_->changes;
    if (is_over(turn)) return;
    ::syscall(SYS_futex, word(page_->changes), FUTEX_WAIT, seen, &kLookAgain, nullptr, 0);
  }
}

}  // namespace gpumem::sim
