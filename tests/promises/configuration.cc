#include "tests/promises/configuration.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "tests/unit/core/policies.h"

namespace gpumem::core::promises {
namespace {

constexpr Bytes kBesidesThePool = mebibytes(128);

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}

  Configuration configuration() {
    Configuration drawn;
    const std::uint64_t devices = one_in(2) ? 1 : 2 + below(2);
    const bool ends = !one_in(4);
    for (DeviceIndex i = 0; i < devices; ++i) drawn.policy.devices.push_back(device(i, ends));
    drawn.policy.aging = std::chrono::seconds(1 + below(60));
    drawn.policy.past_broker.end = one_in(2);
    drawn.policy.past_broker.allowance = mebibytes(2 + 2 * below(4));
    drawn.policy.max_requests_per_session = 8;
    drawn.users = static_cast<std::uint32_t>(3 + below(4));
    const std::uint64_t groups = below(3);
    for (std::uint64_t group = 0; group < groups; ++group)
      drawn.policy.tenants.push_back(
          parent("group" + std::to_string(group), {}, group != 0 && one_in(2) ? "group0" : ""));
    for (std::uint32_t uid = 1; uid <= drawn.users; ++uid) {
      const std::string above = groups != 0 && one_in(2) ? "group" + std::to_string(below(groups)) : "";
      drawn.policy.tenants.push_back(user("user" + std::to_string(uid), uid, {}, above));
    }
    for (DeviceIndex i = 0; i < devices; ++i) draw_quotas(drawn.policy, i);
    GPUMEM_CHECK(check(drawn.policy).has_value(), "a policy that holds");
    return drawn;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  DevicePolicy device(DeviceIndex index, bool ends) {
    const Bytes pool{kPiece.count * (32 + below(96))};
    DevicePolicy device = core::device("GPU-" + std::to_string(index), pool);
    device.total = pool + kBesidesThePool;
    device.reclaim.lend_guarantees = !one_in(4);
    device.reclaim.deadline = std::chrono::milliseconds(200 + below(1800));
    device.reclaim.grace = device.reclaim.deadline + std::chrono::milliseconds(below(3000));
    device.reclaim.escalation = ends        ? Escalation::kEndSession
                                : one_in(2) ? Escalation::kWait
                                            : Escalation::kDeny;
    if (one_in(3)) device.context_overhead = kPiece;
    device.contexts_in_limit = pool.count / kPiece.count % 2 == 0;
    return device;
  }

  // What is promised to the users is part of the pool; a group's limit holds what is promised below it.
  void draw_quotas(Policy& policy, DeviceIndex device) {
    const Bytes pool = policy.devices[device].pool;
    Bytes left = pool;
    std::map<std::string, Bytes> promised;
    for (auto rule = policy.tenants.rbegin(); rule != policy.tenants.rend(); ++rule) {
      Quota quota;
      const Bytes below_it = promised[rule->name];
      if (rule->uid) {
        quota.guarantee = one_in(4) ? Bytes{} : Bytes{below(left.count * 2 / 3 + 1)}.rounded_down(kPiece);
      } else {
        quota.guarantee =
            one_in(2) ? Bytes{} : below_it + Bytes{below(left.count / 2 + 1)}.rounded_down(kPiece);
      }
      const Bytes promise = std::max(quota.guarantee, below_it);
      left = left.minus(promise.minus(below_it));
      promised[rule->parent] += promise;
      const Bytes least_limit = std::max(promise, Bytes{8 * kPiece.count});
      quota.limit = one_in(3) ? std::max(pool, least_limit)
                              : least_limit + Bytes{below(pool.count)}.rounded_down(kPiece);
      quota.weight = static_cast<std::uint32_t>(1 + below(300));
      quota.priority = one_in(2) ? kDefaultPriority : static_cast<std::uint32_t>(below(kMaxPriority + 1));
      rule->quotas.push_back(quota);
    }
  }

  std::mt19937_64& random_;
};

}  // namespace

Configuration random_configuration(std::mt19937_64& random) { return Draw(random).configuration(); }

}  // namespace gpumem::core::promises
