#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

namespace gpumem::shim {

/// The real driver's function with exactly this exported name, or null: there is no driver, or it does not
/// have the call. The first use loads the driver (driver_search.h). Threads  any; holds no lock of its own.
/// Costs a dlsym: whoever calls often keeps the result (RealCall).
void* real_symbol(const char* name) noexcept;

/// The folder that the real driver's library was loaded from; empty if there is none.
const std::filesystem::path& real_folder();

/// What a call answers that real_symbol does not find.
int answer_without_real() noexcept;

/// real_symbol as a pointer to a function of type F.
template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(real_symbol(name));
}

/// A function of the real driver that is looked up once:
///     constinit RealCall<decltype(::cuMemFree_v2)> real_free("cuMemFree_v2");
/// Threads  any.
template <class Function>
class RealCall;
template <class Result, class... Arguments>
class RealCall<Result(Arguments...)> {
 public:
  using Pointer = Result (*)(Arguments...);

  constexpr explicit RealCall(const char* name) : name_(name) {}

  /// Null if the driver does not have it.
  Pointer get() {
    Pointer known = function_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = real<Pointer>(name_);
      function_.store(known, std::memory_order_release);
    }
    return known;
  }

  /// Calls it; answer_without_real() if there is none.
  Result operator()(Arguments... arguments) {
    const Pointer function = get();
    return function != nullptr ? function(arguments...) : static_cast<Result>(answer_without_real());
  }

 private:
  const char* name_;
  std::atomic<Pointer> function_ = nullptr;
};

/// A library of the real driver, loaded for good. No handle: none was found.
struct RealLibrary {
  void* handle = nullptr;
  std::filesystem::path folder;  ///< the one that it was loaded from
};

/// Loads the real driver's library `file` by its path. If $GPUMEM_REAL_LIBCUDA names a libcuda.so.1 or a
/// folder, that folder is the first, and for libcuda.so.1 the only one; then come those of LD_LIBRARY_PATH,
/// those of the loader's cache, and where drivers are installed. In system mode the named folder is only the
/// first, and LD_LIBRARY_PATH does not count. A shim is never taken for the driver: neither this file under
/// any name nor another one of the kind. If there is none, one line on stderr says what to do, except in
/// system mode.
RealLibrary find_real_library(const std::string& file);

/// Which of the driver's libraries this shim stands for. Each of the two shims defines its own.
struct OwnLibrary {
  const char* file;      ///< name of the real one, as programs open it
  int without_driver;    ///< what every call answers where there is no driver
  int without_call;      ///< what a call answers that the driver does not have
  const char* in_words;  ///< the one call that answers a number by its meaning in words; null: none
  const char* (*words)(int number);  ///< stands in for that one
};
extern const OwnLibrary kOwnLibrary;

/// A value that is made at the first use and never destroyed. Threads that come first together each make one;
/// one of these stays. There is no lock, on purpose: what is made here comes from dlopen and dlsym, which
/// take the loader's lock, and the constructor of a library, which runs under that lock, may be the next to
/// ask.
template <class Value>
class Published {
 public:
  constexpr Published() = default;

  /// The value; `make()` makes it, if there is none yet.
  template <class Make>
  const Value& get(Make&& make) {
    if (const Value* const known = value_.load(std::memory_order_acquire); known != nullptr) return *known;
    auto made = std::make_unique<const Value>(make());
    const Value* first = nullptr;
    if (value_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *first;
  }

 private:
  std::atomic<const Value*> value_ = nullptr;
};

}  // namespace gpumem::shim
