// A quiet client within its guarantee beside ten hostile ones: no call of it is refused, it is never ended,
// and what the others had comes back. How much slower its calls become is printed, and judged by
// bench/quiet_beside_hostile.py.
//   GPUMEM_HOSTILE_SEED      repeats a run, as far as processes can
//   GPUMEM_HOSTILE_SECONDS   how long
//   GPUMEM_HOSTILE_NICE      the hostile clients' niceness above the test's own; 0 if not set
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tests/hostile/clients/crowd.h"
#include "tests/integration/fixture.h"
#include "tests/support/resident.h"

namespace gpumem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kActs = 20;  // that a hostile client chooses from
constexpr milliseconds kRound{100};
constexpr int kMoreRounds = 300;
constexpr Bytes kHeld = mebibytes(16);
constexpr int kPattern = 0x5a;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// The pool has room for all guarantees, and there is room beside it for every context and for what is taken
// past the broker, so that nobody keeps the driver from creating the pool's extents.
std::string config(bool lend) {
  std::string text =
      "[broker]\nreserve = \"all-but 512MiB\"\nsocket_group = 10000\nreclaim_deadline_ms = 300\n"
      "escalation = \"end-session\"\ngrace_seconds = 1\ncontext_overhead = \"0B\"\n"
      "past_broker = \"end\"\npast_broker_allowance = \"24MiB\"\npast_broker_confirm_seconds = 1\n"
      "reconcile_seconds = 1\n";
  if (lend) text += "lend_guarantees = true\n";
  const auto tenant = [](const char* name, int uid, const char* quota) {
    return std::string("[[tenant]]\nname = \"") + name + "\"\nuser = " + std::to_string(uid) + "\n" + quota;
  };
  text += tenant("ann", 10'001, "guarantee = \"64MiB\"\n");
  text += tenant("bob", 10'002, "guarantee = \"64MiB\"\nlimit = \"256MiB\"\n");
  text += tenant("cat", 10'003, "limit = \"256MiB\"\nweight = 200\n");
  return text + tenant("eve", 10'004, "priority = 7\n");
}

std::int64_t quantile(std::vector<std::int64_t> samples, double share) {
  if (samples.empty()) return 0;
  std::ranges::sort(samples);
  return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
}

using Durations = std::map<std::string, std::vector<std::int64_t>>;  // of each call, in microseconds

struct QuietClient : BrokerTest {
  explicit QuietClient(bool lend = false, std::vector<std::string> more = {})
      : BrokerTest({.simulate = "2x1GiB", .config = config(lend), .arguments = std::move(more)}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    seed_ = static_cast<unsigned>(setting("GPUMEM_HOSTILE_SEED", std::random_device{}()));
    quiet_ = client_with(kHeld, test_user(10'001));
    EXPECT_TRUE(succeeded(quiet_->write("a", kPattern)));
    EXPECT_TRUE(succeeded(quiet_->open("calls")));
  }

  /// The quiet client calls at a steady pace for `length`; `meanwhile` happens in each round.
  template <class Meanwhile>
  Durations calls(milliseconds length, Meanwhile&& meanwhile) {
    Durations all;
    for (auto left = length; left > milliseconds(0) && !HasFailure(); left -= kRound) {
      quiet_->tell({{"do", "paced"}, {"slice", "calls"}, {"for_ms", kRound.count()}, {"every_us", 5000}});
      meanwhile();
      const Json answer = quiet_->answer();
      EXPECT_TRUE(succeeded(answer));
      if (!answer.contains("us")) break;
      EXPECT_TRUE(answer.at("refused").empty()) << answer.at("refused");
      for (const auto& [call, times] : answer.at("us").items())
        for (const std::int64_t one : times) all[call].push_back(one);
    }
    return all;
  }

  void live_beside_hostile_clients(seconds length) {
    length = seconds(setting("GPUMEM_HOSTILE_SECONDS", static_cast<std::uint64_t>(length.count())));
    SCOPED_TRACE("GPUMEM_HOSTILE_SEED=" + std::to_string(seed_));
    std::cout << "seed " << seed_ << std::endl;
    RecordProperty("seed", std::to_string(seed_));
    calls(milliseconds(500), [] {});  // connections are made, the stock of extents is as it will be
    const auto alone = calls(length / 4, [] {});
    const std::uint64_t resident = resident_bytes(broker_.pid());
    Crowd crowd(
        {.runtime_folder = broker_.folder(),
         .accounts = {{test_user(10'002), "bob"}, {test_user(10'003), "cat"}, {test_user(10'004), "eve"}},
         .seed = seed_,
         .nice = static_cast<int>(setting("GPUMEM_HOSTILE_NICE", 0)),
         .log = folder_ / "crowd"});
    const auto stir = [&] { crowd.stir(); };
    const auto beside = calls(length, stir);
    // On a slow machine they may not have come to everything yet.
    for (int i = 0; i < kMoreRounds && crowd.acts().size() < kActs; ++i) calls(kRound, stir);
    crowd.end();
    report(alone, beside, crowd);
    const std::uint64_t kib = resident_bytes(broker_.pid()) / 1024;
    std::cout << "  the broker has " << kib << " KiB of memory, before " << resident / 1024 << std::endl;
    RecordProperty("resident_grown_kib", std::to_string(kib - std::min(kib, resident / 1024)));
    EXPECT_TRUE(quiet_->child().running());
    EXPECT_TRUE(succeeded(quiet_->check("a", kPattern)));
    expect_quiet_client_alone();
    EXPECT_EQ(quiet_->leave(), 0);
    expect_rest();
  }

  void report(const Durations& alone, const Durations& beside, const Crowd& crowd) {
    const auto acts = crowd.acts();
    EXPECT_EQ(acts.size(), kActs) << testing::PrintToString(acts);
    for (const auto& [act, times] : acts) std::cout << "  " << times << " x " << act << "\n";
    std::cout << "  " << crowd.suspended() << " x suspended, " << crowd.killed() << " x killed and replaced, "
              << crowd.ended_by_broker() << " x ended by the broker and replaced\n";
    for (const auto& [call, times] : alone) {
      tell(call + "_alone", times);
      if (beside.contains(call)) tell(call + "_beside", beside.at(call));
    }
  }
  void tell(const std::string& what, const std::vector<std::int64_t>& times) {
    std::cout << "  " << what << ", " << times.size() << " calls:";
    for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}}) {
      const std::int64_t us = quantile(times, share);
      std::cout << " " << name << " " << us << " us";
      RecordProperty(what + "_" + name + "_us", std::to_string(us));
    }
    std::cout << std::endl;
  }

  /// Nothing is charged but to the quiet client, and the driver sees the same.
  void expect_quiet_client_alone() {
    EXPECT_TRUE(succeeded(quiet_->shrink("calls", {})));
    // All at once: a look that was under way when the others ended may still charge them for a moment.
    EXPECT_TRUE(eventually([&] { return other_charges().empty(); })) << other_charges();
    BrokerProcess::DriverView seen, expected;
    EXPECT_TRUE(eventually([&] {  // a process's context goes a moment after the process
      const v1::DeviceStatus device = broker_.device();
      const auto outside = device.outside();
      expected = {device.pool() + outside, {}};  // the broker has no context, and is not named
      if (outside != 0) expected.processes[quiet_->pid()] = outside;
      seen = broker_.driver_view();
      return seen.used == expected.used && seen.processes == expected.processes;
    })) << "the driver says "
        << seen.used << " " << testing::PrintToString(seen.processes) << ", the ledger " << expected.used
        << " " << testing::PrintToString(expected.processes);
  }
  /// Charges to tenants other than the quiet client's, in words.
  std::string other_charges() const {
    std::string words;
    for (const char* name : {"bob", "cat", "eve"}) {
      const v1::TenantUsage usage = broker_.tenant(name);
      if (usage.charged() != 0 || usage.waiting() != 0 || usage.sessions() != 0)
        words += usage.ShortDebugString() + "; ";
    }
    const v1::GetStatusResponse status = broker_.status();
    const v1::DeviceStatus& device = status.devices(0);
    const bool settled =
        device.offered() + device.returning() + device.quarantined() + device.missing() == 0 &&
        device.warm() == device.free() && device.waiting() == 0 && status.sessions() == 1 &&
        device.pool() - device.free() == kHeld.count &&
        broker_.tenant("ann").charged() == kHeld.count + device.outside();
    if (!settled) words += device.ShortDebugString();
    const v1::DeviceStatus& second = status.devices(1);  // of which the quiet client has nothing
    const bool idle = second.free() == second.pool() && second.waiting() + second.outside() == 0;
    return idle ? words : words + second.ShortDebugString();
  }

  TemporaryFolder folder_;
  unsigned seed_ = 0;
  std::unique_ptr<ClientProcess> quiet_;
};

struct QuietClientOnOldKernel : QuietClient {
  QuietClientOnOldKernel() : QuietClient(false, {"--without-pass-rights"}) {}
};
struct QuietClientWhoseGuaranteeIsLent : QuietClient {
  QuietClientWhoseGuaranteeIsLent() : QuietClient(true) {}
};
struct LongQuietClient : QuietClient {};
struct LongQuietClientOnOldKernel : QuietClientOnOldKernel {};
struct LongQuietClientWhoseGuaranteeIsLent : QuietClientWhoseGuaranteeIsLent {};

TEST_F(QuietClient, IsServedBesideTenHostileClients) { live_beside_hostile_clients(seconds(4)); }
TEST_F(QuietClientOnOldKernel, IsServedBesideTenHostileClients) { live_beside_hostile_clients(seconds(4)); }
TEST_F(QuietClientWhoseGuaranteeIsLent, IsServedBesideTenHostileClients) {
  live_beside_hostile_clients(seconds(4));
}
TEST_F(LongQuietClient, IsServedBesideTenHostileClients) { live_beside_hostile_clients(seconds(60)); }
TEST_F(LongQuietClientOnOldKernel, IsServedBesideTenHostileClients) {
  live_beside_hostile_clients(seconds(60));
}
TEST_F(LongQuietClientWhoseGuaranteeIsLent, IsServedBesideTenHostileClients) {
  live_beside_hostile_clients(seconds(60));
}

}  // namespace
}  // namespace gpumem::test
