#include <random>

#include "tests/unit/core/machine.h"

// Whatever comes in whatever order: no deadline that has come stays, and in the end all is as new.

namespace gpumem::core {
namespace {

using std::chrono::milliseconds;

class BrokerTimer : public testing::TestWithParam<Escalation> {
 protected:
  static Policy policy(bool lends, std::uint64_t limit) {
    Policy policy;
    policy.devices = {device("GPU-0", mebibytes(64)), device("GPU-1", mebibytes(64))};
    policy.devices[1].granularity = mebibytes(4);
    for (DevicePolicy& one : policy.devices) {
      one.reclaim.lend_guarantees = lends;
      one.reclaim.escalation = GetParam();
      one.context_overhead = mebibytes(1);
    }
    const auto quotas = [](Bytes guarantee, Bytes most) {
      return std::vector<Quota>(2, Quota{guarantee, most});
    };
    policy.tenants = {parent("lab", quotas(mebibytes(24), mebibytes(64))),
                      user("ann", 1, quotas(mebibytes(16), mebibytes(64)), "lab"),
                      user("bob", 2, quotas({}, mebibytes(limit)), "lab"),
                      user("cid", 3, quotas({}, mebibytes(limit)))};
    policy.others = quotas(mebibytes(4), mebibytes(32));
    policy.aging = std::chrono::seconds(3);
    return policy;
  }
  struct Client {
    SessionId session;
    std::array<SliceId, 2> slices;
    std::vector<RequestId> requests;
  };
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); }
  Bytes amount() { return mebibytes(2 + draw(12) * 2); }

  void come(Machine& machine) {
    const auto session = machine.broker.open_session(peer_of(1 + draw(6)), "x", machine.now);
    machine.collect();
    if (!session) return;
    Client client{*session, {}, {}};
    for (DeviceIndex i = 0; i < 2; ++i) {
      const auto slice = machine.broker.open_slice(*session, {"GPU-" + std::to_string(i), {}, "x"});
      if (!slice) return machine.die(*session);
      client.slices[i] = slice->id;
    }
    clients.push_back(client);
  }
  void ask(Machine& machine, Client& client) {
    const Bytes wanted = amount();
    std::vector<GrowthPart> parts{{client.slices[draw(2)], wanted, draw(2) == 0 ? kPiece : wanted}};
    if (draw(3) == 0) parts = {{client.slices[0], amount()}, {client.slices[1], amount()}};
    client.requests.push_back(machine.grow(client.session, parts, milliseconds(draw(2) * draw(9000))));
  }
  void leave(Machine& machine, std::size_t index) {
    if (draw(3) == 0) machine.lose_lane(clients[index].session);
    machine.die(clients[index].session);
    clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void act(Machine& machine) {
    if (clients.empty() || draw(8) == 0) return come(machine);
    const std::size_t index = draw(static_cast<std::uint32_t>(clients.size()));
    Client& client = clients[index];
    switch (draw(9)) {
      case 0: return leave(machine, index);
      case 1: return machine.heed(client.session, draw(2));
      case 2: return machine.say_spent(client.session, draw(2));
      case 3:
        if (!client.requests.empty()) machine.cancel(client.requests.back());
        return;
      case 4:
        static_cast<void>(machine.broker.charge(client.session, {"GPU-0", mebibytes(draw(12))}, machine.now));
        return machine.collect();
      case 5:
        static_cast<void>(machine.broker.apply(policy(draw(2) == 0, 8 + draw(29) * 2), machine.now));
        return machine.collect();
      default: return ask(machine, client);
    }
  }

  std::mt19937 random;
  std::vector<Client> clients;
};

INSTANTIATE_TEST_SUITE_P(UnderEveryEscalation, BrokerTimer,
                         testing::Values(Escalation::kWait, Escalation::kDeny, Escalation::kEndSession));

TEST_P(BrokerTimer, NeverStaysOnceItHasCome) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random.seed(seed);
    Machine machine(policy(seed % 2 == 0, 64));
    for (int step = 0; step < 300; ++step) {
      act(machine);
      machine.pass_in_steps(milliseconds(draw(500)));
      for (const Client& client : clients)
        static_cast<void>(machine.broker.explain_session(client.session, true, machine.now).value());
      ASSERT_FALSE(HasFailure());
    }
    while (!clients.empty()) leave(machine, 0);
    machine.pass_in_steps(std::chrono::seconds(60));
    EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
    for (const DeviceView& view : machine.broker.devices()) {
      EXPECT_EQ(view.charges.total() + view.outside, Bytes{});
      EXPECT_EQ(view.warm, view.policy.pool);
    }
  }
}

}  // namespace
}  // namespace gpumem::core
