#include "client/session/host_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/system/small_file.h"
#include "base/text/number.h"
#include "base/thread_guards.h"

namespace gpumem::client {
namespace {

constexpr Bytes kOfAThread = mebibytes(64);
constexpr std::size_t kMostThreads = 8;

std::optional<Bytes> figure_in(const std::filesystem::path& file) {
  const std::string text = read_small_file(file).value_or("");
  const auto number = whole_number<std::uint64_t>(std::string_view(text).substr(0, text.find('\n')));
  return number ? std::optional(Bytes{*number}) : std::nullopt;  // `max`: no limit
}

// Of memory.stat.
Bytes page_cache_in(const std::filesystem::path& file) {
  std::istringstream stream(read_small_file(file).value_or(""));
  Bytes sum;
  std::string name;
  for (std::uint64_t bytes = 0; stream >> name >> bytes;)
    if (name == "inactive_file" || name == "active_file") sum += Bytes{bytes};
  return sum;
}

int populate(char* at, Bytes size) {
  if (::madvise(at, size.count, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  constexpr std::size_t kPage = 4096;  // a kernel before 5.14 has no such advice
  for (std::size_t offset = 0; offset < size.count; offset += kPage)
    *static_cast<volatile char*>(at + offset) = 0;
  return 0;
}

/// A context of the process on the calling thread: a primary one that is there, which is likelier to stay,
/// else the thread's own.
class AnyContext {
 public:
  static Result<AnyContext> enter(const cuda::Driver& driver) {
    for (const cuda::Device& device : driver.devices()) {
      unsigned flags = 0;
      int is_active = 0;
      driver.api().cuDevicePrimaryCtxGetState(device.ordinal, &flags, &is_active);
      if (is_active == 0) continue;
      auto entered = cuda::CurrentContext::enter(driver, device.ordinal);
      if (!entered) return entered.error();
      return AnyContext(std::move(*entered));
    }
    CUcontext current = nullptr;
    if (driver.api().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return AnyContext();
    return Error{
        Code::kFailedPrecondition,
        "host memory is pinned in a CUDA context, and this process has none yet: use a device first, "
        "or have it not pinned (pinned=False; of an allocator in C and C++: pageable)"};
  }

 private:
  AnyContext() = default;
  explicit AnyContext(cuda::CurrentContext entered) : entered_(std::move(entered)) {}
  std::optional<cuda::CurrentContext> entered_;
};

}  // namespace

std::optional<Bytes> cgroup_room(const std::filesystem::path& folder, std::string_view own) {
  constexpr std::string_view kUnified = "0::/";
  const auto at = own.find(kUnified);
  if (at == own.npos) return std::nullopt;
  own = own.substr(at + kUnified.size());
  std::filesystem::path group = folder / own.substr(0, own.find('\n'));
  std::optional<Bytes> room;
  for (;; group = group.parent_path()) {
    if (const auto most = figure_in(group / "memory.max")) {
      const Bytes used =
          figure_in(group / "memory.current").value_or(Bytes{}).minus(page_cache_in(group / "memory.stat"));
      room = std::min(room.value_or(*most), most->minus(used));
    }
    if (group == folder || group == group.root_path()) return room;
  }
}

Result<void> map_host_file(char* at, int file, Bytes size, cuda::Access access) {
  const int protection = access == cuda::Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mmap(at, size.count, protection, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    return errno_error(errno, "host memory could not be mapped");
  ::madvise(at, size.count, MADV_HUGEPAGE);
  return {};
}

Result<void> fault_in(char* at, Bytes size) {
  const auto room = cgroup_room("/sys/fs/cgroup", read_small_file("/proc/self/cgroup").value_or(""));
  if (room && *room < size) {
    return Error{Code::kResourceExhausted,
                 "the memory limit of this process's cgroup has room for " + to_string(*room) + ", not for " +
                     to_string(size) +
                     ": the kernel would end it; raise the limit (MemoryMax=, the container's)"};
  }
  const std::size_t threads =
      std::clamp<std::size_t>(size.count / kOfAThread.count, 1,
                              std::min<std::size_t>(kMostThreads, std::thread::hardware_concurrency()));
  const Bytes part = *Bytes{size.count / threads}.rounded_up(mebibytes(2));
  std::vector<int> failed(threads, 0);
  {
    const SignalsBlocked blocked;
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads && part.count * i < size.count; ++i) {
      const Bytes own_part = std::min(part, Bytes{size.count - part.count * i});
      helpers.emplace_back([=, &failed] { failed[i] = populate(at + part.count * i, own_part); });
    }
    failed[0] = populate(at, std::min(part, size));
  }
  const int reason = *std::ranges::max_element(failed);
  if (reason == 0) return {};
  Error error = errno_error(reason, "host memory of " + to_string(size));
  error.code = Code::kResourceExhausted;
  return error;
}

Result<void> HostPins::pin(char* at, Bytes size, cuda::Access access) {
  if (driver_ == nullptr) return {};
  const auto context = AnyContext::enter(*driver_);
  if (!context) return context.error();
  const unsigned flags =
      CU_MEMHOSTREGISTER_PORTABLE | (access == cuda::Access::kRead ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
  for (Bytes done; done < size;) {
    const Bytes piece = std::min(kPiece, size - done);
    const auto pinned = driver_->check(driver_->api().cuMemHostRegister(at + done.count, piece.count, flags),
                                       "cuMemHostRegister");
    if (!pinned) {
      unpin(at, done);
      return pinned.error().in("host memory could not be pinned");
    }
    pieces_.emplace(at + done.count, piece);
    done += piece;
  }
  return {};
}

// A context that is gone has taken its registrations along.
void HostPins::unpin(char* at, Bytes size) {
  const auto first = pieces_.lower_bound(at), last = pieces_.lower_bound(at + size.count);
  if (first == last) return;
  const auto context = AnyContext::enter(*driver_);
  for (auto piece = first; piece != last; ++piece) driver_->api().cuMemHostUnregister(piece->first);
  pieces_.erase(first, last);
}

}  // namespace gpumem::client
