// Every call of the driver, of the broker and of the streams fails once: the program is told or does not
// notice, nothing is lost, and nothing is used twice.
#include <algorithm>
#include <functional>
#include <random>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct Held {
  Address at;
  Bytes bytes;
  StreamHandle on;
};

/// A fixed program that needs every function: grows, moves extents, orders streams, extends, trims, releases,
/// idles. What fails is left out.
class FixedProgram {
 public:
  FixedProgram(FakeBacking& backing, FakeStreams& streams)
      : streams_(streams), engine_(borrow(backing), borrow(streams), {.background_task = false}) {}

  void run() {
    std::mt19937_64 random(99);
    auto now = std::chrono::steady_clock::now();
    for (int i = 0; i < 400; ++i) {
      const StreamHandle on = stream(random() % 3 + 1);
      const auto what = random() % 100;
      if (what < 55 || held_.empty()) {
        allocate({random() % (1ULL << (8 + random() % 18)) + 1}, on);
      } else if (what < 92) {
        free(random() % held_.size());
      } else if (what < 95) {
        extend(held_[random() % held_.size()]);
      } else if (what < 97) {
        note(engine_.trim(mebibytes(random() % 20)));
      } else if (what < 98) {
        note(engine_.release_stream(on));
      } else {
        engine_.background_tick(now += milliseconds(900));
      }
      streams_.give(on);
      if (i % 10 == 9) streams_.finish(on);
    }
  }
  /// Frees all, and closes. An operation that fails once may fail here, and is then repeated.
  void end() {
    while (!held_.empty()) free(held_.size() - 1);
    auto closed = engine_.close();
    if (!closed) {
      note(closed);
      closed = engine_.close();
      EXPECT_TRUE(closed.has_value() || closed.error().code == Code::kFailedPrecondition);
    }
  }
  std::uint64_t failures() const { return failures_; }

 private:
  template <class T, class E>
  void note(const Result<T, E>& result) {
    if (!result) ++failures_;
  }
  void allocate(Bytes bytes, StreamHandle on) {
    const auto got = engine_.allocate(bytes, on);
    note(got);
    if (!got) return;
    for (const Held& other : held_) {
      EXPECT_TRUE(*got + bytes.count <= other.at || other.at + other.bytes.count <= *got) << "used twice";
    }
    held_.push_back({*got, bytes, on});
  }
  void free(std::size_t which) {
    const Held one = held_[which];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    auto freed = engine_.deallocate(one.at, one.bytes, one.on);
    note(freed);
    if (!freed && freed.error().message.find("made to fail") != std::string::npos) {
      freed = engine_.deallocate(one.at, one.bytes, one.on);  // on a stream that could not be met
    }
    EXPECT_TRUE(succeeded(freed));
  }
  void extend(Held& one) {
    const Bytes to{one.bytes.count * 2};
    const auto extended = engine_.extend(one.at, one.bytes, to, one.on);
    if (extended) one.bytes = to;
  }

  FakeStreams& streams_;
  Engine engine_;
  std::vector<Held> held_;
  std::uint64_t failures_ = 0;
};

/// Runs the program with the k-th call of one function failing, for every k until none failed any more.
void fail_each_call_once(const std::function<void(FakeBacking&, FakeStreams&, std::uint64_t)>& order) {
  std::uint64_t k = 1;
  for (bool came = true; came && !testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE("call " + std::to_string(k));
    FakeBacking backing({.limit = mebibytes(96)});
    FakeStreams streams;
    {
      FixedProgram program(backing, streams);
      order(backing, streams, k);
      program.run();
      came = backing.heal() && streams.heal();
      program.end();
    }
    EXPECT_EQ(backing.committed(), Bytes{});
    EXPECT_EQ(backing.extents(), 0U);
    EXPECT_EQ(streams.marks(), 0U);
  }
  EXPECT_GT(k, 2U) << "nothing was made to fail";
}

struct Failure : testing::TestWithParam<Code> {};

TEST_P(Failure, OfEachObtainIsToldOrAbsorbed) {
  fail_each_call_once([](FakeBacking& backing, FakeStreams&, std::uint64_t k) {
    backing.fail(FakeBacking::Call::kObtain, k, {GetParam(), "made to fail"});
  });
}

TEST_P(Failure, OfEachMapIsToldOrAbsorbed) {
  fail_each_call_once([](FakeBacking& backing, FakeStreams&, std::uint64_t k) {
    backing.fail(FakeBacking::Call::kMap, k, {GetParam(), "made to fail"});
  });
}

TEST_P(Failure, OfEachUnmapIsToldOrAbsorbed) {
  fail_each_call_once([](FakeBacking& backing, FakeStreams&, std::uint64_t k) {
    backing.fail(FakeBacking::Call::kUnmap, k, {GetParam(), "made to fail"});
  });
}

TEST_P(Failure, OfEachCallOfAStreamIsToldOrAbsorbed) {
  for (const FakeStreams::Call call : {FakeStreams::Call::kMeet, FakeStreams::Call::kMark,
                                       FakeStreams::Call::kOrder, FakeStreams::Call::kWait}) {
    SCOPED_TRACE(static_cast<int>(call));
    fail_each_call_once([call](FakeBacking&, FakeStreams& streams, std::uint64_t k) {
      streams.fail(call, k, {GetParam(), "made to fail"});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, Failure,
                         testing::Values(Code::kInternal, Code::kResourceExhausted, Code::kUnavailable),
                         [](const auto& info) { return std::string(code_name(info.param)); });

struct LastingFailure : EngineTest {
  LastingFailure() : EngineTest({.limit = mebibytes(64)}) {}
};

TEST_F(LastingFailure, OfMapIsToldAndWhatWasObtainedGoesBack) {
  backing_.fail(FakeBacking::Call::kMap, 1, {Code::kInternal, "cuMemMap: broken"}, 1000);
  const auto failed = engine_->allocate(mebibytes(8), kOne);
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().message.find("cuMemMap: broken"), std::string::npos) << failed.error().message;
  EXPECT_EQ(statistics().in_use, Bytes{});
  backing_.heal();
  free(allocate(mebibytes(64)), mebibytes(64));
}

TEST_F(LastingFailure, OfUnmapKeepsTheMemoryUsableWhereItIs) {
  const Address at = allocate(mebibytes(32));
  free(at, mebibytes(32));
  backing_.fail(FakeBacking::Call::kUnmap, 1, {Code::kInternal, "cuMemUnmap: broken"}, 1000);
  const auto trimmed = engine_->trim(kAll);
  EXPECT_TRUE(!trimmed || trimmed->is_zero());
  EXPECT_EQ(statistics().committed, mebibytes(32));
  EXPECT_EQ(allocate(mebibytes(32)), at);
  backing_.heal();
  free(at, mebibytes(32));
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(LastingFailure, OfMarksLeavesEachStreamItsOwnMemory) {
  const Address at = allocate(mebibytes(64), kOne);
  streams_.give(kOne);
  streams_.fail(FakeStreams::Call::kMark, 1, {Code::kInternal, "cuEventRecord: broken"}, 1000);
  free(at, mebibytes(64), kOne);
  EXPECT_FALSE(engine_->allocate(mebibytes(64), kTwo).has_value());
  EXPECT_FALSE(engine_->allocate({1000}, kTwo).has_value());
  streams_.heal();
  EXPECT_EQ(allocate(mebibytes(64), kOne), at);
}

TEST_F(LastingFailure, OfUnmapAtCloseIsToldAndCloseCanBeRepeated) {
  free(allocate(mebibytes(32)), mebibytes(32));
  backing_.fail(FakeBacking::Call::kUnmap, 1, {Code::kInternal, "cuMemUnmap: broken"}, 1);
  const auto closed = engine_->close();
  if (!closed) {
    EXPECT_NE(closed.error().code, Code::kFailedPrecondition);
    EXPECT_TRUE(succeeded(engine_->close()));
  }
  EXPECT_EQ(backing_.committed(), Bytes{});
}

}  // namespace
}  // namespace gpumem::allocator::test
