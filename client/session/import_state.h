#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "client/session/mapping.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// Memory of another session, mapped here by a handle or as a region. The broker lends it to this session,
/// too, until this ends.
/// Threads  any.
class ImportState {
 public:
  /// A handle of memory, or of a region, which is mapped for reading. Errors  as gpumem_import_handle.
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection,
                                                   const lane::HandleBytes& handle);
  /// Errors  as gpumem_map_region.
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection,
                                                   const std::string& name, const RegionOptions& options);
  using OrReserved = std::variant<std::unique_ptr<ImportState>, lane::NameReserved>;
  /// Errors  as gpumem_map_or_reserve.
  static Result<OrReserved> open_or_reserve(std::shared_ptr<Connection> connection, const std::string& name,
                                            const ReserveOptions& options);
  /// Unmaps the memory and tells the broker. Not run in a forked child.
  ~ImportState();
  ImportState(const ImportState&) = delete;
  ImportState& operator=(const ImportState&) = delete;

  /// Also while it is unmapped.
  cuda::Address address() const { return addresses_.base() + offset_.count; }
  Bytes bytes() const { return bytes_; }
  /// Whether `address` is reserved for the extents that it lies in, whole ones.
  bool has_address(cuda::Address address) const {
    return address - addresses_.base() < addresses_.size().count;
  }
  const SharedDevice& device() const { return device_; }
  /// From now on the device with `ordinal`, a peer, may use the memory, too. Does nothing for memory of the
  /// host store.   Errors  the driver's.
  Result<void> allow(int ordinal);
  /// Of a region; else all zero.
  struct Region {
    std::uint64_t version = 0;
    Bytes layout;
    lane::LayoutDigest digest{};
  };
  Region region() const { return {version_, layout_, digest_}; }
  /// As gpumem_import_unmap and gpumem_import_remap.
  Result<void> unmap();
  Result<void> remap(const RemapOptions& options);
  bool is_mapped() const { return id_ != 0; }
  /// Memory of the host store, which the devices can copy at full speed.
  bool is_pinned() {
    const MutexLock lock(mutex_);
    return mapping_.is_pinned() || (is_mapped() && device_.is_host() && !device_.has_files());
  }

 private:
  /// Owner and name of a region; empty for memory that was imported by a handle.
  struct Named {
    lane::Text<128> owner{};
    lane::RegionName name{};
  };
  /// How what is imported is to be mapped.
  struct Manner {
    cuda::Access access = cuda::Access::kReadWrite;
    std::vector<SharedDevice> peers{};  ///< that use the memory, too
    Named named{};
    bool pinned = false;  ///< if it is of the host store
  };
  ImportState(std::shared_ptr<Connection> connection, std::uint64_t id, Manner manner)
      : connection_(std::move(connection)),
        access_(manner.access),
        is_pinned_(manner.pinned),
        named_(manner.named),
        peers_(std::move(manner.peers)),
        id_(id) {}
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection, RegionPart part,
                                                   Manner manner);
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection, ImportedPart part,
                                                   Manner manner);
  Result<void> reserve(const ImportedPart& part);
  Result<Mapping> map(const ImportedPart& part) const;
  Result<Mapping> map_host(const ImportedPart& part) const;
  Result<Mapping> map_on_device(const ImportedPart& part) const;
  Result<void> check_place(const RegionPart& again) const;
  Result<void> adopt();
  Result<void> check_region() const;
  static void release(Connection& connection, std::uint64_t import);

  const std::shared_ptr<Connection> connection_;
  const cuda::Access access_;
  const bool is_pinned_;  ///< asked for
  const Named named_;
  SharedDevice device_;
  Bytes offset_;
  Bytes bytes_;
  Bytes layout_;
  lane::LayoutDigest digest_{};
  Addresses addresses_;
  std::atomic<std::uint64_t> version_{0};  ///< of a region; else 0
  Mutex mutex_;
  std::vector<SharedDevice> peers_;
  std::vector<int> allowed_ GPUMEM_GUARDED_BY(mutex_);  ///< later ones, by their ordinals
  std::atomic<std::uint64_t> id_;  ///< the broker's; 0: it is unmapped. Changed by mutex_
  Mapping mapping_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::client
