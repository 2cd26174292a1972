// Objects of the program's that graphs keep alive. Their destruction is waited for, since it comes later.
#include <cuda.h>

#include <atomic>
#include <semaphore>

#include "tests/sim/graphs/graph_support.h"

namespace gpumem::sim::test {
namespace {

class UserObjects : public SimTest {};

/// Tells when it is destroyed.
struct Counted {
  std::atomic<int> destroyed = 0;
  std::counting_semaphore<> done{0};

  static void destroy(void* self) {
    auto& counted = *static_cast<Counted*>(self);
    ++counted.destroyed;
    counted.done.release();
  }
  CUuserObject create(unsigned references) {
    CUuserObject object = nullptr;
    EXPECT_CU(cuUserObjectCreate(&object, this, &destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
  }
};

TEST_IN_CONTEXT(UserObjects, LiveAsLongAsTheProgramRefersToThem) {
  Counted counted;
  const CUuserObject object = counted.create(2);
  EXPECT_CU(cuUserObjectRetain(object, 1));
  EXPECT_CU(cuUserObjectRelease(object, 2));
  EXPECT_EQ(cuUserObjectRelease(object, 2), CUDA_ERROR_INVALID_VALUE) << "only one is left";
  EXPECT_EQ(counted.destroyed, 0);
  EXPECT_CU(cuUserObjectRelease(object, 1));
  counted.done.acquire();
  EXPECT_EQ(cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);
  CUuserObject none = nullptr;
  EXPECT_EQ(cuUserObjectCreate(&none, nullptr, &Counted::destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(UserObjects, LiveAsLongAsAGraphOrACopyOfItDoes) {
  Counted counted;
  const CUuserObject object = counted.create(2);
  const CUgraph graph = create_graph();
  EXPECT_CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_CU(cuGraphRetainUserObject(graph, object, 1, 0));
  EXPECT_CU(cuGraphReleaseUserObject(graph, object, 1));
  EXPECT_EQ(cuGraphReleaseUserObject(graph, object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuUserObjectRelease(object, 1));
  EXPECT_EQ(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE) << "the other one has moved";
  CUgraph clone = nullptr;
  EXPECT_CU(cuGraphClone(&clone, graph));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(counted.destroyed, 0);
  EXPECT_CU(cuGraphDestroy(clone));
  counted.done.acquire();
  EXPECT_EQ(counted.destroyed, 1);
}

TEST_IN_CONTEXT(UserObjects, LiveUntilTheLatestLaunchIsDone) {
  Counted counted;
  const CUgraph graph = create_graph();
  EXPECT_CU(cuGraphRetainUserObject(graph, counted.create(1), 1, CU_GRAPH_USER_OBJECT_MOVE));
  const CUgraphExec exec = instantiate(graph);
  EXPECT_CU(cuGraphDestroy(graph));
  const CUstream stream = stream_apart();
  Barrier barrier;
  barrier.put_in(stream);
  EXPECT_CU(cuGraphLaunch(exec, stream));
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(counted.destroyed, 0);
  barrier.open();
  counted.done.acquire();
  EXPECT_CU(cuStreamQuery(stream));
}

}  // namespace
}  // namespace gpumem::sim::test
