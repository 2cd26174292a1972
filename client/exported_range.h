#pragma once
#include "gpumem/bytes.h"
#include "gpumem/options.h"
#include "gpumem/result.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// The request for an IPC handle of [from, to), in addresses of one's own choice.
class ExportedRange {
 public:
  /// `from` is below `to`.
  ExportedRange(std::uint64_t slice, Bytes from, Bytes to, const ExportOptions& options);

  /// Names the extent [begin, begin + size), if some of the range lies in it. Extents come in their order.
  /// Errors  kResourceExhausted: they are more than a handle can name.
  Result<void> add(Bytes begin, Bytes size, std::uint64_t lease);
  const lane::ExportHandle& request() const { return request_; }

 private:
  Bytes from_;
  Bytes to_;
  lane::ExportHandle request_{};
};

}  // namespace gpumem::client
