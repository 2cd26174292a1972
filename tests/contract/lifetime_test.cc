// Memory lives as long as its last reference, in any process: a handle, a descriptor, a mapping.
#include "tests/contract/fixture.h"

namespace gpumem::contract {
namespace {

using Lifetime = DriverTest;

TEST_F(Lifetime, EndsWithTheHandleWhereThereIsNothingElse) {
  Process process([this](Channel& channel) {
    { const cuda::Allocation one = allocate(unit_); }
    channel.signal();
    channel.await();
  });
  process.channel().await();
  expect_used(0);
  process.channel().signal();
  process.join();
}

TEST_F(Lifetime, IsKeptByAHandle) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate(unit_);
    exported(one).reset();
    map(one);
    channel.signal();
    channel.await();
  });
  process.channel().await();
  expect_used(unit_.count);
}

TEST_F(Lifetime, IsKeptByAMapping) {
  Process process([this](Channel& channel) {
    Mapped mapped = map(allocate(unit_));
    fill(mapped.range.base(), unit_, 6);
    channel.signal();
    channel.await();
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 6));
    mapped.mapping = {};
    channel.signal();
    channel.await();
  });
  process.channel().await();
  expect_used(unit_.count);
  process.channel().signal();
  process.channel().await();
  expect_used(0);
  process.channel().signal();
  process.join();
}

TEST_F(Lifetime, IsKeptByADescriptorInAProcessThatNeverStartedADriver) {
  UniqueFd descriptor;
  {
    Process process([this](Channel& channel) {
      const cuda::Allocation one = allocate(unit_);
      const Mapped mapped = map(one);
      fill(mapped.range.base(), unit_, 42);
      channel.send(exported(one).get());
    });
    descriptor = process.channel().receive();
    process.join();
  }
  expect_used(unit_.count);
  in_process([&] {
    const Mapped mapped = map(import(descriptor, unit_));
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 42));
  });
  expect_used(unit_.count);
  descriptor.reset();
  expect_used(0);
}

TEST_F(Lifetime, GoesOnInAnImporterWhenTheExporterIsKilled) {
  Process exporter([this](Channel& channel) {
    const cuda::Allocation one = allocate(unit_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), unit_, 8);
    channel.send(exported(one).get());
    channel.await();
  });
  Process importer([this](Channel& channel) {
    Mapped mapped;
    {
      const UniqueFd descriptor = channel.receive();
      mapped = map(import(descriptor, unit_));
    }
    channel.signal();
    channel.await();
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 8));
  });
  importer.channel().send(exporter.channel().receive().get());
  importer.channel().await();
  exporter.kill();
  expect_used(unit_.count);
  importer.channel().signal();
  importer.join();
  expect_used(0);
}

TEST_F(Lifetime, EndsWithAKilledProcessWhateverItHeld) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate({4 * unit_.count}), two = allocate(unit_);
    const UniqueFd descriptor = exported(one);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), one.size(), 1);
    channel.signal();
    channel.await();
  });
  process.channel().await();
  EXPECT_GE(used(), 5 * unit_.count);
  process.kill();
  expect_used(0);
}

TEST_F(Lifetime, OfADescriptorOnItsWayIsKeptUntilItIsDropped) {
  Process process([this](Channel& channel) { channel.send(exported(allocate(unit_)).get()); });
  process.join();  // nobody has received yet
  expect_used(unit_.count);
  process.channel().receive().reset();
  expect_used(0);
}

}  // namespace
}  // namespace gpumem::contract
