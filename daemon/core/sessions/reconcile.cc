#include "daemon/core/sessions/reconcile.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {

bool Announced::tells(Bytes now) {
  const bool worth = !now.is_zero() && (last.is_zero() || now > last + kWorthAnEvent);
  last = worth ? now : std::min(last, now);
  return worth;
}

bool PastBroker::see(Bytes seen, bool regular, TimePoint now, Duration confirm) {
  bytes = seen;
  if (seen.is_zero()) {
    clear();
  } else if (regular) {
    lasting = since && now - *since >= confirm;
    if (!since) since = now;
  }
  return announced.tells(seen);
}

void PastBroker::clear() {
  const Announced told = announced;
  *this = {};
  announced = told;
  static_cast<void>(announced.tells({}));
}

std::vector<std::optional<Bytes>> own_memory(const std::vector<Booked>& processes, Bytes broker, Bytes used) {
  Bytes sum = broker;
  bool all_told = true;
  for (const Booked& one : processes) {
    sum = sum.plus(one.used).value_or(Bytes{~0ULL});
    all_told = all_told && !one.used.is_zero();
  }
  const bool booked_once = all_told && sum <= used && used - sum <= kDriversOwn;
  std::vector<std::optional<Bytes>> own;
  for (const Booked& one : processes) {
    const bool told = !one.used.is_zero() && (booked_once || one.used >= one.leases);
    own.push_back(told ? std::optional(booked_once ? one.used : one.used - one.leases) : std::nullopt);
  }
  return own;
}

}  // namespace gpumem::core
