#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "client/connection.h"
#include "cuda/memory.h"
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
  /// Errors  as gpumem_map_content.
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection,
                                                   const ContentOptions& options);
  using OrReserved = std::variant<std::unique_ptr<ImportState>, lane::NameReserved>;
  /// Errors  as gpumem_map_or_reserve.
  static Result<OrReserved> open_or_reserve(std::shared_ptr<Connection> connection, const std::string& name,
                                            const ReserveOptions& options);
  /// Unmaps the memory and tells the broker. Not run in a forked child.
  ~ImportState();
  ImportState(const ImportState&) = delete;
  ImportState& operator=(const ImportState&) = delete;

  cuda::Address address() const { return mapping_.at() + offset_.count; }
  Bytes bytes() const { return bytes_; }
  const SharedDevice& device() const { return device_; }
  /// From now on the device with `ordinal`, a peer, may use the memory, too.   Errors  the driver's.
  Result<void> allow(int ordinal);
  /// Of a region; else all zero.
  struct Region {
    std::uint64_t version = 0;
    Bytes layout;
    lane::LayoutDigest digest{};
    bool writable = false;
  };
  const Region& region() const { return region_; }
  /// As gpumem_import_commit and gpumem_import_generation.
  Result<std::uint64_t> commit() const;
  /// As gpumem_import_publish.
  Result<std::uint64_t> publish(const std::string& name, const PublishOptions& options) const;
  Result<std::uint64_t> generation(const GenerationOptions& options) const;

 private:
  ImportState(std::shared_ptr<Connection> connection, std::uint64_t id)
      : connection_(std::move(connection)), id_(id) {}
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection, RegionPart part,
                                                   bool writable,
                                                   const std::vector<SharedDevice>& peers = {});
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection, ImportedPart part,
                                                   cuda::Access access, const Region& region,
                                                   const std::vector<SharedDevice>& peers = {});
  Result<void> map(const ImportedPart& part, cuda::Access access, const std::vector<SharedDevice>& peers);
  Result<void> adopt(const lane::MapRegion& region);
  Result<void> check_region() const;
  void release(std::uint64_t import) const;

  const std::shared_ptr<Connection> connection_;
  const std::uint64_t id_;
  SharedDevice device_;
  Bytes offset_;
  Bytes bytes_;
  cuda::Reservation reservation_;
  cuda::Mapping mapping_;
  cuda::Access access_ = cuda::Access::kReadWrite;
  Region region_;
};

}  // namespace gpumem::client
