#include "sim/driver/contexts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::sim {
namespace {

/// The thread's contexts, the current one last. It ends with its thread, but for the main one, whose handlers
/// of exit come after the end of what is local to it and may still use the driver.
std::vector<CUcontext>& stack() {
  static thread_local std::vector<CUcontext>* own = nullptr;
  struct End {
    ~End() {
      if (::gettid() != ::getpid()) delete std::exchange(own, nullptr);
    }
  };
  if (own == nullptr) {
    own = new std::vector<CUcontext>;
    static thread_local const End end;
    static_cast<void>(end);
  }
  return *own;
}

}  // namespace

std::array<std::size_t, CU_LIMIT_MAX> Context::default_limits() {
  std::array<std::size_t, CU_LIMIT_MAX> limits{};
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = kibibytes(8192).count;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = mebibytes(8).count;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  return limits;
}

std::uint64_t Contexts::cost(std::uint64_t device_total) {
  const char* const named = ::secure_getenv("GPUMEM_SIM_CONTEXT");
  const auto chosen = named != nullptr ? parse_bytes(named) : Result<Bytes>(Error{Code::kNotFound, ""});
  const std::uint64_t wanted = chosen ? chosen->count : std::min(mebibytes(256).count, device_total / 64);
  return std::max(kGranularity.count,
                  (wanted + kGranularity.count - 1) / kGranularity.count * kGranularity.count);
}

Context& Contexts::create(int ordinal, unsigned flags, bool is_primary) {
  const std::uint64_t id = handles_.take();
  Context& context = contexts_[id];
  context.id = id;
  context.ordinal = ordinal;
  context.flags = flags;
  context.is_primary = is_primary;
  return context;
}

void Contexts::erase(Context& context) {
  const std::uint64_t id = context.id;
  erased_[id] = context.ordinal;
  contexts_.erase(id);
  for (auto& [other, still] : contexts_) still.peers.erase(id);
  handles_.give_back(id);
}

std::optional<int> Contexts::ordinal_of(CUcontext handle) const {
  const auto id = reinterpret_cast<std::uint64_t>(handle);
  if (const auto found = contexts_.find(id); found != contexts_.end()) return found->second.ordinal;
  const auto erased = erased_.find(id);
  return erased != erased_.end() ? std::optional(erased->second) : std::nullopt;
}

Context* Contexts::find(CUcontext handle) {
  const auto found = contexts_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == contexts_.end() ? nullptr : &found->second;
}

Context& Contexts::primary(int ordinal) {
  std::uint64_t& id = primaries_[static_cast<std::size_t>(ordinal)];
  if (id == 0) id = create(ordinal, 0, true).id;
  return contexts_.at(id);
}

CUcontext Contexts::handle_of(const Context& context) {
  return reinterpret_cast<CUcontext>(context.id);  // NOLINT(performance-no-int-to-ptr)
}

void Contexts::push(CUcontext handle) { stack().push_back(handle); }

std::optional<CUcontext> Contexts::pop() {
  if (stack().empty()) return std::nullopt;
  const CUcontext handle = stack().back();
  stack().pop_back();
  return handle;
}

CUcontext Contexts::top() { return stack().empty() ? nullptr : stack().back(); }

}  // namespace gpumem::sim
