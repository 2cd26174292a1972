#pragma once

#include <string>

#include "gpumem/bytes.h"
#include "gpumem/options.h"
#include "gpumem/result.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// The range [from, to) of a slice, in addresses of one's own choice, and the leases that it lies in: what
/// can be named by an IPC handle or as a region.
class ExportedRange {
 public:
  /// `from` is below `to`.
  ExportedRange(std::uint64_t slice, Bytes from, Bytes to) : slice_(slice), from_(from), to_(to) {}

  /// Names the extent [begin, begin + size), if some of the range lies in it. Extents come in their order.
  /// Errors  kResourceExhausted: they are more than can be named together.
  Result<void> add(Bytes begin, Bytes size, std::uint64_t lease);
  lane::ExportHandle handle(const ExportOptions& options) const;
  /// `name`, `options`  within the frame's bounds.
  lane::Publish region(const std::string& name, const PublishOptions& options) const;

 private:
  template <class Request>
  Request request() const;

  std::uint64_t slice_;
  Bytes from_;
  Bytes to_;
  Bytes offset_;
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, lane::kMostLeases> leases_{};
};

/// Whether it can name a region, or a tenant that has one: a frame has room for so much of it. The broker
/// checks all other rules for names.   Errors  kInvalidArgument.
Result<void> check_name(const std::string& name);
/// Checks the owner's name; empty for the session's own tenant.
Result<void> check_owner(const std::string& owner);
/// Errors  kInvalidArgument: a name that is too long, too many readers.
Result<void> check_publication(const std::string& name, const PublishOptions& options);

}  // namespace gpumem::client
