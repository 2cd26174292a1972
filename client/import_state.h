#pragma once
#include <memory>
#include <vector>

#include "client/connection.h"
#include "cuda/memory.h"

namespace gpumem::client {

/// Memory of another session, mapped here by a handle. The broker lends it to this session, too, until this
/// ends.
/// Threads  any.
class ImportState {
 public:
  /// Errors  as gpumem_import_handle.
  static Result<std::unique_ptr<ImportState>> open(std::shared_ptr<Connection> connection,
                                                   const lane::HandleBytes& handle);
  /// Unmaps the memory and tells the broker. Not run in a forked child.
  ~ImportState();
  ImportState(const ImportState&) = delete;
  ImportState& operator=(const ImportState&) = delete;

  cuda::Address address() const { return mapping_.at() + offset_.count; }
  Bytes bytes() const { return bytes_; }
  const SharedDevice& device() const { return device_; }

 private:
  ImportState(std::shared_ptr<Connection> connection, std::uint64_t id)
      : connection_(std::move(connection)), id_(id) {}
  Result<void> map(const ImportedPart& part);

  const std::shared_ptr<Connection> connection_;
  const std::uint64_t id_;
  SharedDevice device_;
  Bytes offset_;
  Bytes bytes_;
  cuda::Reservation reservation_;
  cuda::Mapping mapping_;
};

}  // namespace gpumem::client
