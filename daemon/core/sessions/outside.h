#pragma once
#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// Charges of sessions besides the pool: declared memory, their contexts, and memory that they were seen to
/// hold past the broker.
class Outside {
 public:
  explicit Outside(State& state) : state_(state) {}

  /// Declares what the session's process holds of a device past the broker, in place of what was declared
  /// before. `is_bounded`  an increase needs room within the limits.
  /// Errors  kInvalidArgument (more than the device has); kResourceExhausted (no room: names the limit).
  Result<void> declare(Session& session, DeviceIndex device, Bytes declared, bool is_bounded = false);
  /// Whether the context that the session's first slice on the device brings with it may be charged.
  /// Errors  kResourceExhausted: names the limit.
  Result<void> check_context(const Session& session, DeviceIndex device) const;
  /// Charges it; does nothing after the first slice.
  void begin_context(Session& session, DeviceIndex device);
  /// The session is charged for room for contexts: `after` where it was `before`. Room takes the place of the
  /// estimate of begin_context().
  void change_room(Session& session, DeviceIndex device, Bytes before, Bytes after);
  /// As change_room(), for `bytes` that the ledger has charged to State::charged_besides()
  /// (Ledger::give_to_driver).
  void note_room(Session& session, DeviceIndex device, Bytes bytes);
  /// The part of the session's declared memory that is not reclaimed if the tenant exceeds its limit: the
  /// part that had room when it was declared, or has room now.
  Bytes excused(Session& session, DeviceIndex device);
  void set(Session& session, DeviceIndex device, Bytes OutsideCharge::*part, Bytes bytes);
  /// The contexts of `device` are charged within the limits of jobs from now on, or no longer: changes the
  /// policy, too.
  void set_in_limit(DeviceIndex device, bool in_limit);
  /// The context has come into limits: where these have no room for it, nobody is asked to make some.
  void excuse_context(Session& session, DeviceIndex device);
  /// Nobody is asked for what contexts take beyond the estimate of another policy.
  void follow_policy();
  /// The session is over: nothing is charged any more.
  void end(Session& session);

 private:
  TenantId limiting(TenantId leaf, DeviceIndex device, Bytes bytes) const;
  bool has_context(const Session& session, DeviceIndex device) const;
  Result<void> check_room(const Session& session, DeviceIndex device, Bytes more) const;
  void set_unforeseen(Session& session, DeviceIndex device, Bytes bytes);

  State& state_;
};

}  // namespace gpumem::core
