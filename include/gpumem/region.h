#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpumem/detail/c.h"
#include "gpumem/ipc.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem {

namespace detail {

/// The version that `call(options, version)` stores.
template <class Call>
Result<std::uint64_t> published(const PublishOptions& options, Call&& call) {
  std::vector<const char*> readers;
  for (const std::string& reader : options.readers) readers.push_back(reader.c_str());
  gpumem_publish_options given = GPUMEM_PUBLISH_OPTIONS_INIT;
  given.sharing = static_cast<gpumem_sharing>(options.sharing);
  given.readers = readers.data();
  given.reader_count = readers.size();
  given.layout = options.layout.count;
  std::copy(options.digest.begin(), options.digest.end(), given.digest);
  given.life_ms = options.life.count();
  given.keep = options.keep;
  given.linger_ms = options.linger.count();
  given.sealed = options.sealed;
  std::uint64_t version = 0;
  const gpumem_status status = call(&given, &version);
  if (status != GPUMEM_OK) return last_error(status);
  return version;
}

}  // namespace detail

/// Named memory that another process has published (Slice::publish), mapped into this one
/// (Session::map_region): for reading, unless RegionOptions::writable is set. It stays mapped when its
/// publisher removes it, gives it back or ends. When nobody of the publisher's tenant has it any more, it is
/// charged to a session that has mapped it. When the broker asks for the memory, it asks this session, too: a
/// pressure handler ends the region. The destructor unmaps the memory. The caller must have synchronised its
/// work on it.
/// Threads  any.
/// Fork     as Slice.
class Region : public Import {
 public:
  /// Higher than that of every region that was published before.
  std::uint64_t version() const { return info().version; }
  /// So many of the region's last bytes say what is in it.
  Bytes layout() const { return {info().layout}; }
  /// Unmaps the region and keeps its addresses: what points into it is good again after remap(). Until then
  /// work on them fails, as on memory that is not mapped. To the broker it is as if the region were gone: the
  /// memory can come back, and an adopted region ends. The caller has synchronised its work on it.
  /// Errors  kFailedPrecondition (unmapped), kUnauthenticated, the driver's.
  Result<void> unmap() { return detail::done(gpumem_import_unmap(c_handle())); }
  bool is_mapped() const { return gpumem_import_is_mapped(c_handle()); }
  /// Whether it is memory of the host store that is pinned in this process.
  bool is_pinned() const { return gpumem_import_is_pinned(c_handle()); }
  /// Maps it again at the same addresses, with the access that it had: the same version or, if asked for, the
  /// newest.
  /// Errors  kNotFound (the region has ended), kFailedPrecondition (it is mapped; the newest has another
  ///         layout or size, or tells no digest of its layout), others as Session::map_region. It stays
  ///         unmapped then.
  Result<void> remap(const RemapOptions& options = {}) {
    gpumem_remap_options given = GPUMEM_REMAP_OPTIONS_INIT;
    given.newest = options.newest;
    return detail::done(gpumem_import_remap(c_handle(), &given));
  }
  /// Of the layout, as the publisher says.
  std::array<unsigned char, 32> digest() const {
    std::array<unsigned char, 32> bytes{};
    const gpumem_region_info known = info();
    std::copy(std::begin(known.digest), std::end(known.digest), bytes.begin());
    return bytes;
  }

 private:
  friend class Session;
  explicit Region(gpumem_import* handle) : Import(handle) {}
  gpumem_region_info info() const {
    gpumem_region_info info = GPUMEM_REGION_INFO_INIT;
    (void)gpumem_import_region(c_handle(), &info);  // fails for one that was moved from alone
    return info;
  }
};

/// A name that is this session's to publish a region under (Session::map_or_reserve).
struct Reservation {
  std::uint64_t number = 0;
};

}  // namespace gpumem
