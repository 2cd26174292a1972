#include "client/exported_range.h"

#include <chrono>

namespace gpumem::client {

ExportedRange::ExportedRange(std::uint64_t slice, Bytes from, Bytes to, const ExportOptions& options)
    : from_(from), to_(to) {
  request_.slice = slice;
  request_.bytes = (to - from).count;
  request_.life = static_cast<std::uint64_t>(std::chrono::nanoseconds(options.life).count());
  request_.uses = options.uses;
}

Result<void> ExportedRange::add(Bytes begin, Bytes size, std::uint64_t lease) {
  if (begin + size <= from_ || begin >= to_) return {};
  if (request_.count == request_.leases.size()) {
    return Error{Code::kResourceExhausted, to_string(to_ - from_) + " are more than " +
                                               std::to_string(request_.count) +
                                               " extents, as many as one handle names; make handles of "
                                               "smaller ranges"};
  }
  if (request_.count == 0) request_.offset = (from_ - begin).count;
  request_.leases[request_.count++] = lease;
  return {};
}

}  // namespace gpumem::client
