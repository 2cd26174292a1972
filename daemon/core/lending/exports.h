#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "daemon/core/lending/leases.h"
#include "daemon/core/words/requests.h"

namespace gpumem::core {

/// One extent of a range that is given out by fabric handles.
struct FabricPart {
  LeaseId lease;
  HandleBytes handle{};  ///< the driver's own: any process that may use an IMEX channel of it imports it
  Bytes size;            ///< of the extent: it is mapped as a whole
  Bytes offset;          ///< of the range, in the extent
  Bytes bytes;           ///< of the range
};
/// The fabric handle of an extent; none: the driver gave none.
using FabricHandleOf = std::function<std::optional<HandleBytes>(ExtentId)>;

/// Leases that are given out by handles: the broker's, for sessions of the same tenant, and the driver's
/// fabric handles. Events of the Broker that have the same names have their contracts there.
class Exports {
 public:
  /// All outlive it.
  Exports(State& state, Leases& leases, Handles& handles, const Regions& regions)
      : state_(state), leases_(leases), handles_(handles), regions_(regions) {}

  Result<void> export_handle(const Session& session, ExportHandle request, const HandleBytes& bytes,
                             TimePoint now);
  Result<std::vector<FabricPart>> export_fabric(const Session& session, ExportHandle request,
                                                const FabricHandleOf& handle_of, TimePoint now);
  Result<void> revoke_handle(const Session& session, const HandleBytes& bytes);
  /// The handle, if the session may redeem it. Errors  as Broker::import_handle.
  Result<const Handle*> redeemable(const Session& session, const HandleBytes& bytes, TimePoint now) const;
  /// `handle`  is redeemable by the session; not to be used afterwards.
  Imported import_handle(Session& session, const HandleBytes& bytes, const Handle& handle);

  /// After another broker, and after the leases. A handle that cannot be redeemed any more is left out.
  void restore(const Checkpoint::Handle& from, DeviceIndex device, TimePoint now);
  void add_to(Checkpoint& checkpoint) const { handles_.add_to(checkpoint); }

 private:
  Result<void> check_fabric(const Session& session, DeviceIndex device,
                            const std::vector<FabricPart>& parts) const;

  State& state_;
  Leases& leases_;
  Handles& handles_;
  const Regions& regions_;
};

}  // namespace gpumem::core
