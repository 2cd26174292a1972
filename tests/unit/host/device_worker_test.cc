#include "daemon/host/driver/device_worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "daemon/host/driver/driver_source.h"
#include "sim/control/costs.h"
#include "sim/machine/machine.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using core::Job;
using Turn = core::Job::Turn;
using namespace std::chrono_literals;

/// A machine with a device of 64 MiB, on which each creation takes 20 ms: its driver and management library.
struct Slow {
  const cuda::Driver& driver;
  const cuda::Nvml& nvml;
};
Slow slow_machine() {
  struct Made {
    Made() {
      EXPECT_TRUE(sim::create_machine(folder.path(), "1x64MiB", SIM_LIBRARIES));
      EXPECT_TRUE(sim::set_costs(*sim::load_machine(folder.path()), {{"cuMemCreate", 20ms, {}}}));
      driver = *cuda::Driver::open(folder.path());
      nvml = *cuda::Nvml::open(folder.path());
    }
    ~Made() { (void)sim::remove_machine(folder.path()); }
    gpumem::test::TemporaryFolder folder;
    const cuda::Driver* driver = nullptr;
    std::unique_ptr<cuda::Nvml> nvml;
  };
  static const Made kMade;
  return {*kMade.driver, *kMade.nvml};
}

/// A worker that takes so long for a step that what is given to it meanwhile comes before its job's end.
class DeviceWorkerTest : public testing::Test {
 protected:
  /// A job of so many steps, each of which creates an extent of `size`.
  DriverJob creates(std::uint64_t id, Turn turn, std::size_t steps, Bytes size = mebibytes(2)) {
    DriverJob job{{core::JobId{id}, 0, turn, {}}, {}};
    for (std::size_t i = 0; i < steps; ++i) {
      job.job.steps.push_back({{}, {{ids_.next(), size}}});
      job.destroy.emplace_back();
    }
    return job;
  }
  /// A job that proves that memory of the leases is free, of which it destroys the first extents.
  DriverJob proves(std::uint64_t id, const std::vector<LeaseId>& leases, std::vector<HeldExtent> extents) {
    DriverJob job{{core::JobId{id}, 0, Turn::kInOrder, {}}, {}};
    for (std::size_t i = 0; i < leases.size(); ++i) {
      Job::Step& step = job.job.steps.emplace_back(Job::Step{.destroy = {}, .create = {}});
      step.proof = {leases[i], mebibytes(8), true};
      job.destroy.emplace_back();
      if (i < extents.size()) job.destroy.back().push_back(std::move(extents[i]));
    }
    return job;
  }
  /// A job that proves together that all memory of `extents` is free.
  DriverJob proves_together(std::uint64_t id, std::vector<HeldExtent> extents) {
    DriverJob job{{core::JobId{id}, 0, Turn::kInOrder, {{}}}, {}};
    Job::Step& step = job.job.steps.front();
    step.create.push_back({ids_.next(), {}});
    for (const HeldExtent& one : extents) {
      step.create.front().size += one.extent.size;
      step.group.push_back({LeaseId{step.group.size()}, {ids_.next(), one.extent.size}});
    }
    job.destroy.push_back(std::move(extents));
    return job;
  }
  void run(std::vector<DriverJob> jobs) {
    worker_->queue(std::move(jobs));
    worker_->wake();
  }
  void run(DriverJob job) {
    std::vector<DriverJob> jobs;
    jobs.push_back(std::move(job));
    run(std::move(jobs));
  }
  /// Of jobs `ids`, the order in which they end; what has failed of them.
  std::vector<std::uint64_t> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 60s, [&] { return ended_.size() >= count; }));
    return ended_;
  }
  std::vector<HeldExtent> take_held() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(held_, {});
  }
  std::optional<Bytes> room() {
    const std::scoped_lock lock(mutex_);
    return room_;
  }
  std::vector<LeaseId> unproved() {
    const std::scoped_lock lock(mutex_);
    return unproved_;
  }
  std::size_t failed() {
    const std::scoped_lock lock(mutex_);
    return failed_;
  }

 private:
  void note(DriverResult result) {
    const std::scoped_lock lock(mutex_);
    ended_.push_back(result.result.id.value);
    failed_ += result.result.failed.size();
    room_ = result.result.room;
    unproved_ = result.result.unproved;
    for (HeldExtent& extent : result.created) held_.push_back(std::move(extent));
    changed_.notify_all();
  }

  IdSource<ExtentId> ids_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> ended_;
  std::vector<HeldExtent> held_;
  std::size_t failed_ = 0;
  std::optional<Bytes> room_;
  std::vector<LeaseId> unproved_;

 protected:
  std::unique_ptr<DeviceWorker> worker_ = std::make_unique<DeviceWorker>(DeviceWorker::Options{
      .source = std::make_unique<DriverSource>(slow_machine().driver, slow_machine().driver.devices().front(),
                                               cuda::HandleTypes::kDescriptor, &slow_machine().nvml),
      .done = [this](DriverResult result) { note(std::move(result)); }});
  // Last: it ends before what it notes in.
};

TEST_F(DeviceWorkerTest, DoesHurriedJobsBetweenTheStepsOfALongJob) {
  run(creates(1, Turn::kInOrder, 20));
  run(creates(2, Turn::kInOrder, 1));
  std::vector<DriverJob> hurried;
  hurried.push_back(creates(3, Turn::kSoon, 1));
  hurried.push_back(creates(4, Turn::kNow, 1));
  run(std::move(hurried));
  EXPECT_EQ(await(4), (std::vector<std::uint64_t>{4, 3, 1, 2}));
  EXPECT_EQ(failed(), 0u);
}

TEST_F(DeviceWorkerTest, HurriesACreationForTheStock) {
  run(creates(1, Turn::kInOrder, 20));
  run(creates(2, Turn::kSoon, 1));
  run(creates(3, Turn::kSoon, 1));
  run(creates(4, Turn::kSoon, 1));
  worker_->hurry(core::JobId{4});
  worker_->hurry(core::JobId{9});
  const auto ended = await(4);
  // The worker may have begun the second job before the fourth was hurried, but never the third.
  EXPECT_LT(std::ranges::find(ended, 4u), std::ranges::find(ended, 3u));
  EXPECT_EQ(ended.back(), 1u);
}

TEST_F(DeviceWorkerTest, FindsNothingInOrderBetweenJobsThatComeAtOnce) {
  run(creates(1, Turn::kInOrder, 1, mebibytes(64)));
  await(1);
  run(creates(2, Turn::kInOrder, 20));
  std::vector<DriverJob> jobs;
  jobs.push_back(creates(3, Turn::kNow, 1, mebibytes(32)));
  jobs.back().destroy.front() = take_held();
  jobs.push_back(creates(4, Turn::kSoon, 1, mebibytes(32)));
  run(std::move(jobs));
  EXPECT_EQ(await(4), (std::vector<std::uint64_t>{1, 3, 4, 2}));
  EXPECT_EQ(failed(), 20u) << "what is destroyed for others does not pass as a proof";
}

TEST_F(DeviceWorkerTest, ReportsAFailureAndGoesOn) {
  run(creates(1, Turn::kInOrder, 3, mebibytes(24)));
  run(creates(2, Turn::kInOrder, 1));
  EXPECT_EQ(await(2), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(failed(), 1u) << "two of 24 MiB are all that fits";
}

TEST_F(DeviceWorkerTest, ProvesByTheUsedBytesOfTheDeviceThatMemoryCameBack) {
  run(creates(1, Turn::kInOrder, 2, mebibytes(8)));
  await(1);
  std::vector<HeldExtent> held = take_held();
  UniqueFd in_use(::dup(held[0].descriptor.get()));  // as a process that keeps the memory has it
  ASSERT_TRUE(in_use.valid());
  run(proves(2, {LeaseId{1}, LeaseId{2}}, std::move(held)));
  await(2);
  EXPECT_EQ(unproved(), std::vector{LeaseId{1}});
  run(proves(3, {LeaseId{1}}, {}));
  await(3);
  EXPECT_EQ(unproved(), std::vector{LeaseId{1}}) << "the other lease's memory is no proof of this one's";
  in_use.reset();
  run(proves(4, {LeaseId{1}}, {}));
  await(4);
  EXPECT_EQ(unproved(), std::vector<LeaseId>{});
}

// What is loose would be the proof of whatever is tried next.
TEST_F(DeviceWorkerTest, LeavesNothingLooseOfAGroupOfWhichAProcessKeepsOne) {
  run(creates(1, Turn::kInOrder, 8, mebibytes(8)));
  await(1);
  std::vector<HeldExtent> held = take_held();
  UniqueFd in_use(::dup(held[3].descriptor.get()));
  ASSERT_TRUE(in_use.valid());
  run(proves_together(2, std::move(held)));
  run(creates(3, Turn::kInOrder, 1));
  await(3);
  EXPECT_EQ(failed(), 3u) << "all together, one of them by itself, and what comes next";
  held = take_held();
  EXPECT_EQ(held.size(), 7u);
  run(proves_together(4, std::move(held)));
  await(4);
  EXPECT_EQ(failed(), 3u);
  EXPECT_EQ(take_held().at(0).extent.size, mebibytes(56));
}

TEST_F(DeviceWorkerTest, CreatesOnlyWhatLeavesEnoughFreeAndTellsTheRoom) {
  DriverJob job = creates(1, Turn::kInOrder, 3, mebibytes(24));
  job.job.steps[2].create.front().size = mebibytes(6);
  for (Job::Step& step : job.job.steps) step.keep_free = mebibytes(30);
  run(std::move(job));
  await(1);
  EXPECT_EQ(failed(), 1u) << "10 MiB were left for the second";
  EXPECT_EQ(room(), mebibytes(4));
  EXPECT_EQ(take_held().size(), 2u);
}

TEST_F(DeviceWorkerTest, EndsBetweenTwoJobs) {
  run(creates(1, Turn::kInOrder, 3));
  run(creates(2, Turn::kNow, 1));
  worker_.reset();
  EXPECT_LE(await(0).size(), 2u);
}

}  // namespace
}  // namespace gpumem::host
