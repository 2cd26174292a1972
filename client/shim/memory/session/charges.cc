#include "client/shim/memory/session/charges.h"

#include "client/session/connection.h"
#include "client/shim/memory/session/settings.h"

namespace gpumem::shim {
namespace {

/// That the driver holds `all` for this process on the slices' device.
Result<lane::Charge> charge_of(const Slices& of, Bytes all) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  return lane::Charge{*index, all.count, 0};
}

}  // namespace

Result<DeviceFigures> figures_of(const Slices& of) {
  const auto index = of.connection().device_index(of.engine().properties().device);
  if (!index) return index.error();
  const auto figures = of.connection().broker_figures();
  if (!figures) return figures.error();
  return figures->devices.at(*index);
}

// Of the tenant, in a job, too: memory of the driver is not charged to the job. Contexts may be, and can take
// it past its limit.
Result<void> check_room(const DeviceFigures& figures, Bytes more) {
  const Bytes charged{figures.tenant_charged};
  const Bytes limit{figures.tenant_limit};
  const auto all = charged.plus(more);
  if (!all || *all > limit)
    return Error{Code::kResourceExhausted,
                 to_string(charged) + " of the tenant's limit of " + to_string(limit) + " are charged"};
  if (figures.charged <= figures.limit) return {};
  return Error{Code::kResourceExhausted, to_string(Bytes{figures.charged}) +
                                             " are charged against the job's limit of " +
                                             to_string(Bytes{figures.limit})};
}

Result<void> Declaration::more(Bytes bytes) {
  const MutexLock lock(mutex_);
  if (!bytes.is_zero()) {
    const auto figures = figures_of(*to_);
    if (!figures) return figures.error();
    if (auto has_room = check_room(*figures, bytes); !has_room) return has_room;
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
