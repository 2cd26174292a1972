#include "bench/allocator/mimalloc.h"
#include "bench/allocator/register.h"
#include "bench/world.h"
#include "gpumem.h"

// The allocator as programs in C meet it: gpumem_allocate and gpumem_deallocate over lent memory, on a
// driver. alloc_free measures the engine alone.

namespace gpumem::bench {
namespace {

constexpr std::size_t kPairs = 100'000;
constexpr std::size_t kTurns = 15;

void require_ok(gpumem_status status, const char* what) {
  if (status != GPUMEM_OK) give_up(what, gpumem_last_error());
}

/// A session and an allocator of its own.
class Handles {
 public:
  explicit Handles(const std::string& folder) {
    gpumem_session_options where = GPUMEM_SESSION_OPTIONS_INIT;
    where.runtime_folder = folder.c_str();
    require_ok(gpumem_session_connect(&where, &session_), "connect");
    require_ok(gpumem_allocator_open(session_, nullptr, &allocator_), "open an allocator");
  }
  ~Handles() {
    gpumem_allocator_close(allocator_);
    gpumem_session_close(session_);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  std::uint64_t allocate(Bytes bytes) {
    gpumem_address address = 0;
    require_ok(gpumem_allocate(allocator_, bytes.count, nullptr, &address), "allocate");
    return address;
  }
  void deallocate(std::uint64_t address, Bytes bytes) {
    require_ok(gpumem_deallocate(allocator_, address, bytes.count, nullptr), "deallocate");
  }

 private:
  gpumem_session* session_ = nullptr;
  gpumem_allocator* allocator_ = nullptr;
};

template <class Allocate, class Deallocate>
double pair_ns(Allocate&& allocate, Deallocate&& deallocate) {
  const auto took = at_once(1, [&](std::size_t) {
    for (std::size_t i = 0; i < kPairs; ++i) {
      std::uint64_t address = allocate();
      benchmark::DoNotOptimize(address);
      deallocate(address);
    }
  });
  return static_cast<double>(took.count()) / kPairs;
}

Compared through_c(const World& world, Bytes bytes) {
  Handles handles(world.broker.folder());
  Mimalloc mimalloc;
  const std::uint64_t held = handles.allocate(bytes), held_of_host = mimalloc.allocate(bytes, 0);
  const auto compared = compare(
      kTurns,
      [&] {
        return pair_ns([&] { return handles.allocate(bytes); },
                       [&](std::uint64_t address) { handles.deallocate(address, bytes); });
      },
      [&] {
        return pair_ns([&] { return mimalloc.allocate(bytes, 0); },
                       [&](std::uint64_t address) { mimalloc.deallocate(address, bytes, 0); });
      });
  handles.deallocate(held, bytes);
  mimalloc.deallocate(held_of_host, bytes, 0);
  return compared;
}

}  // namespace

void register_through_c(World& world) {
  for (std::uint64_t size = 256; size <= 1 << 20; size *= 4)
    register_compared("alloc_free/gpumem_c/size:" + std::to_string(size) + "/threads:1", "mimalloc",
                      [&world, size] { return through_c(world, {size}); });
}

}  // namespace gpumem::bench
