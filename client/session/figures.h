#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "gpumem/result.h"
#include "shm/pages.h"

namespace gpumem::client {

struct UnmapPage {
  void operator()(const void* page) const { ::munmap(const_cast<void*>(page), kSharedPageBytes); }
};

/// Owns the mapping of one shared page. `Page` is const for a page that is only read.
template <class Page>
using SharedPage = std::unique_ptr<Page, UnmapPage>;

/// Maps the page in the file behind `descriptor`, which stays the caller's.
/// Errors  kFailedPrecondition: not a file of exactly one page; that of mmap.
template <class Page>
Result<SharedPage<Page>> map_page(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return errno_error(errno, "cannot examine a shared page");
  if (!S_ISREG(info.st_mode) || static_cast<std::size_t>(info.st_size) != kSharedPageBytes) {
    return Error{Code::kFailedPrecondition, "the broker sent a shared page of " +
                                                std::to_string(info.st_size) + " bytes, not of " +
                                                std::to_string(kSharedPageBytes)};
  }
  constexpr int kProtection = std::is_const_v<Page> ? PROT_READ : PROT_READ | PROT_WRITE;
  void* mapped = ::mmap(nullptr, kSharedPageBytes, kProtection, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return errno_error(errno, "cannot map a shared page");
  return SharedPage<Page>(static_cast<Page*>(mapped));
}

/// `page` shows what `fresh` shows from now on, at the same address. Errors  that of mremap; `page` stays.
template <class Page>
Result<void> replace_page(const SharedPage<Page>& page, SharedPage<Page> fresh) {
  void* const at = const_cast<void*>(static_cast<const void*>(page.get()));
  void* const from = const_cast<void*>(static_cast<const void*>(fresh.get()));
  if (::mremap(from, kSharedPageBytes, kSharedPageBytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
    return errno_error(errno, "cannot map a shared page");
  static_cast<void>(fresh.release());
  return {};
}

/// A session's own figures, summed over its slices, and their copy in the page that the broker reads.
/// Invariant  when no update is in progress, the page shows the sums, with in_use <= peak.
/// Threads    any; no locks.
class Figures {
 public:
  /// `page`  outlives this.
  explicit Figures(ClientPage& page) : page_(page) {}

  /// What one slice adds to the sums of its device. Negative changes are two's complement.
  struct Change {
    std::uint64_t reserved = 0;
    std::uint64_t committed = 0;
    std::uint64_t in_use = 0;
  };
  void apply(std::size_t device, const Change& change);
  /// The page is new: it shows the sums from now on.
  void publish_all();

 private:
  struct Sums {
    std::atomic<std::uint64_t> reserved{0};
    std::atomic<std::uint64_t> committed{0};
    std::atomic<std::uint64_t> in_use{0};
    std::atomic<std::uint64_t> peak{0};
  };
  static ClientFigures snapshot(const Sums& sums);

  ClientPage& page_;
  std::array<Sums, kMaxDevices> sums_;
};

/// The figures of one slice: keeps in_use <= committed whatever the caller says.
/// Threads  any; no locks. Its destruction removes the slice's part from the sums.
class SliceFigures {
 public:
  SliceFigures(Figures& figures, std::size_t device, std::uint64_t reserved);
  ~SliceFigures();
  SliceFigures(const SliceFigures&) = delete;
  SliceFigures& operator=(const SliceFigures&) = delete;

  std::uint64_t committed() const { return committed_.load(std::memory_order_acquire); }
  std::uint64_t wanted() const { return wanted_.load(); }  ///< in use as the caller says
  void set_committed(std::uint64_t bytes);
  void set_in_use(std::uint64_t bytes);

 private:
  void publish_in_use();

  Figures& figures_;
  const std::size_t device_;
  const std::uint64_t reserved_;
  std::atomic<std::uint64_t> committed_{0};
  std::atomic<std::uint64_t> wanted_{0};  ///< in use as the caller says
  std::atomic<std::uint64_t> in_use_{0};  ///< in use as published
  std::atomic<bool> publishing_{false};
};

}  // namespace gpumem::client
