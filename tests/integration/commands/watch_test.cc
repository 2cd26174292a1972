// Samples for viewers: one for all of them, and of what waits only what concerns each.
#include <grpcpp/create_channel.h>

#include <algorithm>

#include "base/text/printable.h"
#include "gpumem/v1/broker.grpc.pb.h"
#include "tests/integration/connect_as.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

/// A viewer, spoken by hand.
class TestViewer {
 public:
  explicit TestViewer(const std::shared_ptr<grpc::Channel>& channel) : stub_(v1::Monitor::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + 3 * kPatience);
    reader_ = stub_->Watch(&context_, {});
  }
  /// The next sample, its messages as one; none: the stream is over.
  std::optional<v1::Sample> next() {
    v1::Sample sample, message;
    while (reader_->Read(&message)) {
      sample.MergeFrom(message);
      if (message.last()) return sample;
    }
    return std::nullopt;
  }
  /// Reads until a sample is as wanted.
  template <class IsWanted>
  bool reads(IsWanted is_wanted) {
    for (auto sample = next(); sample; sample = next())
      if (is_wanted(*sample)) return true;
    return false;
  }
  grpc::Status rest() {
    while (next()) {
    }
    return reader_->Finish();
  }
  void cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::Monitor::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Sample>> reader_;
};

struct Watch : BrokerTest {
  explicit Watch(const std::string& config = shared()) : BrokerTest({.config = config}) {}

  long resident_mib() const {
    const std::string status = read_file("/proc/" + std::to_string(broker_.pid()) + "/status");
    return std::stol(status.substr(status.find("VmRSS:") + 6)) / 1024;
  }
  std::shared_ptr<grpc::Channel> connect() { return connect_to_api(broker_.folder()); }
  std::shared_ptr<grpc::Channel> connect_as(const User& user) {
    return test::connect_as(broker_.folder(), user);
  }
};

TEST_F(Watch, TellsTheExtentsOfASessionBySize) {
  auto client = client_with(mebibytes(42));
  TestViewer viewer(connect());
  EXPECT_TRUE(viewer.reads([](const v1::Sample& sample) {
    std::uint64_t bytes = 0;
    for (const v1::SessionInfo& session : sample.sessions())
      for (const v1::SessionMemory& memory : session.memory())
        for (const v1::ExtentCount& extents : memory.extents()) bytes += extents.size() * extents.count();
    return bytes == mebibytes(42).count;
  }));
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Watch, BeginsWithAllThatTheListingsShow) {
  auto client = client_with(mebibytes(12));
  TestViewer viewer(connect());
  const auto sample = viewer.next();
  ASSERT_TRUE(sample);
  EXPECT_TRUE(sample->whole());
  ASSERT_EQ(sample->devices_size(), 1);
  EXPECT_EQ(sample->devices(0).status().active(), mebibytes(12).count);
  EXPECT_EQ(sample->devices(0).temperature(), 35U) << "as the simulated management library says";
  EXPECT_EQ(sample->devices(0).utilization(), 0U);
  ASSERT_EQ(sample->sessions_size(), 1);
  EXPECT_EQ(sample->sessions(0).pid(), client->pid());
  ASSERT_EQ(sample->sessions(0).slices_size(), 1);
  EXPECT_EQ(sample->sessions(0).slices(0).charged(), mebibytes(12).count);
  EXPECT_EQ(sample->tenants(0).charged(), mebibytes(12).count);
}

TEST_F(Watch, GoesOnWithWhatHasChangedAndWhatIsGone) {
  auto still = client_with(mebibytes(4));
  auto client = client_with(mebibytes(12));
  TestViewer viewer(connect());
  const auto first = viewer.next();
  ASSERT_TRUE(first);
  ASSERT_EQ(first->sessions_size(), 2);
  const std::uint64_t id = first->sessions(1).id();
  EXPECT_TRUE(succeeded(client->grow("a", mebibytes(20))));
  EXPECT_TRUE(viewer.reads([&](const v1::Sample& sample) {
    EXPECT_FALSE(sample.whole());
    if (sample.sessions().empty()) return false;
    EXPECT_EQ(sample.sessions_size(), 1) << "the other has not changed";
    return sample.sessions(0).id() == id && sample.sessions(0).slices(0).charged() == mebibytes(20).count;
  }));
  EXPECT_EQ(client->leave(), 0);
  EXPECT_TRUE(viewer.reads(
      [&](const v1::Sample& sample) { return std::ranges::count(sample.gone_sessions(), id) == 1; }));
  viewer.cancel();
  EXPECT_EQ(still->leave(), 0);
}

TEST_F(Watch, KeepsNothingOfViewersThatComeAndGo) {
  constexpr int kTries = 1000, kPlaces = 16, kMostMiB = 8;
  const auto channel = connect();
  const auto come_and_go = [&] {
    for (int i = 0; i < kTries; ++i) {
      TestViewer viewer(channel);
      std::this_thread::sleep_for(std::chrono::microseconds(10 * (i % 50)));
      viewer.cancel();
      viewer.rest();
    }
  };
  come_and_go();
  const long before = resident_mib();
  come_and_go();
  EXPECT_LE(resident_mib(), before + kMostMiB);
  EXPECT_TRUE(eventually([&] {
    std::vector<std::unique_ptr<TestViewer>> viewers;
    for (int i = 0; i < kPlaces; ++i) viewers.push_back(std::make_unique<TestViewer>(channel));
    return std::ranges::all_of(viewers, [](const auto& one) { return one->next().has_value(); });
  }));
}

TEST_F(Watch, ShowsAllViewersTheSameSample) {
  TestViewer one(connect()), other(connect());
  const auto first = one.next();
  const auto second = other.next();
  ASSERT_TRUE(first && second);
  const std::uint64_t number = std::max(first->number(), second->number()) + 1;
  std::string times[2];
  for (const auto& [viewer, time] : {std::pair{&one, &times[0]}, std::pair{&other, &times[1]}}) {
    EXPECT_TRUE(viewer->reads([&, time = time](const v1::Sample& sample) {
      *time = sample.time();
      return sample.number() == number;
    }));
  }
  EXPECT_EQ(times[0], times[1]);
}

TEST_F(Watch, MakesNoSamplesWhileNobodyWatches) {
  auto holder = client_with(kPool);
  std::uint64_t last = 0;
  {
    TestViewer viewer(connect());
    const auto sample = viewer.next();
    ASSERT_TRUE(sample);
    last = sample->number();
  }
  auto waiter = client();
  EXPECT_TRUE(failed_with(waiter->grow("a", mebibytes(8), std::chrono::seconds(5)), "DEADLINE_EXCEEDED"))
      << "time has passed";
  TestViewer next(connect());
  const auto sample = next.next();
  ASSERT_TRUE(sample);
  EXPECT_LE(sample->number(), last + 2) << "one may have been under way when the viewer left";
  EXPECT_TRUE(sample->whole());
  expect_to_leave(*waiter, *holder);
}

TEST_F(Watch, TellsOfWaitingRequestsOnlyTheirTenantAndAdministrators) {
  GPUMEM_NEEDS_ROOT();
  auto holder = client_with(kPool - mebibytes(4), kAnn);
  auto waiter = client({}, kBob);
  waiter->begin_to_grow("a", mebibytes(64), std::chrono::minutes(10));
  await_waiters(1);
  struct Case {
    std::shared_ptr<grpc::Channel> channel;
    int lines;
  };
  for (const Case& one : {Case{connect(), 1}, Case{connect_as(kBob), 1}, Case{connect_as(kAnn), 0},
                          Case{connect_as(kCat), 0}}) {
    TestViewer viewer(one.channel);
    const auto sample = viewer.next();
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->waiting_size(), one.lines);
    if (one.lines != 0) {
      EXPECT_EQ(sample->waiting(0).reason(), v1::Denial::REASON_NO_MEMORY);
      EXPECT_EQ(sample->waiting(0).asked(), mebibytes(64).count);
    }
    const auto bob = std::ranges::find(sample->tenants(), "uid:10002", &v1::TenantUsage::tenant);
    ASSERT_NE(bob, sample->tenants().end());
    EXPECT_EQ(bob->waiting(), 1U) << "how many wait is for everybody";
    EXPECT_EQ(sample->sessions_size(), 2) << "so are the sessions";
  }
  EXPECT_EQ(holder->leave(), 0);
  EXPECT_TRUE(succeeded(waiter->answer()));
  EXPECT_EQ(waiter->leave(), 0);
}

// Every user of these tests is an administrator until the reload.
struct FormerAdministratorsWatch : Watch {
  FormerAdministratorsWatch() : Watch(shared("admin_group = 10000\n")) {}
};

TEST_F(FormerAdministratorsWatch, ShowsNoRequestsOfOthersAnyMore) {
  GPUMEM_NEEDS_ROOT();
  auto holder = client_with(kPool - mebibytes(4), kAnn);
  auto waiter = client({}, kBob);
  waiter->begin_to_grow("a", mebibytes(64), std::chrono::minutes(10));
  await_waiters(1);
  TestViewer viewer(connect_as(kCat));
  const auto before = viewer.next();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->waiting_size(), 1);
  broker_.reload(shared());
  EXPECT_TRUE(viewer.reads([](const v1::Sample& one) { return one.waiting_size() == 0; }));
  const auto after = viewer.next();
  ASSERT_TRUE(after);
  EXPECT_EQ(after->waiting_size() + after->asked_back_size(), 0);
  EXPECT_EQ(holder->leave(), 0);
  EXPECT_TRUE(succeeded(waiter->answer()));
  EXPECT_EQ(waiter->leave(), 0);
}

TEST_F(Watch, AreSoManyForAUser) {
  std::vector<std::unique_ptr<TestViewer>> viewers;
  for (int i = 0; i < 16; ++i) viewers.push_back(std::make_unique<TestViewer>(connect()));
  for (const auto& viewer : viewers) ASSERT_TRUE(viewer->next());
  EXPECT_EQ(TestViewer(connect()).rest().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  viewers.front()->cancel();
  EXPECT_EQ(viewers.front()->rest().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return TestViewer(connect()).next().has_value(); }))
      << "a place is free again";
  for (const auto& viewer : viewers) viewer->cancel();
}

TEST_F(Watch, EndsWithTheBroker) {
  TestViewer viewer(connect());
  ASSERT_TRUE(viewer.next());
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_EQ(viewer.rest().error_code(), grpc::StatusCode::UNAVAILABLE);
}

/// A broker with so much to show that a viewer that does not read holds its first sample up.
struct SlowWatch : Watch {
  static constexpr int kSessions = 64, kSlices = 64;
  void SetUp() override {
    for (int i = 0; i < kSessions; ++i) {
      all_.push_back(std::make_unique<SessionStream>(channel_));
      all_.back()->open(std::string(kLabelBytes, 'x'));
      for (int slice = 0; slice < kSlices; ++slice) all_.back()->open_slice();
    }
  }
  void TearDown() override {
    for (auto& one : all_) one->cancel();
  }
  // A connection of its own, which takes in little that nobody has asked for.
  std::shared_ptr<grpc::Channel> connect_slowly() {
    grpc::ChannelArguments little;
    little.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    little.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    little.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
    return grpc::CreateCustomChannel("unix:" + broker_.folder() + "/" + kApiSocketName,
                                     grpc::InsecureChannelCredentials(), little);
  }

  std::shared_ptr<grpc::Channel> channel_ = connect();
  std::vector<std::unique_ptr<SessionStream>> all_;
};

TEST_F(SlowWatch, GetsTheNextWholeSampleInsteadOfABacklog) {
  TestViewer slow(connect_slowly()), prompt(connect());
  const auto begin = prompt.next();
  ASSERT_TRUE(begin);
  ASSERT_TRUE(prompt.reads([&](const v1::Sample& one) { return one.number() >= begin->number() + 3; }));
  const auto first = slow.next(), second = slow.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->sessions_size(), kSessions);
  EXPECT_GT(second->number(), first->number() + 1) << "those between are missed";
  EXPECT_TRUE(second->whole());
  EXPECT_EQ(second->sessions_size(), kSessions);
}

TEST_F(SlowWatch, IsCutOffWhereNobodyReads) {
  TestViewer slow(connect_slowly()), prompt(connect());
  const auto begin = prompt.next();
  ASSERT_TRUE(begin);
  ASSERT_TRUE(prompt.reads([&](const v1::Sample& one) { return one.number() >= begin->number() + 13; }));
  EXPECT_EQ(slow.rest().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace gpumem::test
