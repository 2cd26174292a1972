#pragma once
#include <cstdlib>
#include <memory>

#include "bench/allocator/idle_streams.h"
#include "bench/allocator/mimalloc.h"
#include "bench/must.h"
#include "client/allocator/engine.h"
#include "tests/support/allocator/fake_backing.h"
#include "tests/support/allocator/fake_streams.h"

// The measured allocators, with one interface: allocate(bytes, stream), zero for out of memory;
// deallocate(address, bytes, stream); committed(); pass(), told after each call of a replay. Memory is never
// touched.

namespace gpumem::bench {

/// As much as the largest device has: more than any trace needs.
inline constexpr Bytes kCapacity = gibibytes(140);

/// The host's.
class Malloc {
 public:
  static constexpr const char* kName = "malloc";
  std::uint64_t allocate(Bytes bytes, std::uint32_t) {
    return reinterpret_cast<std::uint64_t>(std::malloc(bytes.count));
  }
  void deallocate(std::uint64_t address, Bytes, std::uint32_t) {
    std::free(reinterpret_cast<void*>(address));
  }
};

/// gpumem's own engine, as its C ABI calls it, over memory that is only counted.
class Gpumem {
 public:
  static constexpr const char* kName = "gpumem";

  struct Options {
    std::uint64_t lag =
        0;  ///< allocations until work that was given to a stream is done; zero: it is done at once
    Bytes limit = kCapacity;
    bool idle_streams = false;  ///< without the checks of FakeStreams, and their time
  };
  Gpumem() : Gpumem(Options{}) {}
  explicit Gpumem(const Options& options) : options_(options), backing_({.limit = options.limit}) {
    streams_.set_lag(options.lag);
    std::unique_ptr<allocator::StreamPort> streams = test::borrow(streams_);
    if (options.idle_streams) streams = std::make_unique<IdleStreams>();
    engine_ = std::make_unique<allocator::Engine>(test::borrow(backing_), std::move(streams),
                                                  allocator::EngineOptions{.background_task = false});
  }

  // Inlined into every loop that is measured, whatever else uses them.
  [[gnu::always_inline]] std::uint64_t allocate(Bytes bytes, std::uint32_t stream) {
    const StreamHandle handle = handle_of(stream);
    const allocator::Address fast = engine_->allocate_by_default(bytes, handle);
    return fast != 0 && options_.lag == 0 ? fast : allocate_slowly(fast, bytes, handle);
  }
  [[gnu::always_inline]] void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream) {
    const StreamHandle handle = handle_of(stream);
    if (!engine_->deallocate_by_default(address, bytes, handle)) deallocate_slowly(address, bytes, handle);
  }
  Bytes committed() const { return backing_.committed(); }
  /// How long a call takes in the time that the background work sees: 50,000 calls a second, as programs make
  /// them.
  void pass() {
    now_ += std::chrono::microseconds(20);
    if (++calls_ % 500 == 0) engine_->background_tick(now_);
  }

  allocator::Engine& engine() { return *engine_; }
  test::FakeBacking& backing() { return backing_; }
  std::chrono::steady_clock::time_point now() const { return now_; }

 private:
  /// 0 is the default stream; the next numbers mean something to CUDA.
  static StreamHandle handle_of(std::uint32_t stream) {
    return reinterpret_cast<StreamHandle>(stream == 0 ? std::uintptr_t{0} : std::uintptr_t{0x1000} + stream);
  }
  [[gnu::noinline]] std::uint64_t allocate_slowly(std::uint64_t fast, Bytes bytes, StreamHandle handle) {
    std::uint64_t address = fast != 0 ? fast : engine_->try_allocate(bytes, handle);
    if (address == 0) address = must(engine_->allocate(bytes, handle), "allocate");
    if (options_.lag != 0) streams_.give(handle);
    return address;
  }
  [[gnu::noinline]] void deallocate_slowly(std::uint64_t address, Bytes bytes, StreamHandle handle) {
    if (engine_->try_deallocate(address, bytes, handle)) return;
    must(engine_->deallocate(address, bytes, handle), "deallocate");
  }

  Options options_;
  test::FakeBacking backing_;
  test::FakeStreams streams_;
  std::unique_ptr<allocator::Engine> engine_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
  std::uint64_t calls_ = 0;
};

/// On streams other than the default one, without the driver's time.
struct GpumemOnStreams : Gpumem {
  static constexpr const char* kName = "gpumem_stream";
  GpumemOnStreams() : Gpumem({.idle_streams = true}) {}
};

}  // namespace gpumem::bench
