// Memory lives as long as its last reference, in any process: a handle, a descriptor, a mapping.
#include <unistd.h>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Lifetime = DriverTest;

TEST_F(Lifetime, EndsWithTheHandleWhereThereIsNothingElse) {
  Process process([this](Channel& channel) {
    { const cuda::Allocation one = allocate(block_); }
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_F(Lifetime, IsKeptByAHandle) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate(block_);
    exported(one).reset();
    map(one);
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(block_.count);
}

TEST_F(Lifetime, IsKeptByAMapping) {
  Process process([this](Channel& channel) {
    Mapped mapped = map(allocate(block_));
    fill(mapped.range.base(), block_, 6);
    channel.signal_and_await();
    EXPECT_TRUE(holds(mapped.range.base(), block_, 6));
    mapped.mapping = {};
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(block_.count);
  process.channel().signal_and_await();
  expect_used(0);
  process.signal_and_join();
}

TEST_F(Lifetime, IsKeptByADescriptorInAProcessThatNeverStartedADriver) {
  UniqueFd descriptor;
  {
    Process process([this](Channel& channel) {
      const cuda::Allocation one = allocate(block_);
      const Mapped mapped = map(one);
      fill(mapped.range.base(), block_, 42);
      channel.send(exported(one).get());
    });
    descriptor = process.channel().receive();
    process.join();
  }
  expect_used(block_.count);
  in_process([&] {
    const Mapped mapped = map(import(descriptor, block_));
    EXPECT_TRUE(holds(mapped.range.base(), block_, 42));
  });
  expect_used(block_.count);
  descriptor.reset();
  expect_used(0);
}

TEST_F(Lifetime, GoesOnInAnImporterWhenTheExporterIsKilled) {
  Process exporter([this](Channel& channel) {
    const cuda::Allocation one = allocate(block_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), block_, 8);
    channel.send(exported(one).get());
    channel.await();
  });
  Process importer([this](Channel& channel) {
    Mapped mapped;
    {
      const UniqueFd descriptor = channel.receive();
      mapped = map(import(descriptor, block_));
    }
    channel.signal_and_await();
    EXPECT_TRUE(holds(mapped.range.base(), block_, 8));
  });
  importer.channel().send(exporter.channel().receive().get());
  importer.channel().await();
  exporter.kill();
  expect_used(block_.count);
  importer.signal_and_join();
  expect_used(0);
}

TEST_F(Lifetime, EndsWithAKilledProcessWhateverItHeld) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate({4 * block_.count}), two = allocate(block_);
    const UniqueFd descriptor = exported(one);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), one.size(), 1);
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used_at_least(5 * block_.count);
  process.kill();
  expect_used(0);
}

TEST_F(Lifetime, EndsWithAProgramThatBecomesAnotherWhateverItHeld) {
  Process process([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    const cuda::Allocation one = allocate({4 * block_.count}), two = allocate(block_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), one.size(), 1);
    channel.signal_and_await();
    ::execl("/bin/sleep", "sleep", "100", nullptr);
    ADD_FAILURE() << "there is no such program";
  });
  process.channel().await();
  expect_used_at_least(5 * block_.count);
  process.channel().signal();
  expect_used(0);
}

TEST_F(Lifetime, OfADescriptorOnItsWayIsKeptUntilItIsDropped) {
  Process process([this](Channel& channel) { channel.send(exported(allocate(block_)).get()); });
  process.join();  // nobody has received yet
  expect_used(block_.count);
  process.channel().receive().reset();
  expect_used(0);
}

TEST_F(Lifetime, OfADescriptorInFlightOutlivesItsKilledSender) {
  Process process([this](Channel& channel) {
    channel.send(exported(allocate(block_)).get());
    channel.await();
  });
  Process witness([](Channel&) { ::pause(); });
  witness.channel().send(process.channel().receive().get());  // on its way to one that never receives it
  process.kill();
  expect_used(block_.count);
  witness.kill();
  expect_used(0);
}

TEST_F(Lifetime, GoesOnInTheExporterWhenAnImporterIsKilled) {
  Process exporter([this](Channel& channel) {
    const cuda::Allocation one = allocate(block_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), block_, 3);
    channel.send(exported(one).get());
    channel.await();
    EXPECT_TRUE(holds(mapped.range.base(), block_, 4)) << "what the importer wrote before it was killed";
  });
  Process importer([this](Channel& channel) {
    const Mapped mapped = map(import(channel.receive(), block_));
    EXPECT_TRUE(holds(mapped.range.base(), block_, 3));
    fill(mapped.range.base(), block_, 4);
    channel.signal_and_await();
  });
  importer.channel().send(exporter.channel().receive().get());
  importer.channel().await();
  importer.kill();
  expect_used(block_.count);
  exporter.signal_and_join();
  expect_used(0);
}

TEST_F(Lifetime, IsKeptByAMappingAloneAfterItsExporterIsKilled) {
  Process exporter([this](Channel& channel) {
    channel.send(exported(allocate(block_)).get());
    channel.await();
  });
  Process importer([this](Channel& channel) {
    Mapped mapped;
    {
      const UniqueFd descriptor = channel.receive();
      mapped = map(import(descriptor, block_));
    }
    channel.signal_and_await();
    fill(mapped.range.base(), block_, 5);
    EXPECT_TRUE(holds(mapped.range.base(), block_, 5));
    mapped.mapping = {};
    channel.signal_and_await();
  });
  {
    const UniqueFd descriptor = exporter.channel().receive();
    importer.channel().send(descriptor.get());
  }
  importer.channel().await();
  exporter.kill();
  expect_used(block_.count);
  importer.channel().signal_and_await();
  expect_used(0);
  importer.signal_and_join();
}

TEST_F(Lifetime, IsKeptByAnImportedHandleAlone) {
  Process exporter([this](Channel& channel) { channel.send(exported(allocate(block_)).get()); });
  Process importer([this](Channel& channel) {
    std::optional<cuda::Allocation> handle;
    {
      const UniqueFd descriptor = channel.receive();
      handle.emplace(import(descriptor, block_));
    }
    channel.signal_and_await();
    handle.reset();
    channel.signal_and_await();
  });
  importer.channel().send(exporter.channel().receive().get());
  importer.channel().await();
  exporter.join();
  expect_used(block_.count);
  importer.channel().signal_and_await();
  expect_used(0);
  importer.signal_and_join();
}

}  // namespace
}  // namespace gpumem::contract
