// The reconciler against a simulated machine, and what the kernel says of processes.
#include "daemon/host/driver/reconciler.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "cuda/memory.h"
#include "daemon/host/system/process.h"
#include "sim/machine/machine.h"
#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/no_executor.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr core::Asker kAdmin{0, true};

/// A core whose thread is whichever posts.
class OpenGate final : public test::NoExecutor {
 public:
  explicit OpenGate(core::Policy policy) : broker_(std::move(policy)) {}

  void post(Work work) override {
    const MutexLock lock(mutex_);
    work(broker_, std::chrono::steady_clock::now());
  }
  void after(std::function<void()> done) override { done(); }
  core::Reconciliation view() {
    const MutexLock lock(mutex_);
    return broker_.reconciliation(0);
  }

 private:
  Mutex mutex_;
  core::Broker broker_;
};

class ReconcilerTest : public testing::Test {
 protected:
  // One for all: a process keeps the library of the machine that it has opened first.
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder();
    EXPECT_TRUE(sim::create_machine(folder(), "1x64MiB", test::sim_libraries()));
  }
  static void TearDownTestSuite() {
    static_cast<void>(sim::remove_machine(folder()));
    delete std::exchange(folder_, nullptr);
  }
  ReconcilerTest() {
    const auto machine = sim::load_machine(folder());
    uuid_ = {machine.value().device_uuid(0)};
    core::Policy policy;
    policy.devices = {{.uuid = cuda::to_string(uuid_),
                       .name = "Simulated",
                       .total = mebibytes(64),
                       .pool = mebibytes(32),
                       .granularity = mebibytes(2)}};
    policy.others = {{{{}, mebibytes(32)}}};
    policy.past_broker.allowance = mebibytes(4);
    executor_ = std::make_unique<OpenGate>(std::move(policy));
  }

  static std::string folder() { return (*folder_ / "machine").string(); }
  std::unique_ptr<test::Child> holder(Bytes bytes) const {
    test::ChildOptions child;
    child.program = test::test_client_program();
    child.arguments = {"hold", folder(), std::to_string(bytes.count)};
    return std::make_unique<test::Child>(child);
  }
  core::Reconciliation look(Reconciler& reconciler) {
    std::promise<void> looked;
    EXPECT_TRUE(reconciler.look(kAdmin, [&](core::Broker&, core::TimePoint) { looked.set_value(); }));
    EXPECT_EQ(looked.get_future().wait_for(test::kPatience), std::future_status::ready);
    return executor_->view();
  }

  static inline test::TemporaryFolder* folder_ = nullptr;
  cuda::DeviceUuid uuid_;
  std::unique_ptr<OpenGate> executor_;
};

TEST_F(ReconcilerTest, NamesProcessesWithMemoryAndTheirTenants) {
  Reconciler reconciler(*executor_, {.driver_folder = folder(), .devices = {uuid_}, .period = {}});
  const auto child = holder(mebibytes(8));
  core::Reconciliation view;
  // First comes its context.
  EXPECT_TRUE(test::eventually([&] {
    view = look(reconciler);
    return !view.processes.empty() && view.processes[0].bytes > mebibytes(8);
  }));
  ASSERT_THAT(view.processes, SizeIs(1));
  EXPECT_EQ(view.processes[0].pid, child->pid());
  EXPECT_EQ(view.processes[0].uid, ::geteuid());
  EXPECT_EQ(view.processes[0].command, "test_client");
  EXPECT_EQ(view.processes[0].tenant, "uid:" + std::to_string(::geteuid()));
  EXPECT_EQ(view.used, view.processes[0].bytes);
  child->kill();
  EXPECT_THAT(look(reconciler).processes, IsEmpty());
}

TEST_F(ReconcilerTest, LeavesItsOwnProcessOut) {
  auto driver = cuda::Driver::open(folder());
  ASSERT_TRUE(driver);
  auto own = cuda::Allocation::create(**driver, 0, mebibytes(16));
  ASSERT_TRUE(own);
  Reconciler reconciler(*executor_, {.driver_folder = folder(), .devices = {uuid_}, .period = {}});
  const core::Reconciliation view = look(reconciler);
  EXPECT_EQ(view.used, mebibytes(16));
  EXPECT_THAT(view.processes, IsEmpty());
}

TEST_F(ReconcilerTest, LooksByItselfEverySoOften) {
  const Reconciler reconciler(
      *executor_, {.driver_folder = folder(), .devices = {uuid_}, .period = std::chrono::seconds(1)});
  EXPECT_TRUE(test::eventually([&] { return executor_->view().seen.has_value(); }));
}

TEST_F(ReconcilerTest, SaysWhyNothingIsSeen) {
  Reconciler without(*executor_, {.driver_folder = "/nowhere", .devices = {uuid_}, .period = {}});
  EXPECT_THAT(look(without).problem, HasSubstr("libnvidia-ml"));
  Reconciler stranger(*executor_, {.driver_folder = folder(), .devices = {cuda::DeviceUuid{}}, .period = {}});
  EXPECT_THAT(look(stranger).problem, HasSubstr("nvmlDeviceGetHandleByUUID"));
}

TEST_F(ReconcilerTest, EndsWhileItIsAsked) {
  Reconciler reconciler(*executor_, {.driver_folder = folder(), .devices = {uuid_}, .period = {}});
  for (int i = 0; i < 100; ++i)
    static_cast<void>(reconciler.look(kAdmin, [](core::Broker&, core::TimePoint) {}));
}

TEST(ProcessFacts, AreTheKernels) {
  const auto self = find_process(::getpid());
  ASSERT_TRUE(self) << self.error().message;
  EXPECT_EQ(self->uid, ::geteuid());
  ASSERT_FALSE(self->gids.empty());
  EXPECT_EQ(self->gids[0], ::getegid());
  EXPECT_EQ(self->started, start_time(::getpid()).value());
  EXPECT_EQ(self->command, command_of(::getpid()));
  EXPECT_FALSE(self->command.empty());
}

TEST(ProcessFacts, OfOneThatIsGoneAreNotFound) {
  test::ChildOptions child;
  child.program = "/bin/sleep";
  child.arguments = {"1000"};
  test::Child process(child);
  EXPECT_TRUE(find_process(process.pid()));
  const pid_t pid = process.pid();
  process.kill();
  EXPECT_EQ(find_process(pid).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::host
