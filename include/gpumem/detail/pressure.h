#pragma once
#include <atomic>
#include <cstdio>
#include <memory>

#include "gpumem/detail/c.h"
#include "gpumem/pressure.h"

namespace gpumem::detail {

/// A PressureHandler as the C function and context that the library calls and then releases.
class HandlerBox {
 public:
  explicit HandlerBox(PressureHandler handler) : handler_(std::move(handler)) {}

  static std::uint64_t call(const gpumem_pressure* pressure, void* context) noexcept {
    return static_cast<HandlerBox*>(context)->call(
        {pressure->device, {pressure->bytes}, time_point(pressure->deadline_ns)});
  }
  static void release(void* context) noexcept { delete static_cast<HandlerBox*>(context); }

 private:
  std::uint64_t call(const Pressure& pressure) {
#ifdef __cpp_exceptions
    try {
      return handler_(pressure).count;
    } catch (const std::exception& thrown) {
      report(thrown.what());
    } catch (...) {
      report("something that is no std::exception");
    }
    return 0;
#else
    return handler_(pressure).count;
#endif
  }
  void report(const char* words) {
    if (reported_.exchange(true)) return;
    std::fprintf(
        stderr, "gpumem: the handler of pressure has thrown: %s; this counts as nothing given back\n", words);
  }

  const PressureHandler handler_;
  std::atomic<bool> reported_{false};
};

}  // namespace gpumem::detail
