// Bad calls get an error that is documented, and change nothing.
#include <atomic>
#include <barrier>
#include <set>
#include <utility>

#include "tests/support/in_child.h"
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct Misuse : EngineTest {
  Misuse() : EngineTest({.limit = gibibytes(1)}) {}
  void expect_refused(Address at, Bytes bytes, const char* what) {
    EXPECT_FALSE(engine_->try_deallocate(at, bytes, kOne)) << what;
    EXPECT_TRUE(failed_with(engine_->deallocate(at, bytes, kOne), Code::kInvalidArgument)) << what;
  }
};

struct MisuseOfSizes : Misuse, testing::WithParamInterface<std::uint64_t> {};

TEST_P(MisuseOfSizes, BlockIsNotFreedTwice) {
  const Bytes bytes{GetParam()};
  const Address at = allocate(bytes), other = allocate(bytes);
  free(at, bytes);
  expect_refused(at, bytes, "at once");
  expect_refused(at, kUnknownSize, "of unknown size");
  free(other, bytes);
  expect_refused(at, bytes, "after its neighbour");
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  expect_refused(at, bytes, "when nothing is mapped there any more");
  EXPECT_EQ(statistics().in_use, Bytes{});
}

TEST_P(MisuseOfSizes, BlockIsNotFreedByAnAddressInItOrBesideIt) {
  const Bytes bytes{GetParam()};
  const Address at = allocate(bytes);
  for (const std::uint64_t off : {1ULL, 8ULL, 255ULL, 256ULL, 512ULL, 1024ULL, 16'384ULL, 1ULL << 21}) {
    if (off < bytes.count) expect_refused(at + off, bytes, "in it");
    if (off < bytes.count) expect_refused(at + off, kUnknownSize, "in it, of unknown size");
    expect_refused(at - off, bytes, "before it");
    expect_refused(at - off, kUnknownSize, "before it, of unknown size");
  }
  expect_refused(at + snapshot().at(0).placed.count, kUnknownSize, "behind it");
  EXPECT_EQ(statistics().in_use, bytes);
  free(at, bytes);
}

TEST_P(MisuseOfSizes, BlockIsNotFreedWithAnotherSize) {
  const Bytes bytes{GetParam()};
  const Address at = allocate(bytes);
  for (const std::uint64_t other :
       {bytes.count - 1, bytes.count + 1, bytes.count + 256, bytes.count * 2, 0UL}) {
    expect_refused(at, {other}, "another size");
  }
  expect_refused(at, {bytes.count | 1ULL << 40}, "a huge size");
  expect_refused(at, {bytes.count + (1ULL << 32)}, "the same in its lower half");
  EXPECT_EQ(statistics().in_use, bytes);
  free(at, bytes);
}

TEST_P(MisuseOfSizes, BlockFreedByTwoThreadsAtOnceServesOnce) {
  const Bytes bytes{GetParam()};
  constexpr int kRounds = 300;
  std::barrier meeting(2);
  std::atomic<Address> at{0};
  std::atomic<int> freed{0};
  const auto race = [&](bool takes) {
    for (int i = 0; i < kRounds; ++i) {
      if (takes) at = allocate(bytes);
      meeting.arrive_and_wait();
      if ((i % 3 == 0 && engine_->try_deallocate(at, bytes, kOne)) ||
          engine_->deallocate(at, bytes, kOne).has_value()) {
        ++freed;
      }
      meeting.arrive_and_wait();
    }
  };
  std::thread other([&] { race(false); });
  race(true);
  other.join();
  EXPECT_GE(freed, kRounds) << "at the same moment both may be told so";
  EXPECT_EQ(statistics().in_use, Bytes{});
  EXPECT_TRUE(snapshot().empty());
  const auto all = allocate_many(200, bytes);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size()) << "nobody has what another one has";
}

INSTANTIATE_TEST_SUITE_P(Sizes, MisuseOfSizes,
                         testing::Values(1, 256, 3000, 20'000, 1'000'000, (3 << 20) + 5));

TEST_F(Misuse, BlockThatIsFreedWhileItIsExtendedIsNotExtended) {
  const Address before = allocate(mebibytes(2)), at = allocate(mebibytes(2));
  bool freed = false;
  backing_.on_obtain([&](const Backing::Request&) {
    if (std::exchange(freed, true)) return;
    free(before, mebibytes(2));
    free(at, mebibytes(2));
  });
  EXPECT_TRUE(failed_with(engine_->extend(at, mebibytes(2), mebibytes(8), kOne), Code::kAborted));
  backing_.on_obtain({});
  EXPECT_TRUE(freed);
  EXPECT_TRUE(snapshot().empty());
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(Misuse, ForeignAddressesAreRefused) {
  const Address mine = allocate({1000});
  int on_stack = 0;
  for (const Address at :
       {Address{0}, Address{1}, reinterpret_cast<Address>(&on_stack), backing_.properties().base - 256,
        backing_.properties().base + backing_.properties().addresses.count, ~Address{0}, ~Address{255},
        backing_.properties().base + backing_.properties().addresses.count - 256}) {
    expect_refused(at, {1000}, "foreign");
    expect_refused(at, kUnknownSize, "foreign, of unknown size");
  }
  free(mine, {1000});
}

TEST_F(Misuse, BlockOfAnotherAllocatorIsRefused) {
  FakeBacking elsewhere({.limit = mebibytes(256), .host_memory = true});
  FakeStreams streams;
  Engine other(borrow(elsewhere), borrow(streams), options_);
  const auto at = other.allocate({1000}, kOne);
  ASSERT_TRUE(at.has_value());
  expect_refused(*at, {1000}, "another's");
  EXPECT_TRUE(other.deallocate(*at, {1000}, kOne).has_value());
}

TEST_F(Misuse, ZeroAndMoreThanTheLimitAreRefused) {
  for (const Bytes bytes : {Bytes{0}, gibibytes(1) + Bytes{1}, Bytes{1ULL << 40}, Bytes{1ULL << 63},
                            Bytes{~0ULL}, Bytes{~0ULL - 255}}) {
    EXPECT_EQ(engine_->try_allocate(bytes, kOne), 0U);
    const Code code = bytes.is_zero() ? Code::kInvalidArgument : Code::kResourceExhausted;
    EXPECT_TRUE(failed_with(engine_->allocate(bytes, kOne), code)) << to_string(bytes);
  }
  EXPECT_EQ(backing_.calls(FakeBacking::Call::kObtain), 0U);
  const Address at = allocate({1000});
  EXPECT_TRUE(failed_with(engine_->extend(at, {1000}, {~0ULL}, kOne), Code::kResourceExhausted));
  EXPECT_TRUE(failed_with(engine_->extend(at, {1000}, {0}, kOne), Code::kInvalidArgument));
  free(at, {1000});
}

TEST_F(Misuse, HugeRoomIsRefusedNotWrappedRound) {
  for (const Bytes room : {Bytes{~0ULL}, Bytes{~0ULL - 100}, Bytes{1ULL << 62}}) {
    const auto got = engine_->allocate({1000}, kOne, {.room = room});
    EXPECT_TRUE(failed_with(got, Code::kInvalidArgument) || failed_with(got, Code::kResourceExhausted));
  }
}

/// Every call of an engine answers `code`, and the fast ways nothing.
bool every_call_fails_with(Engine& engine, Code code, Address at) {
  int asked = 0;
  const auto failed = [code, &asked](const auto& result) {
    ++asked;
    if (!result && result.error().code == code) return true;
    std::fprintf(stderr, "call %d %s\n", asked, result ? "succeeded" : to_string(result.error()).c_str());
    return false;
  };
  return engine.try_allocate({1000}, kOne) == 0 && !engine.try_deallocate(at, {1000}, kOne) &&
         failed(engine.allocate({1000}, kOne)) && failed(engine.deallocate(at, {1000}, kOne)) &&
         failed(engine.extend(at, {1000}, {2000}, kOne)) && failed(engine.release_stream(kOne)) &&
         failed(engine.trim({1})) && failed(engine.tag("name")) && failed(engine.statistics()) &&
         failed(engine.snapshot()) && failed(engine.close());
}

TEST_F(Misuse, EveryCallAfterCloseIsRefused) {
  const Address at = allocate({1000});
  free(at, {1000});
  ASSERT_TRUE(succeeded(engine_->close()));
  EXPECT_TRUE(every_call_fails_with(*engine_, Code::kFailedPrecondition, at));
  EXPECT_EQ(engine_->surplus(), Bytes{});
  engine_->background_tick(now_);
}

TEST_F(Misuse, ForkedChildIsRefusedEveryCallAndChangesNothing) {
  const Address at = allocate({1000});
  const Address large = allocate(mebibytes(5));
  free(large, mebibytes(5));
  EXPECT_TRUE(gpumem::test::in_child([&] {
    const auto calls = backing_.calls();
    if (!every_call_fails_with(*engine_, Code::kFailedPrecondition, at)) return false;
    return backing_.calls() == calls && !backing_.committed().is_zero();
  }));
  free(at, {1000});
  EXPECT_TRUE(succeeded(engine_->close()));
}

TEST_F(Misuse, ChildForkedWhileThreadsAllocateDoesNotHang) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child forked from several threads";
#endif
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, &ends] {
      while (!ends) {
        const Bytes bytes{1000 + i * 400'000};
        free(allocate(bytes, stream(i + 1)), bytes, stream(i + 1));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(gpumem::test::in_child(
        [&] { return every_call_fails_with(*engine_, Code::kFailedPrecondition, 0); }));
  }
  ends = true;
  for (auto& thread : threads) thread.join();
}

TEST_F(Misuse, EngineAfterAnotherHandsOutNothingOfTheOthers) {
  for (int i = 0; i < 5; ++i) {
    FakeBacking backing({.limit = mebibytes(64), .host_memory = true});
    FakeStreams streams;
    Engine engine(borrow(backing), borrow(streams), options_);
    EXPECT_EQ(engine.try_allocate({1000}, kOne), 0U) << "nothing is cached in a new one";
    const auto at = engine.allocate({1000}, kOne);
    ASSERT_TRUE(at.has_value());
    EXPECT_EQ(backing.mapped_at(*at, {1000}).size(), 1U);
    EXPECT_TRUE(engine.deallocate(*at, {1000}, kOne).has_value());
  }
}

TEST_F(Misuse, ManyEnginesAtATimeAllServe) {
  std::vector<std::unique_ptr<FakeBacking>> backings;
  std::vector<std::unique_ptr<FakeStreams>> streams;
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < 300; ++i) {
    backings.push_back(std::make_unique<FakeBacking>(FakeBackingOptions{.limit = mebibytes(64)}));
    streams.push_back(std::make_unique<FakeStreams>());
    engines.push_back(std::make_unique<Engine>(borrow(*backings.back()), borrow(*streams.back()), options_));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < engines.size(); ++i) {
      const auto at = engines[i]->allocate({1000 + i}, kOne);
      ASSERT_TRUE(at.has_value()) << i;
      EXPECT_EQ(backings[i]->mapped_at(*at, {1000}).size(), 1U);
      EXPECT_TRUE(engines[i]->deallocate(*at, {1000 + i}, kOne).has_value());
    }
  }
}

TEST_F(Misuse, ClosedWhileItWaitsForTheDevice) {
  const Address at = allocate(mebibytes(4), kOne);
  streams_.give(kOne);
  free(at, mebibytes(4), kOne);
  bool is_first = true;
  streams_.on_wait([&] {
    if (std::exchange(is_first, false)) {
      EXPECT_TRUE(engine_->close(false).has_value());
    }
    streams_.finish_all();
  });
  (void)engine_->trim(kAll);
  EXPECT_FALSE(is_first);
  EXPECT_TRUE(failed_with(engine_->allocate({1}, kOne), Code::kFailedPrecondition));
}

TEST_F(Misuse, ClosedWhileOthersTrim) {
  for (int round = 0; round < 20; ++round) {
    FakeBacking backing({.limit = mebibytes(64)});
    FakeStreams streams;
    Engine engine(borrow(backing), borrow(streams), {.background_task = false});
    std::atomic<bool> closed{false};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 1; t <= 3; ++t) {
      threads.emplace_back([&, t] {
        while (!closed) {
          if (const auto at = engine.allocate(mebibytes(2), stream(t))) {
            streams.give(stream(t));
            (void)engine.deallocate(*at, mebibytes(2), stream(t));
            streams.finish_all();
          }
          (void)engine.trim(kAll);
        }
      });
    }
    for (int i = 0; i < 10 * round; ++i) std::this_thread::yield();
    EXPECT_TRUE(engine.close(false).has_value());
    closed = true;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(backing.committed(), Bytes{});
    EXPECT_EQ(streams.marks(), 0U);
  }
}

TEST_F(Misuse, SixtyFourThreadsAtShutdownAreServedOrRefused) {
  for (int round = 0; round < 5; ++round) {
    FakeBacking backing({.limit = mebibytes(256)});
    FakeStreams streams;
    Engine engine(borrow(backing), borrow(streams), {.idle = milliseconds(5)});
    std::atomic<int> strange{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 64; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < 400; ++i) {
          const Bytes bytes{1 + (t * 31 + i * 977) % 300'000};
          Address at = engine.try_allocate(bytes, stream(t % 8 + 1));
          if (at == 0) {
            const auto got = engine.allocate(bytes, stream(t % 8 + 1));
            if (!got && got.error().code != Code::kFailedPrecondition) ++strange;
            if (!got) continue;
            at = *got;
          }
          if (!engine.deallocate(at, bytes, stream(t % 8 + 1))) ++strange;
        }
      });
    }
    while (!engine.close()) std::this_thread::yield();
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(strange, 0);
    EXPECT_TRUE(failed_with(engine.allocate({1}, kOne), Code::kFailedPrecondition));
    EXPECT_EQ(backing.committed(), Bytes{});
  }
}

}  // namespace
}  // namespace gpumem::allocator::test
