#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "daemon/core/arbiter/arbiter.h"

namespace gpumem::core {

/// Two devices of 100 bytes, tenants as a test adds them, and requests of theirs by number.
class ArbiterWorld : public testing::Test {
 protected:
  using Ids = std::vector<std::uint64_t>;
  static constexpr Duration kAging = std::chrono::seconds(30);

  /// With `quota` on both devices.
  TenantId tenant(Quota quota, TenantId parent = {}) {
    return ledger.add_tenant(Quotas{quota, quota}, parent);
  }
  static Quota burst(std::uint32_t weight = kDefaultWeight, std::uint32_t priority = kDefaultPriority) {
    return {{0}, {100}, weight, priority};
  }
  static Quota promise(std::uint64_t guarantee, std::uint64_t limit = 100) { return {{guarantee}, {limit}}; }

  std::uint64_t ask(TenantId tenant, Request::Parts parts) {
    const std::uint64_t id = ++last_;
    for (Request::Part& part : parts) part.slice = SliceId{id};
    arbiter.add({.id = RequestId{id},
                 .session = SessionId{tenant.value},
                 .tenant = tenant,
                 .parts = std::move(parts),
                 .asked = now,
                 .wait = std::chrono::hours(1),
                 .deadline = now + std::chrono::hours(1)});
    return id;
  }
  std::uint64_t ask(TenantId tenant, std::uint64_t bytes, DeviceIndex device = 0) {
    return ask(tenant, {{{}, device, {bytes}, {bytes}}});
  }
  std::uint64_t ask_both(TenantId tenant, std::uint64_t bytes) {
    return ask(tenant, {{{}, 0, {bytes}, {bytes}}, {{}, 1, {bytes}, {bytes}}});
  }
  std::vector<Granted> admit() { return arbiter.admit(); }
  Ids admitted() {
    Ids ids;
    for (const Granted& granted : arbiter.admit()) ids.push_back(granted.request.id.value);
    return ids;
  }
  void give_back(TenantId tenant, std::uint64_t bytes, DeviceIndex device = 0) {
    ledger.release(tenant, device, {bytes}, Charge::kOffered);
  }
  void pass(Duration time) {
    now += time;
    arbiter.age(now);
  }

  TimePoint now{};
  Ledger ledger{{{100}, {100}}};
  Arbiter arbiter{ledger, {{1}, {1}}, kAging};

 private:
  std::uint64_t last_ = 0;
};

}  // namespace gpumem::core
