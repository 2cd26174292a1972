// DLPack's callbacks for the Python package. A consumer may call them while an exception of Python's is under
// way: it refuses an array, or the exception leaves a frame with a tensor. Python code that ran then would
// lose that exception.
#include <atomic>

#include "gpumem.h"

namespace gpumem::c_abi {
namespace {

std::atomic<const gpumem_dlpack_calls*> given{nullptr};

/// Holds Python's lock, and puts its exception aside.
class Aside {
 public:
  explicit Aside(const gpumem_dlpack_calls& calls)
      : calls_(calls), state_(reinterpret_cast<int (*)()>(calls.ensure)()) {
    reinterpret_cast<void (*)(void**, void**, void**)>(calls_.fetch)(&type_, &value_, &trace_);
  }
  ~Aside() {
    reinterpret_cast<void (*)(void*, void*, void*)>(calls_.restore)(type_, value_, trace_);
    reinterpret_cast<void (*)(int)>(calls_.release)(state_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  const gpumem_dlpack_calls& calls_;
  const int state_;
  void *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

void call(gpumem_release gpumem_dlpack_calls::*which, void* with) {
  const gpumem_dlpack_calls* const calls = given.load(std::memory_order_acquire);
  if (calls == nullptr) return;
  const Aside aside(*calls);
  (calls->*which)(with);
}

}  // namespace
}  // namespace gpumem::c_abi

extern "C" {

void gpumem_dlpack_configure(const gpumem_dlpack_calls* calls) noexcept {
  gpumem::c_abi::given.store(calls, std::memory_order_release);
}
void gpumem_dlpack_drop(void* capsule) noexcept { gpumem::c_abi::call(&gpumem_dlpack_calls::drop, capsule); }
void gpumem_dlpack_free(void* managed) noexcept { gpumem::c_abi::call(&gpumem_dlpack_calls::free, managed); }

}  // extern "C"
