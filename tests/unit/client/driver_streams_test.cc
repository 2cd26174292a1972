// Marks in streams, on the simulated driver: what is reached when, and what errors mean.
#include "client/slice/driver_streams.h"

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <thread>

#include "cuda/library.h"
#include "cuda/memory.h"
#include "sim/control/faults.h"
#include "tests/support/eventually.h"
#include "tests/support/host_gate.h"
#include "tests/unit/client/fake_broker.h"

namespace gpumem::client::test {
namespace {

using Mark = allocator::StreamPort::Mark;

/// Calls that programs make and the library does not.
struct Calls {
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
  decltype(&::cuCtxDestroy) destroy_context = nullptr;
  decltype(&::cuStreamCreate) create_stream = nullptr;
  decltype(&::cuStreamDestroy) destroy_stream = nullptr;
  decltype(&::cuStreamQuery) query = nullptr;
  decltype(&::cuStreamSynchronize) synchronize = nullptr;
  decltype(&::cuLaunchHostFunc) launch = nullptr;

  Calls() {
    const auto library = cuda::Library::open(simulated_machine(), "libcuda.so.1");
    EXPECT_TRUE(library->bind(create_context, "cuCtxCreate_v2"));
    EXPECT_TRUE(library->bind(destroy_context, "cuCtxDestroy_v2"));
    EXPECT_TRUE(library->bind(create_stream, "cuStreamCreate"));
    EXPECT_TRUE(library->bind(destroy_stream, "cuStreamDestroy_v2"));
    EXPECT_TRUE(library->bind(query, "cuStreamQuery"));
    EXPECT_TRUE(library->bind(synchronize, "cuStreamSynchronize"));
    EXPECT_TRUE(library->bind(launch, "cuLaunchHostFunc"));
  }
};

const Calls& calls() {
  static const Calls kCalls;
  return kCalls;
}

class Stream {
 public:
  Stream() { EXPECT_EQ(calls().create_stream(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS); }
  ~Stream() {
    if (stream_ != nullptr) calls().destroy_stream(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }
  /// The handle of a stream that went with its context.
  CUstream forget() { return std::exchange(stream_, nullptr); }

 private:
  CUstream stream_ = nullptr;
};

/// Holds `stream` up until it is opened.
class Gate : public gpumem::test::HostGate {
 public:
  explicit Gate(CUstream stream) { EXPECT_EQ(calls().launch(stream, &wait, argument()), CUDA_SUCCESS); }
};

/// A context of its own, current on this thread.
class OwnContext {
 public:
  explicit OwnContext(int ordinal = 0) {
    EXPECT_EQ(calls().create_context(&context_, 0, ordinal), CUDA_SUCCESS);
  }
  ~OwnContext() { destroy(); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  void destroy() {
    if (context_ == nullptr) return;
    EXPECT_EQ(calls().destroy_context(std::exchange(context_, nullptr)), CUDA_SUCCESS);
  }

 private:
  CUcontext context_ = nullptr;
};

class DriverStreamsTest : public testing::Test {
 protected:
  DriverStreamsTest() { streams_.emplace(driver_, 0); }
  ~DriverStreamsTest() override {
    heal();
    streams_.reset();
    EXPECT_FALSE(primary_is_active()) << "a context that was retained is released";
  }

  cuda::CurrentContext primary(int ordinal = 0) const {
    auto entered = cuda::CurrentContext::enter(driver_, ordinal);
    EXPECT_TRUE(entered) << to_string(entered.error());
    return std::move(*entered);
  }
  bool primary_is_active() const {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(driver_.api().cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    return active != 0;
  }
  Mark mark(CUstream stream) {
    const auto set = streams_->mark(stream);
    EXPECT_TRUE(set) << to_string(set.error());
    EXPECT_NE(set.value(), Mark{});
    return *set;
  }
  bool reached(Mark mark) { return streams_->ask(mark) == DriverStreams::Progress::kReached; }
  static void inject(const std::string& rule) {
    const auto added = sim::add_fault(sim::load_machine(simulated_machine()).value(), rule);
    ASSERT_TRUE(added) << to_string(added.error());
  }
  /// Calls so far that the only fault in force is for, hit or not.
  static std::uint64_t matches() {
    return sim::faults(sim::load_machine(simulated_machine()).value())->at(0).matches;
  }
  static void heal() { ASSERT_TRUE(sim::clear_faults(sim::load_machine(simulated_machine()).value())); }

  const cuda::Driver& driver_ = **cuda::Driver::open(simulated_machine());
  std::optional<DriverStreams> streams_;
};

TEST_F(DriverStreamsTest, MarkIsReachedWhenTheWorkBeforeItIsDone) {
  const auto entered = primary();
  const Stream stream;
  ASSERT_TRUE(streams_->meet(stream));
  Gate gate(stream);
  const Mark behind = mark(stream);
  EXPECT_FALSE(reached(behind));
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
  EXPECT_TRUE(reached(behind));
  streams_->drop(behind);
}

TEST_F(DriverStreamsTest, MarkIsOfTheWorkOfThatMoment) {
  const auto entered = primary();
  const Stream stream;
  const Mark before = mark(stream);
  const Gate gate(stream);
  EXPECT_TRUE(streams_->wait(before));
  EXPECT_TRUE(reached(before));
}

TEST_F(DriverStreamsTest, WorkThatIsOrderedBehindAMarkWaitsForIt) {
  const auto entered = primary();
  const Stream first, second;
  Gate gate(first);
  const Mark behind = mark(first);
  ASSERT_TRUE(streams_->order(second, behind));
  EXPECT_EQ(calls().query(second), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(calls().synchronize(second), CUDA_SUCCESS);
}

TEST_F(DriverStreamsTest, MarkThatIsDroppedBeforeItIsReachedStillOrders) {
  const auto entered = primary();
  const Stream first, second, third;
  Gate gate(first);
  const Mark behind = mark(first);
  ASSERT_TRUE(streams_->order(second, behind));
  streams_->drop(behind);
  const Mark other = mark(third);
  EXPECT_TRUE(streams_->wait(other));
  EXPECT_EQ(calls().query(second), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(calls().synchronize(second), CUDA_SUCCESS);
}

TEST_F(DriverStreamsTest, EventThatACaptureHasTakenIsNoMark) {
  const auto entered = primary();
  const Stream stream;
  Gate gate(stream);
  const Mark taken = mark(stream);
  for (const char* answer : {"CAPTURED_EVENT", "INVALID_VALUE"}) {
    inject("cuEventQuery fail " + std::string(answer));
    EXPECT_EQ(streams_->ask(taken), DriverStreams::Progress::kLost) << answer;
    EXPECT_EQ(streams_->order(stream, taken).error().code, Code::kFailedPrecondition);
    heal();
  }
  const Mark behind = mark(stream);
  EXPECT_FALSE(reached(behind));
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
  streams_->drop(behind);
}

TEST_F(DriverStreamsTest, EachStreamHasAnIdOfItsOwn) {
  const auto entered = primary();
  const Stream first, second;
  EXPECT_NE(streams_->meet(first).value(), streams_->meet(second).value());
  EXPECT_EQ(streams_->meet(first).value(), streams_->meet(first).value());
  const auto own = streams_->meet(CU_STREAM_PER_THREAD).value();
  std::thread([&] {
    const auto also_entered = primary();
    EXPECT_NE(streams_->meet(CU_STREAM_PER_THREAD).value(), own);
  }).join();
}

TEST_F(DriverStreamsTest, EventsServeAgain) {
  const auto entered = primary();
  const Stream stream;
  inject("cuEventCreate fail UNKNOWN nth 1000");
  for (int round = 0; round < 50; ++round) {
    const Mark first = mark(stream), second = mark(stream);
    streams_->drop(first);
    streams_->drop(second);
  }
  EXPECT_EQ(matches(), 2U);
}

TEST_F(DriverStreamsTest, MarkOfAStreamThatIsMetEntersNoContext) {
  const auto entered = primary();
  const Stream stream;
  ASSERT_TRUE(streams_->meet(stream));
  streams_->drop(streams_->mark_met(stream).value());
  inject("cuCtx* fail UNKNOWN nth 1000");
  Gate gate(stream);
  const Mark behind = streams_->mark_met(stream).value();
  EXPECT_EQ(matches(), 0U);
  EXPECT_FALSE(reached(behind));
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
  EXPECT_TRUE(reached(behind));
}

TEST_F(DriverStreamsTest, StreamThatIsNoneIsNotMet) {
  const auto entered = primary();
  int none = 0;
  const auto met = streams_->meet(&none);
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().code, Code::kInvalidArgument);
}

TEST_F(DriverStreamsTest, MarkIsWaitedForWhileOthersAreSet) {
  const auto entered = primary();
  const Stream held, running;
  Gate gate(held);
  const Mark behind = mark(held);
  std::thread waiting([&] { EXPECT_TRUE(streams_->wait(behind)); });
  std::vector<Mark> marks;
  for (int i = 0; i < 200; ++i) marks.push_back(mark(running));
  for (const Mark one : marks) streams_->drop(one);
  gate.open();
  waiting.join();
}

TEST_F(DriverStreamsTest, DefaultStreamWithoutAContextHasNoWorkAndGetsNoContext) {
  for (const CUstream stream : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    ASSERT_TRUE(streams_->meet(stream));
    const Mark behind = mark(stream);
    EXPECT_TRUE(reached(behind));
    EXPECT_TRUE(streams_->wait(behind));
    EXPECT_TRUE(streams_->order(stream, behind));
    streams_->drop(behind);
  }
  EXPECT_FALSE(primary_is_active());
}

TEST_F(DriverStreamsTest, DefaultStreamIsThatOfThePrimaryContextForThreadsWithoutOne) {
  const auto entered = primary();
  Gate gate(nullptr);
  std::thread([&] {
    ASSERT_TRUE(streams_->meet(nullptr));
    const Mark behind = mark(nullptr);
    EXPECT_FALSE(reached(behind));
    gate.open();
    EXPECT_TRUE(streams_->wait(behind));
  }).join();
}

TEST_F(DriverStreamsTest, PrimaryContextEndsWhenTheProgramGivesItUp) {
  {
    const auto entered = primary();
    std::thread([&] {
      ASSERT_TRUE(streams_->meet(nullptr));
      EXPECT_TRUE(streams_->wait(mark(nullptr)));
    }).join();
  }
  EXPECT_FALSE(primary_is_active());
  EXPECT_TRUE(reached(mark(nullptr))) << "there is no work without a context";
}

TEST_F(DriverStreamsTest, DefaultStreamIsThatOfTheContextItWasMetIn) {
  const OwnContext own;
  ASSERT_TRUE(streams_->meet(nullptr));
  Gate gate(nullptr);
  std::thread([&] {
    const Mark behind = mark(CU_STREAM_LEGACY);
    EXPECT_FALSE(reached(behind));
    gate.open();
    EXPECT_TRUE(streams_->wait(behind));
  }).join();
}

TEST_F(DriverStreamsTest, DefaultStreamOfAnotherDeviceIsNotMeant) {
  const OwnContext other(1);
  const Gate gate(nullptr);
  ASSERT_TRUE(streams_->meet(nullptr));
  EXPECT_TRUE(reached(mark(nullptr)));
}

TEST_F(DriverStreamsTest, PerThreadDefaultStreamIsThatOfTheCallingThread) {
  const auto entered = primary();
  ASSERT_TRUE(streams_->meet(CU_STREAM_PER_THREAD));
  Gate gate(CU_STREAM_PER_THREAD);
  const Mark behind = mark(CU_STREAM_PER_THREAD);
  EXPECT_FALSE(reached(behind));
  std::thread([&] {
    const auto also_entered = primary();
    EXPECT_TRUE(streams_->wait(mark(CU_STREAM_PER_THREAD)));
  }).join();
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
}

TEST_F(DriverStreamsTest, WorkOfAContextThatIsGoneIsGoneWithIt) {
  OwnContext own;
  Stream stream;
  ASSERT_TRUE(streams_->meet(nullptr));
  ASSERT_TRUE(streams_->meet(stream));
  const Mark of_default = mark(nullptr), of_stream = mark(stream);
  streams_->drop(mark(stream));
  own.destroy();
  const CUstream gone = stream.forget();
  EXPECT_TRUE(reached(of_default));
  EXPECT_TRUE(reached(of_stream));
  EXPECT_TRUE(streams_->wait(of_stream));
  EXPECT_TRUE(reached(mark(nullptr)));
  EXPECT_TRUE(reached(mark(gone)));
}

TEST_F(DriverStreamsTest, ContextWithTheHandleOfOneThatIsGoneHasNoneOfItsMarksAndEvents) {
  OwnContext own;
  Stream stream;
  ASSERT_TRUE(streams_->meet(nullptr));
  ASSERT_TRUE(streams_->meet(stream));
  Gate gate(stream);
  const Mark pending = mark(stream), of_default = mark(nullptr);
  streams_->drop(mark(stream));
  gate.open();
  own.destroy();
  const CUstream gone = stream.forget();
  const OwnContext later;
  std::list<Stream> made;  // the simulated driver gives handles out again as soon as their streams have ended
  ASSERT_TRUE(gpumem::test::eventually([&] { return static_cast<CUstream>(made.emplace_back()) == gone; }));
  const Stream& other = made.back();
  EXPECT_TRUE(reached(pending));
  EXPECT_TRUE(reached(of_default));
  EXPECT_TRUE(streams_->wait(pending));
  EXPECT_TRUE(streams_->meet(other));
  EXPECT_TRUE(streams_->order(other, pending));
  Gate closed(other);
  const Mark behind = mark(other);
  EXPECT_FALSE(reached(behind));
  closed.open();
  EXPECT_TRUE(streams_->wait(behind));
}

TEST_F(DriverStreamsTest, DefaultStreamIsFoundAgainWhenItsContextIsGone) {
  OwnContext own;
  ASSERT_TRUE(streams_->meet(nullptr));
  streams_->drop(mark(nullptr));
  own.destroy();
  const auto entered = primary();
  Gate gate(nullptr);
  const Mark behind = mark(nullptr);
  EXPECT_FALSE(reached(behind));
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
}

/// The state of the context of a thread that names streams of another one.
enum class Unusable { kNone, kDestroyed };

class DriverStreamsWithoutAContext : public DriverStreamsTest, public testing::WithParamInterface<Unusable> {
 protected:
  /// Calls `use` in a thread whose current context cannot be used.
  static void in_a_thread(const std::function<void()>& use) {
    std::thread([&] {
      if (GetParam() == Unusable::kDestroyed) {
        OwnContext own;
        std::thread([&] { own.destroy(); }).join();  // the destroyed context stays current in this thread
        use();
      } else {
        use();
      }
    }).join();
  }

  const OwnContext own_;
  const Stream stream_;
};

TEST_P(DriverStreamsWithoutAContext, MarksAreReachedWhenTheWorkIsDone) {
  ASSERT_TRUE(streams_->meet(stream_));
  Gate gate(stream_);
  in_a_thread([&] {
    const Mark behind = mark(stream_);
    EXPECT_FALSE(reached(behind)) << "only the calling thread's context is gone";
    gate.open();
    EXPECT_TRUE(streams_->wait(behind));
  });
}

TEST_P(DriverStreamsWithoutAContext, StreamsAreMet) {
  const Stream other;
  const auto known = streams_->meet(stream_);
  ASSERT_TRUE(known);
  in_a_thread([&] {
    EXPECT_EQ(streams_->meet(stream_).value(), *known);
    EXPECT_NE(streams_->meet(other).value(), *known);
  });
}

TEST_P(DriverStreamsWithoutAContext, StreamThatNobodyHasMetHasNoMark) {
  const Gate gate(stream_);
  in_a_thread([&] { EXPECT_FALSE(streams_->mark(stream_)) << "its work is not known to be over"; });
}

TEST_P(DriverStreamsWithoutAContext, WorkIsOrderedBehindMarks) {
  const Stream later;
  ASSERT_TRUE(streams_->meet(stream_));
  ASSERT_TRUE(streams_->meet(later));
  Gate gate(stream_);
  const Mark behind = mark(stream_);
  in_a_thread([&] { ASSERT_TRUE(streams_->order(later, behind)); });
  EXPECT_EQ(calls().query(later), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(calls().synchronize(later), CUDA_SUCCESS);
}

TEST_P(DriverStreamsWithoutAContext, DefaultStreamIsThatOfAContextThatIsKnown) {
  ASSERT_TRUE(streams_->meet(stream_));
  Gate gate(nullptr);
  in_a_thread([&] {
    const Mark behind = mark(nullptr);
    EXPECT_FALSE(reached(behind));
    gate.open();
    EXPECT_TRUE(streams_->wait(behind));
  });
}

INSTANTIATE_TEST_SUITE_P(Contexts, DriverStreamsWithoutAContext,
                         testing::Values(Unusable::kNone, Unusable::kDestroyed));

/// A stream that was met and marked, and went with its context.
class DriverStreamsOfAContextThatIsGone : public DriverStreamsTest {
 protected:
  DriverStreamsOfAContextThatIsGone() {
    EXPECT_TRUE(streams_->meet(stream_));
    streams_->drop(mark(stream_));
    own_.destroy();
    gone_ = stream_.forget();
  }

  OwnContext own_;
  Stream stream_;
  CUstream gone_ = nullptr;
};

TEST_F(DriverStreamsOfAContextThatIsGone, LeavesItsEventsAlone) {
  inject("cuEventDestroy fail UNKNOWN nth 1000");
  streams_.reset();
  EXPECT_EQ(matches(), 0U) << "their handles may be others' by now";
}

TEST_F(DriverStreamsOfAContextThatIsGone, AsksTheDriverNothingOfItsStreams) {
  inject("cuStreamIsCapturing fail UNKNOWN nth 1000");
  (void)streams_->mark(gone_);
  EXPECT_EQ(matches(), 0U);
}

TEST_F(DriverStreamsTest, WhatCannotBeToldWhileAGraphIsCapturedIsNotReached) {
  const auto entered = primary();
  const Stream stream;
  const Mark behind = mark(stream);
  ASSERT_TRUE(streams_->wait(behind));
  inject("cuEvent* fail STREAM_CAPTURE_UNSUPPORTED");
  EXPECT_FALSE(reached(behind));
  EXPECT_EQ(streams_->wait(behind).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(streams_->mark(stream).error().code, Code::kFailedPrecondition);
  heal();
  inject("cuStreamIsCapturing fail STREAM_CAPTURE_IMPLICIT");
  EXPECT_EQ(streams_->mark(stream).error().code, Code::kFailedPrecondition);
  heal();
  EXPECT_TRUE(reached(behind));
  const Stream other;
  Gate gate(other);
  const Mark ahead = mark(other);
  inject("cuStreamIsCapturing fail STREAM_CAPTURE_IMPLICIT");
  EXPECT_EQ(streams_->order(stream, ahead).error().code, Code::kFailedPrecondition);
}

TEST_F(DriverStreamsTest, ThreadsModeOfCaptureStaysAsItWas) {
  const auto entered = primary();
  const Stream stream;
  const Mark behind = mark(stream);
  EXPECT_TRUE(streams_->wait(behind));
  EXPECT_TRUE(reached(behind));
  EXPECT_TRUE(streams_->order(stream, behind));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  EXPECT_EQ(driver_.api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(DriverStreamsTest, NothingRunsAnyMoreInABrokenContext) {
  const auto entered = primary();
  const Stream stream;
  const Mark behind = mark(stream);
  inject("cuEvent* fail ILLEGAL_ADDRESS");
  EXPECT_TRUE(reached(behind));
  EXPECT_TRUE(streams_->wait(behind));
  EXPECT_TRUE(reached(mark(stream)));
}

TEST_F(DriverStreamsTest, OtherFailuresAreToldAndReachNothing) {
  const auto entered = primary();
  const Stream stream;
  inject("cuEventCreate fail OUT_OF_MEMORY");
  const auto failed = streams_->mark(stream);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
  heal();
  Gate gate(stream);
  const Mark behind = mark(stream);
  inject("cuEventQuery fail UNKNOWN");
  EXPECT_FALSE(reached(behind));
  heal();
  inject("cuStreamWaitEvent fail UNKNOWN");
  EXPECT_EQ(streams_->order(stream, behind).error().code, Code::kInternal);
  heal();
  gate.open();
  EXPECT_TRUE(streams_->wait(behind));
}

}  // namespace
}  // namespace gpumem::client::test
