#pragma once
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
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

}  // namespace gpumem::client
