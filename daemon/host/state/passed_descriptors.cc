#include "daemon/host/state/passed_descriptors.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/crash_point.h"
#include "base/text/number.h"

namespace gpumem::host {
namespace {

// The number of a file in memory with a line for each descriptor: its number and its name. It is a file since
// one variable would be too short for many.
constexpr const char* kVariable = "GPUMEMD_PASSED";
constexpr std::string_view kLeasePrefix = "lease-";

// The variables of sd_listen_fds(3) stay: the process may have threads that read them.
constexpr int kLeaveEnvironment = 0;

void stay_in_this_program(int fd) { ::fcntl(fd, F_SETFD, FD_CLOEXEC); }

std::string whole_of(int file) {
  std::string text;
  char part[4096];
  for (off_t at = 0;; at = static_cast<off_t>(text.size())) {
    const ssize_t read = ::pread(file, part, sizeof part, at);
    if (read <= 0) return text;
    text.append(part, static_cast<std::size_t>(read));
  }
}

void take_from_service_manager(PassedDescriptors& into) {
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(kLeaveEnvironment, &names);
  for (int i = 0; i < count; ++i) {
    into.add(names[i], UniqueFd(SD_LISTEN_FDS_START + i), true);
    std::free(names[i]);
  }
  std::free(static_cast<void*>(names));
  if (count > 0) crash_at(CrashPoint::kStoreTaken);
}

void take_from_broker_before(PassedDescriptors& into) {
  const char* told = std::getenv(kVariable);
  if (told == nullptr) return;
  const auto number = whole_number<int>(told);
  ::unsetenv(kVariable);
  if (!number || *number < 3) return;
  const UniqueFd list(*number);
  std::istringstream lines(whole_of(list.get()));
  int fd = -1;
  bool stored = false;
  for (std::string name; lines >> fd >> stored >> name;) {
    stay_in_this_program(fd);
    into.add(name, UniqueFd(fd), stored);
  }
}

}  // namespace

std::string name_of(LeaseId lease) { return std::string(kLeasePrefix) + std::to_string(lease.value); }

PassedDescriptors PassedDescriptors::of_process() {
  PassedDescriptors passed;
  // An exec keeps the number of the process, and so what it was told by the service manager at first.
  if (std::getenv(kVariable) != nullptr)
    take_from_broker_before(passed);
  else
    take_from_service_manager(passed);
  return passed;
}

void PassedDescriptors::add(std::string name, UniqueFd fd, bool stored) {
  passed_.emplace(std::move(name), KeptDescriptor{std::move(fd), stored});
}

std::optional<UniqueFd> PassedDescriptors::take(std::string_view name) {
  const auto found = passed_.find(name);
  if (found == passed_.end()) return std::nullopt;
  return std::move(passed_.extract(found).mapped().fd);
}

std::map<LeaseId, KeptDescriptor> PassedDescriptors::take_leases() {
  std::map<LeaseId, KeptDescriptor> leases;
  auto next = passed_.lower_bound(kLeasePrefix);
  while (next != passed_.end() && next->first.starts_with(kLeasePrefix)) {
    const auto number =
        whole_number<std::uint64_t>(std::string_view(next->first).substr(kLeasePrefix.size()));
    if (number) leases.emplace(LeaseId{*number}, std::move(next->second));
    next = passed_.erase(next);
  }
  return leases;
}

Result<std::pair<UniqueFd, std::string>> pass(const NamedDescriptors& descriptors) {
  UniqueFd list(::memfd_create("gpumemd-passed", 0));
  if (!list.valid()) return errno_error(errno, "cannot list what the next broker gets");
  // The driver's own descriptors, too: with them the process would go on as the driver's old client.
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
    return errno_error(errno, "cannot keep descriptors from the next broker");
  std::string text;
  for (const NamedDescriptor& one : descriptors) {
    if (::fcntl(one.fd.get(), F_SETFD, 0) != 0) return errno_error(errno, "cannot pass on a descriptor");
    text += std::to_string(one.fd.get()) + ' ' + (one.stored ? '1' : '0') + ' ' + one.name + '\n';
  }
  if (::pwrite(list.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return errno_error(errno, "cannot list what the next broker gets");
  std::string variable = std::string(kVariable) + '=' + std::to_string(list.get());
  ::fcntl(list.get(), F_SETFD, 0);
  return std::pair(std::move(list), std::move(variable));
}

}  // namespace gpumem::host
