// Brokers die at every step by which a service manager keeps descriptors of what is lent: nothing is lost,
// nothing is lent twice, and nobody is handed memory of another.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "base/crash_points.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/survive/stand_in_manager.h"

namespace gpumem::test {
namespace {

constexpr Bytes kSmallPool = mebibytes(56), kLent = mebibytes(48);
constexpr uid_t kLender = 10'001, kOther = 10'002;

// The rest of the device is too small to prove anything.
constexpr const char* kConfig = R"([broker]
reserve = "all-but 8MiB"
socket_group = 10000
context_overhead = "0B"
)";

std::vector<std::string> store_plans() {
  std::vector<std::string> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    if (!entry.name.starts_with("broker.store.")) continue;
    plans.emplace_back(entry.name);
    if (entry.can_fail) plans.push_back(std::string(entry.name) + "=fail");
  }
  return plans;
}

// A service manager, its broker, and a client that has memory of which the manager keeps descriptors.
class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "several tenants are several users: only root can start them";
  }

  void start(std::string plan, const std::string& machine = "1x64MiB", const std::string& more = {}) {
    plan_ = std::move(plan);
    broker_ = std::make_unique<BrokerProcess>(BrokerOptions{.simulate = machine,
                                                            .config = kConfig + more,
                                                            .program = manager_.program(),
                                                            .environment = environment(),
                                                            .may_end = true});
    mend();
  }
  std::unique_ptr<ClientProcess> client(uid_t user) {
    auto one = std::make_unique<ClientProcess>(broker_->folder(), ClientOptions{.user = test_user(user)});
    // A broker that dies as planned leaves whoever connects just then without one, until the next is there.
    EXPECT_TRUE(come_to([&] {
      return static_cast<bool>(insist(*one, {{"do", "connect"}, {"label", "test"}, {"timeout_ms", 60'000}}));
    }));
    EXPECT_TRUE(insist(*one, {{"do", "open"}, {"slice", "a"}, {"limit", 0}, {"device", ""}}));
    return one;
  }
  testing::AssertionResult grow(ClientProcess& client, Bytes target) {
    return insist(client, {{"do", "grow"}, {"slice", "a"}, {"target", target.count}, {"wait_ms", 60'000}});
  }
  /// The client's memory is `bytes`, all of which the manager keeps, unless the plan comes in between.
  void lend(ClientProcess& client, Bytes bytes, int value) {
    EXPECT_TRUE(grow(client, bytes));
    EXPECT_TRUE(insist(client, {{"do", "write"}, {"slice", "a"}, {"value", value}}));
    EXPECT_TRUE(come_to([&] { return manager_.bytes() == bytes || has_come_true(); }));
  }
  /// Starts a broker when there is none any more: the last one has died as planned.
  void mend() {
    while (!broker_->running()) start_next();
  }
  void start_next() {
    manager_.prepare();
    broker_->start_again_in(environment());
    manager_.release();
  }
  void restart() {
    broker_->kill();
    start_next();
    mend();
  }
  /// Has `client` do it; a broker that dies meanwhile is replaced.
  testing::AssertionResult insist(ClientProcess& client, const Json& command) {
    client.tell(command);
    EXPECT_TRUE(eventually([&] {
      mend();
      return client.has_answer(std::chrono::milliseconds(0));
    }));
    return succeeded(client.answer());
  }
  bool has_come_true() const {
    return !plan_.empty() && broker_->log().find("GPUMEM_CRASH_POINT: " + plan_.substr(0, plan_.find('='))) !=
                                 std::string::npos;
  }
  bool come_to(const std::function<bool()>& state) {
    return eventually([&] {
      mend();
      return state();
    });
  }
  bool is_at_rest() { return broker_->running() && broker_->at_rest(); }

  StandInManager manager_;
  std::unique_ptr<BrokerProcess> broker_;

 private:
  std::vector<std::pair<std::string, std::string>> environment() const {
    std::vector<std::pair<std::string, std::string>> all{manager_.environment()};
    if (!plan_.empty() && (broker_ == nullptr || !has_come_true()))
      all.emplace_back("GPUMEM_CRASH_POINT", plan_);
    return all;
  }
  std::string plan_;
};

struct StorePoints : StoreTest, testing::WithParamInterface<std::string> {
  // Memory whose descriptor is kept can still be shared, with its old content. Sharing other memory is
  // refused.
  void check_shared(ClientProcess& lender, int value) {
    auto mate = client(kLender);
    const Json handle = lender.ask({{"do", "export"}, {"slice", "a"}});
    if (handle.at("ok").get<bool>()) {
      EXPECT_TRUE(succeeded(mate->ask({{"do", "import"}, {"import", "i"}, {"handle", handle.at("handle")}})));
      EXPECT_TRUE(succeeded(mate->ask({{"do", "check"}, {"import", "i"}, {"value", value}})));
      EXPECT_TRUE(succeeded(mate->ask({{"do", "close_import"}, {"import", "i"}})));
    } else {
      EXPECT_TRUE(failed_with(handle, "FAILED_PRECONDITION"));
      EXPECT_TRUE(GetParam().starts_with("broker.store.ke")) << "only what the manager was not given";
    }
    EXPECT_EQ(mate->leave(), 0);
  }
};

std::string store_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == '='; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Alone, StorePoints, testing::ValuesIn(store_plans()), store_test_name);

TEST_P(StorePoints, CostNobodyAnything) {
  start(GetParam());
  auto lender = client(kLender);
  lend(*lender, kLent, 5);
  restart();
  EXPECT_TRUE(insist(*lender, {{"do", "ping"}}));
  check_shared(*lender, 5);
  EXPECT_TRUE(insist(*lender, {{"do", "check"}, {"slice", "a"}, {"value", 5}}));
  EXPECT_TRUE(insist(*lender, {{"do", "shrink"}, {"slice", "a"}, {"target", 0}}));
  auto other = client(kOther);
  EXPECT_TRUE(grow(*other, kSmallPool)) << "all of it comes back";
  EXPECT_TRUE(insist(*other, {{"do", "check"}, {"slice", "a"}, {"value", 0}})) << "and is nobody's";
  EXPECT_TRUE(come_to([&] { return has_come_true(); }));
  EXPECT_EQ(other->leave(), 0);
  EXPECT_EQ(lender->leave(), 0);
  EXPECT_TRUE(come_to([&] { return is_at_rest(); })) << broker_->unrest();
  EXPECT_EQ(broker_->used_of_driver(), broker_->device().pool());
  EXPECT_TRUE(come_to([&] { return manager_.names().empty(); })) << *manager_.names().begin();
}

// The manager hands the next broker what it kept for one whose journal is lost. Lease numbers would begin
// anew: a descriptor that is still kept would name other memory, of another tenant.
TEST_F(StoreTest, NumbersOfKeptDescriptorsAreNotGivenToOtherMemory) {
  start({});
  auto lender = client(kLender);
  lend(*lender, kLent, 5);
  const std::set<std::string> before = manager_.names();
  broker_->kill();
  lender->kill();
  write_file(broker_->folder() + "/private/journal", "no journal");
  start_next();
  EXPECT_TRUE(eventually([&] { return manager_.names().empty(); })) << "nobody knows these leases";
  auto other = client(kOther);
  lend(*other, Bytes{broker_->device().pool()}, 6);  // what the manager left when that broker started
  for (const std::string& name : manager_.names()) EXPECT_FALSE(before.contains(name)) << name;
  EXPECT_EQ(other->leave(), 0);
  EXPECT_TRUE(eventually([&] { return is_at_rest() && manager_.names().empty(); })) << broker_->unrest();
}

// A user takes every place that the manager has, one small extent after the other.
TEST_F(StoreTest, OfAKeptRegionIsNotLostToTheNumberOfAnothersExtents) {
  constexpr std::size_t kPlaces = 2000;
  constexpr rlim_t kFiles = 8192;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::max(files.rlim_cur, kFiles);
  files.rlim_max = std::max(files.rlim_max, kFiles);
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0)
    GTEST_SKIP() << "this user may not open " << kFiles << " files";
  start({}, "1x4608MiB");
  auto taker = client(kOther);
  for (std::size_t i = 1; i <= kPlaces + 50; ++i) ASSERT_TRUE(grow(*taker, mebibytes(2 * i)));
  ASSERT_TRUE(come_to([&] { return manager_.names().size() == kPlaces; })) << manager_.names().size();
  const std::set<std::string> before = manager_.names();
  auto publisher = client(kLender);
  ASSERT_TRUE(grow(*publisher, mebibytes(2)));
  EXPECT_TRUE(insist(*publisher, {{"do", "publish"}, {"slice", "a"}, {"region", "weights"}, {"keep", true}}));
  const auto is_new = [&](const std::string& name) { return !before.contains(name); };
  EXPECT_TRUE(come_to([&] { return std::ranges::any_of(manager_.names(), is_new); }));
  EXPECT_LE(manager_.names().size(), kPlaces);
  EXPECT_EQ(publisher->leave(), 0);
  restart();
  auto reader = client(kLender);
  EXPECT_TRUE(insist(*reader, {{"do", "map_region"}, {"region", "weights"}}));
}

// Files of the host store that a process keeps beyond its session.
TEST_F(StoreTest, OfReturnedHostMemoryIsKeptUntilNobodyHasIt) {
  constexpr std::uint64_t kHost = 1;  // its place behind the one device
  start({}, "1x64MiB", "[host]\nsize = \"64MiB\"\n");
  std::vector<UniqueFd> files;
  {
    FrameLane lane(broker_->folder());
    lane.greet();
    const auto slice = lane.ask(lane::OpenSlice{kHost, 0, {}, 0}).as<lane::SliceOpened>().slice;
    ASSERT_TRUE(lane.ask(lane.growth(slice, mebibytes(16), kPatience)).is(lane::Kind::kWaiting))
        << "it is made on demand";
    auto answer = lane.receive();
    lane.send(lane::Accept{answer.as<lane::Granted>().grant});
    files = std::move(answer.descriptors);
  }
  const auto kept = [&] { return broker_->device(kHost).quarantined(); };
  ASSERT_TRUE(eventually([&] { return kept() >= mebibytes(16).count; }));
  ASSERT_TRUE(eventually([&] { return manager_.names().size() == files.size(); }));
  restart();
  EXPECT_GE(kept(), mebibytes(16).count) << "it is the charge of its tenant still";
  EXPECT_EQ(manager_.names().size(), files.size());
  files.clear();
  EXPECT_TRUE(eventually([&] { return kept() == 0 && manager_.names().empty(); })) << kept();
}

// Written down and not answered: the library asks the next broker, under the same number.
TEST_F(StoreTest, OfAPublicationThatWasNotAnsweredIsPublishedOnce) {
  start("broker.region.published");
  auto lender = client(kLender);
  lend(*lender, kLent, 5);
  ASSERT_TRUE(insist(*lender, {{"do", "publish"}, {"slice", "a"}, {"region", "weights"}}));
  EXPECT_TRUE(has_come_true());
  EXPECT_TRUE(insist(*lender, {{"do", "remove_region"}, {"region", "weights"}}));
  EXPECT_TRUE(failed_with(lender->ask({{"do", "remove_region"}, {"region", "weights"}}), "NOT_FOUND"));
  EXPECT_EQ(lender->leave(), 0);
  EXPECT_TRUE(come_to([&] { return is_at_rest(); })) << broker_->unrest();
}

}  // namespace
}  // namespace gpumem::test
