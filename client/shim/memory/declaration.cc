#include "client/shim/memory/declaration.h"

#include "client/connection.h"
#include "client/shim/memory/wait_policy.h"

namespace gpumem::shim {
namespace {

/// That the driver holds `all` for this process on the slices' device.
Result<lane::Charge> charge_of(const Slices& of, Bytes all) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  return lane::Charge{*index, all.count};
}

}  // namespace

Result<DeviceFigures> tenant_of(const Slices& of) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  const auto figures = of.connection().broker_figures();
  if (!figures) return figures.error();
  return figures->devices.at(*index);
}

Result<void> check_room(const DeviceFigures& tenant, Bytes more) {
  const auto all = Bytes{tenant.charged}.plus(more);
  if (all && *all <= Bytes{tenant.limit}) return {};
  return Error{Code::kResourceExhausted, to_string(Bytes{tenant.charged}) + " of the tenant's limit of " +
                                             to_string(Bytes{tenant.limit}) + " are charged"};
}

Result<void> Declaration::more(Bytes bytes) {
  const MutexLock lock(mutex_);
  if (!bytes.is_zero()) {
    const auto tenant = tenant_of(*to_);
    if (!tenant) return tenant.error();
    if (auto has_room = check_room(*tenant, bytes); !has_room) return has_room;
  }
  auto told = tell(*to_, all_ + bytes);
  if (told) all_ += bytes;
  // A broker that does not answer may yet read it.
  if (!told && is_away(told.error())) {
    if (const auto charge = charge_of(*to_, all_)) to_->connection().lane().tell_later(*charge);
  }
  return told;
}

Result<void> Declaration::less(Bytes bytes) {
  const MutexLock lock(mutex_);
  all_ -= bytes;
  const auto charge = charge_of(*to_, all_);
  if (!charge) return charge.error();
  auto told = to_->connection().lane().call_or_tell_later(*charge);
  if (told || is_away(told.error())) return {};
  return told.error();
}

Result<void> Declaration::tell(const Slices& to, Bytes all) {
  const auto charge = charge_of(to, all);
  if (!charge) return charge.error();
  auto told = to.connection().lane().call(*charge);
  if (!told) return told.error();
  return {};
}

}  // namespace gpumem::shim
