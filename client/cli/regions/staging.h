#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cuda/driver.h"

namespace gpumem::cli {

/// The host memory through which files and devices exchange bytes: one piece, however much there is.
class Staging {
 public:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  /// `driver`  outlives it.
  explicit Staging(const cuda::Driver& driver) : driver_(driver), bytes_(kBytes) {}

  std::span<char> bytes() { return bytes_; }
  /// Copies the first `count` bytes to the device's address. In a context of the device. They may be there
  /// only after finish(). Errors  the driver's.
  Result<void> store(std::uint64_t address, std::size_t count) const;
  /// Waits until all that was stored is there for other processes, too. Errors  the driver's.
  Result<void> finish() const;
  /// Fills the first `count` bytes from the device's address. The same.
  Result<void> load(std::uint64_t address, std::size_t count);

 private:
  const cuda::Driver& driver_;
  std::vector<char> bytes_;
};

}  // namespace gpumem::cli
