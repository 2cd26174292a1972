// Handles of what was destroyed: the next object gets them, and a call that still names the old one ends the
// process.
#include <cuda.h>

#include <functional>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

CUevent event() {
  CUevent made = nullptr;
  EXPECT_CU(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  return made;
}

class ReusedHandles : public SimTest {};

TEST_IN_CONTEXT(ReusedHandles, AreThoseOfWhatWasDestroyedLast) {
  for (int i = 0; i < 5000; ++i) {
    const CUstream stream = stream_apart();
    const CUevent made = event();
    ASSERT_CU(cuStreamDestroy(stream));
    ASSERT_CU(cuEventDestroy(made));
    const CUstream next = stream_apart();
    const CUevent next_event = event();
    ASSERT_EQ(next, stream);
    ASSERT_EQ(next_event, made);
    ASSERT_CU(cuStreamDestroy(next));
    ASSERT_CU(cuEventDestroy(next_event));
  }
}

TEST_IN_CONTEXT(ReusedHandles, OfAContextAreThoseOfItsStreamsAndEventsToo) {
  CUcontext first = nullptr, second = nullptr;
  const auto create = [](CUcontext* context) {
#if CUDA_VERSION >= 13000
    return cuCtxCreate(context, nullptr, 0, 0);
#else
    return cuCtxCreate(context, 0, 0);
#endif
  };
  ASSERT_CU(create(&first));
  const CUstream stream = stream_apart();
  const CUevent made = event();
  ASSERT_CU(cuCtxDestroy(first));
  ASSERT_CU(create(&second));
  EXPECT_EQ(second, first);
  EXPECT_EQ(stream_apart(), stream);
  EXPECT_EQ(event(), made);
  EXPECT_EQ(cuEventQuery(made), CUDA_SUCCESS) << "of its own work";
}

/// A call that names what was destroyed, and the words of the process's end.
struct Late {
  const char* name;
  std::function<void()> call;
  const char* words;
  friend std::ostream& operator<<(std::ostream& out, const Late& late) { return out << late.name; }
};

CUstream destroyed_stream() {
  const CUstream stream = stream_apart();
  EXPECT_CU(cuStreamDestroy(stream));
  return stream;
}
CUevent destroyed_event() {
  const CUevent made = event();
  EXPECT_CU(cuEventDestroy(made));
  return made;
}

struct CallsThatAreLate : SimTest, testing::WithParamInterface<Late> {};

TEST_P(CallsThatAreLate, EndTheProcess) {
  EXPECT_DEATH(
      {
        enter_primary();
        GetParam().call();
      },
      GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(
    OfDestroyed, CallsThatAreLate,
    testing::Values(
        Late{"stream_query", [] { cuStreamQuery(destroyed_stream()); }, "stream 0x.* was destroyed"},
        Late{"stream_destroy", [] { cuStreamDestroy(destroyed_stream()); }, "stream 0x.* was destroyed"},
        Late{"record", [] { cuEventRecord(event(), destroyed_stream()); }, "stream 0x.* was destroyed"},
        Late{"event_query", [] { cuEventQuery(destroyed_event()); }, "event 0x.* was destroyed"},
        Late{"event_destroy", [] { cuEventDestroy(destroyed_event()); }, "event 0x.* was destroyed"},
        Late{"wait", [] { cuStreamWaitEvent(nullptr, destroyed_event(), 0); }, "event 0x.* was destroyed"},
        Late{"event_of_context",
             [] {
               const CUevent made = event();
               EXPECT_CU(cuDevicePrimaryCtxReset(0));
               enter_primary();
               cuEventQuery(made);
             },
             "event 0x.* was destroyed"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpumem::sim::test
