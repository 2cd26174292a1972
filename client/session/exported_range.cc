#include "client/session/exported_range.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "proto/lane/frames.h"

namespace gpumem::client {
namespace {

std::uint64_t nanoseconds(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

}  // namespace

Result<void> ExportedRange::add(Bytes begin, Bytes size, std::uint64_t lease) {
  if (begin + size <= from_ || begin >= to_) return {};
  if (count_ == leases_.size()) {
    return Error{Code::kResourceExhausted, to_string(to_ - from_) + " are more than " +
                                               std::to_string(count_) +
                                               " extents, as many as can be named together; name smaller "
                                               "ranges, or grow by larger extents"};
  }
  if (count_ == 0) offset_ = from_ - begin;
  leases_[count_++] = lease;
  return {};
}

template <class Request>
Request ExportedRange::request() const {
  Request request{};
  request.slice = slice_;
  request.offset = offset_.count;
  request.bytes = (to_ - from_).count;
  request.count = count_;
  request.leases = leases_;
  return request;
}

lane::ExportHandle ExportedRange::handle(const ExportOptions& options) const {
  auto made = request<lane::ExportHandle>();
  made.life = nanoseconds(options.life);
  made.uses = options.uses;
  return made;
}

lane::Publish ExportedRange::region(const std::string& name, const PublishOptions& options) const {
  auto made = request<lane::Publish>();
  made.name = lane::RegionName::of(name);
  made.layout = options.layout.count;
  std::ranges::copy(options.digest, made.digest.begin());
  made.sharing = static_cast<lane::Sharing>(options.sharing);
  made.life = nanoseconds(options.life);
  made.keep = options.keep ? 1 : 0;
  made.linger = nanoseconds(options.linger);
  made.sealed = options.sealed ? 1 : 0;
  const std::size_t count = std::min(options.readers.size(), made.readers.size());
  for (std::size_t i = 0; i < count; ++i) made.readers[i] = lane::Text<128>::of(options.readers[i]);
  return made;
}

Result<void> check_name(const std::string& name) {
  constexpr std::size_t kMost = sizeof(lane::RegionName);
  if (!name.empty() && name.size() <= kMost) return {};
  return Error{Code::kInvalidArgument,
               "a name has 1 to " + std::to_string(kMost) + " bytes, not " + std::to_string(name.size())};
}

Result<void> check_owner(const std::string& owner) {
  return owner.empty() ? Result<void>() : check_name(owner);
}

Result<void> check_publication(const std::string& name, const PublishOptions& options) {
  constexpr std::size_t kMost = std::tuple_size_v<decltype(lane::Publish::readers)>;
  if (auto right = check_name(name); !right) return right;
  if (options.readers.size() > kMost)
    return Error{Code::kInvalidArgument, "a region names " + std::to_string(kMost) + " tenants at most"};
  for (const std::string& reader : options.readers)
    if (auto right = check_name(reader); !right) return right;
  return {};
}

}  // namespace gpumem::client
