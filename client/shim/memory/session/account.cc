#include "client/shim/memory/session/account.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "client/session/connection.h"
#include "client/shim/memory/session/settings.h"

namespace gpumem::shim {
namespace {

constexpr int kMostOfAPid = 1000;

/// A new file: one that is there may be of a process that lives, of the same number in another PID namespace.
Result<UniqueFd> create_page_file(const std::filesystem::path& folder, std::string& file) {
  const std::string name = "account." + std::to_string(::getpid());
  for (int i = 0; i < kMostOfAPid; ++i) {
    file = (folder / (i == 0 ? name : name + "." + std::to_string(i))).string();
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.valid()) return fd;
    if (errno != EEXIST) break;
  }
  return errno_error(errno, file);
}

/// That the driver holds `all` for this process on the slices' device.
Result<lane::Charge> charge_of(const Slices& of, Bytes all) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  return lane::Charge{*index, all.count};
}

}  // namespace

// The magic comes last: who finds it finds a whole page.
Result<void> Account::show_in(const std::filesystem::path& folder) {
  std::string file;
  const auto created = create_page_file(folder, file);
  if (!created) return created.error();
  const UniqueFd& fd = *created;
  // With its room: a page that the file system has none for ends the process at the first store.
  // The empty file tells that there was a process.
  if (const int full = ::posix_fallocate(fd.get(), 0, sizeof(AccountPage)); full != 0)
    return errno_error(full, file);
  void* const mapped = ::mmap(nullptr, sizeof(AccountPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return errno_error(errno, file);
  auto* const page = static_cast<AccountPage*>(mapped);
  page_.store(page);
  std::atomic_ref(page->magic).store(kAccountMagic, std::memory_order_release);
  return {};
}

void Account::used(Bytes more) {
  const std::uint64_t now = in_use_.fetch_add(more.count, std::memory_order_relaxed) + more.count;
  const std::atomic_ref peak(page_.load()->peak_bytes);
  std::uint64_t known = peak.load(std::memory_order_relaxed);
  while (now > known && !peak.compare_exchange_weak(known, now, std::memory_order_relaxed)) {
  }
}

void Account::waited(std::chrono::nanoseconds time) {
  std::atomic_ref(page_.load()->waited_ns)
      .fetch_add(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
}

void Account::denied(Bytes asked) {
  AccountPage& page = *page_.load();
  if (!asked.is_zero()) std::atomic_ref(page.last_denied_bytes).store(asked.count, std::memory_order_relaxed);
  std::atomic_ref(page.denials).fetch_add(1, std::memory_order_relaxed);
}

Result<DeviceFigures> tenant_of(const Slices& of) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  const auto figures = of.connection().broker_figures();
  if (!figures) return figures.error();
  return figures->devices.at(*index);
}

Result<void> check_room(const DeviceFigures& tenant, Bytes more) {
  const auto all = Bytes{tenant.charged}.plus(more);
  if (all && *all <= Bytes{tenant.limit}) return {};
  return Error{Code::kResourceExhausted, to_string(Bytes{tenant.charged}) + " of the tenant's limit of " +
                                             to_string(Bytes{tenant.limit}) + " are charged"};
}

Result<void> Declaration::more(Bytes bytes) {
  const MutexLock lock(mutex_);
  if (!bytes.is_zero()) {
    const auto tenant = tenant_of(*to_);
    if (!tenant) return tenant.error();
    if (auto has_room = check_room(*tenant, bytes); !has_room) return has_room;
  }
  auto told = tell(*to_, all_ + bytes);
  if (told) all_ += bytes;
  // A broker that does not answer may yet read it.
  if (!told && is_away(told.error())) {
    if (const auto charge = charge_of(*to_, all_)) to_->connection().lane().tell_later(*charge);
  }
  return told;
}

Result<void> Declaration::less(Bytes bytes) {
  const MutexLock lock(mutex_);
  all_ -= bytes;
  const auto charge = charge_of(*to_, all_);
  if (!charge) return charge.error();
  auto told = to_->connection().lane().call_or_tell_later(*charge);
  if (told || is_away(told.error())) return {};
  return told.error();
}

Result<void> Declaration::tell(const Slices& to, Bytes all) {
  const auto charge = charge_of(to, all);
  if (!charge) return charge.error();
  auto told = to.connection().lane().call(*charge);
  if (!told) return told.error();
  return {};
}

}  // namespace gpumem::shim
