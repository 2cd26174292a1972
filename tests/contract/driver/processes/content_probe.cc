// Records whether new memory holds zeroes, or data that others left behind.
#include <algorithm>
#include <csignal>

#include "tests/contract/driver/processes/probe.h"

namespace gpumem::contract {
namespace {

using ContentProbe = Probe;

constexpr std::uint64_t kPattern = 0x67'70'75'6d'65'6d'21'5aULL;
constexpr std::uint64_t kPiece = 32U << 20;  // as much as is on the host at once

// All of the budget, piece by piece, mapped.
std::vector<Mapped> take(Bytes budget, Bytes unit) {
  std::vector<Mapped> pieces;
  for (std::uint64_t left = budget.count; left >= unit.count;) {
    const std::uint64_t size = std::min(left, Bytes{kPiece}.rounded_down(unit).count);
    pieces.push_back(map(allocate({size})));
    left -= size;
  }
  return pieces;
}

void write_pattern(const std::vector<Mapped>& pieces) {
  const cuda::CurrentContext entered = context();
  const std::vector<std::uint64_t> words(kPiece / sizeof kPattern, kPattern);
  for (const Mapped& piece : pieces) {
    must(calls().cuMemcpyHtoD(piece.range.base(), words.data(), piece.range.size().count));
  }
  must(calls().cuCtxSynchronize());
}

struct Seen {
  std::uint64_t words = 0, patterns = 0, others = 0;
  std::string text() const {
    return std::to_string(patterns) + " words of the pattern and " + std::to_string(others) +
           " other words that are not zero, of " + std::to_string(words);
  }
};
Seen scan(const std::vector<Mapped>& pieces) {
  const cuda::CurrentContext entered = context();
  std::vector<std::uint64_t> words(kPiece / sizeof kPattern);
  Seen seen;
  for (const Mapped& piece : pieces) {
    words.resize(piece.range.size().count / sizeof kPattern);
    must(calls().cuMemcpyDtoH(words.data(), piece.range.base(), piece.range.size().count));
    seen.words += words.size();
    for (const std::uint64_t word : words) {
      seen.patterns += word == kPattern ? 1 : 0;
      seen.others += word != 0 && word != kPattern ? 1 : 0;
    }
  }
  return seen;
}

TEST_F(ContentProbe, OfFreshMemory) {
  const Bytes size = budget();
  ask("seen", [&] { return scan(take(size, unit_)).text(); });
}

TEST_F(ContentProbe, AfterItsOwnerWasKilled) {
  const Bytes size = budget();
  Process owner([&](Channel& channel) {
    const std::vector<Mapped> pieces = take(size, unit_);
    write_pattern(pieces);
    channel.tell(scan(pieces).text());
    ::raise(SIGKILL);
  });
  note("written", owner.channel().hear());
  owner.wait();
  ask("seen by the next process", [&] { return scan(take(size, unit_)).text(); });
}

TEST_F(ContentProbe, AfterItWasFreedInTheSameProcess) {
  const Bytes size = budget();
  ask("seen", [&] {
    const cuda::CurrentContext kept = context();
    write_pattern(take(size, unit_));
    return scan(take(size, unit_)).text();
  });
}

TEST_F(ContentProbe, OfMemoryFromCuMemAllocAfterItsOwnerWasKilled) {
  const Bytes size = budget();
  const auto allocated = [](Bytes bytes) {
    CUdeviceptr address = 0;
    must(calls().cuMemAlloc(&address, bytes.count));
    return address;
  };
  Process owner([&](Channel& channel) {
    const cuda::CurrentContext entered = context();
    must(calls().cuMemsetD32(allocated(size), 0x5a5aa5a5, size.count / 4));
    must(calls().cuCtxSynchronize());
    channel.signal();
    ::raise(SIGKILL);
  });
  owner.channel().await();
  owner.wait();
  ask("words of the pattern seen by the next process", [&] {
    const cuda::CurrentContext entered = context();
    const CUdeviceptr address = allocated(size);
    std::vector<std::uint32_t> words(unit_.count / 4);
    std::uint64_t patterns = 0;
    for (std::uint64_t at = 0; at < size.count; at += unit_.count) {
      must(calls().cuMemcpyDtoH(words.data(), address + at, unit_.count));
      patterns += static_cast<std::uint64_t>(std::ranges::count(words, 0x5a5aa5a5U));
    }
    return std::to_string(patterns);
  });
}

}  // namespace
}  // namespace gpumem::contract
