#include "client/cli/regions/staging.h"

namespace gpumem::cli {

Result<void> Staging::store(std::uint64_t address, std::size_t count) const {
  return driver_.check(driver_.api().cuMemcpyHtoD(address, bytes_.data(), count), "cuMemcpyHtoD");
}

// A copy from pageable memory returns when the bytes are read, not when they are written.
Result<void> Staging::finish() const {
  return driver_.check(driver_.api().cuCtxSynchronize(), "cuCtxSynchronize");
}

Result<void> Staging::load(std::uint64_t address, std::size_t count) {
  return driver_.check(driver_.api().cuMemcpyDtoH(bytes_.data(), address, count), "cuMemcpyDtoH");
}

}  // namespace gpumem::cli
