// endurance slice | allocator SEED PROGRESS: uses memory of the broker in $GPUMEM_RUNTIME_DIR, and verifies
// it, until SIGTERM. Any error ends it with 1.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "cuda/memory.h"
#include "gpumem/allocator.h"
#include "gpumem/session.h"

namespace gpumem::test {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr Bytes kMost = mebibytes(48);

std::atomic<bool> stopping{false};

[[noreturn]] void give_up(const std::string& what, const Error& error) {
  std::fprintf(stderr, "endurance: %s: %s\n", what.c_str(), to_string(error).c_str());
  std::_Exit(1);
}

template <class T, class E>
T need(Result<T, E> result, const char* what) {
  if (!result) give_up(what, result.error());
  return std::move(*result);
}
template <class E>
void need(const Result<void, E>& result, const char* what) {
  if (!result) give_up(what, result.error());
}

/// Device memory that has one value everywhere.
struct Painted {
  std::uint64_t address = 0;
  Bytes size;
  unsigned char value = 0;
};

class Painter {
 public:
  Painter(const Session& session, int ordinal)
      : driver_(*need(cuda::Driver::open(session.driver_folder()), "the driver")),
        context_(need(cuda::CurrentContext::enter(driver_, ordinal), "a context")) {}

  void paint(const Painted& memory) const {
    need(driver_.check(driver_.api().cuMemsetD8(memory.address, memory.value, memory.size.count),
                       "cuMemsetD8"),
         "painting");
  }
  void verify(const Painted& memory) const {
    std::vector<unsigned char> copy(memory.size.count);
    need(driver_.check(driver_.api().cuMemcpyDtoH(copy.data(), memory.address, copy.size()), "cuMemcpyDtoH"),
         "reading");
    for (const unsigned char byte : copy)
      if (byte != memory.value) give_up("verifying", {Code::kInternal, "a byte has changed"});
  }

 private:
  const cuda::Driver& driver_;
  cuda::CurrentContext context_;
};

class Progress {
 public:
  explicit Progress(const char* file)
      : file_(::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  void note() const {
    if (::write(file_.get(), ".", 1) != 1) std::_Exit(1);
  }

 private:
  UniqueFd file_;
};

using Random = std::mt19937;

void use_slice(Session& session, Random& random, const Progress& progress) {
  Slice slice = need(session.open_slice(), "a slice");
  const Painter painter(session, slice.ordinal());
  while (!stopping) {
    const Bytes target = mebibytes(2 * (1 + random() % (kMost.count >> 21)));
    if (target < slice.committed()) {
      need(slice.shrink(target), "shrinking");
    } else {
      need(slice.grow(target, {.wait = kPatience}), "growing");
    }
    const Painted all{slice.base(), slice.committed(), static_cast<unsigned char>(random())};
    painter.paint(all);
    painter.verify(all);
    need(session.ping(), "a ping");
    progress.note();
  }
  need(slice.shrink({}), "giving back");
}

void use_allocator(Session& session, Random& random, const Progress& progress) {
  AllocatorOptions options;
  options.limit = kMost;
  options.wait = kPatience;
  options.idle = std::chrono::milliseconds(1);  // much goes back and comes again
  Allocator allocator = need(session.open_allocator(options), "an allocator");
  const Painter painter(session, allocator.ordinal());
  std::deque<Painted> blocks;
  Bytes held;
  while (!stopping) {
    const Bytes size{1 + random() % mebibytes(4).count};
    while (held + size > mebibytes(24)) {
      const Painted oldest = blocks.front();
      blocks.pop_front();
      painter.verify(oldest);
      need(allocator.deallocate(oldest.address, oldest.size), "freeing");
      held -= oldest.size;
    }
    const Painted block{need(allocator.allocate(size), "allocating"), size,
                        static_cast<unsigned char>(random())};
    painter.paint(block);
    blocks.push_back(block);
    held += size;
    if (random() % 8 == 0) need(allocator.trim(), "trimming");
    progress.note();
  }
  for (const Painted& block : blocks) {
    painter.verify(block);
    need(allocator.deallocate(block.address, block.size), "freeing");
  }
  need(allocator.close(), "closing");
}

}  // namespace
}  // namespace gpumem::test

int main(int argc, char** argv) {
  using namespace gpumem::test;
  if (argc != 4) return 2;
  std::signal(SIGTERM, [](int) { stopping = true; });
  Random random(static_cast<unsigned>(std::stoul(argv[2])));
  const Progress progress(argv[3]);
  gpumem::Session session =
      need(gpumem::Session::connect({.label = argv[1], .timeout = kPatience}), "connecting");
  (std::string(argv[1]) == "slice" ? use_slice : use_allocator)(session, random, progress);
  return 0;
}
