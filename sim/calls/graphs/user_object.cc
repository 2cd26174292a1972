// User objects: what graphs keep alive for the program.
#include <cuda.h>

#include <limits>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"

namespace gpumem::sim {
namespace {

bool is_count(unsigned count) { return count > 0 && count <= std::numeric_limits<int>::max(); }

/// Finds the object for `act(driver, object, number)`.
template <class Act>
CUresult with_object(CUuserObject named, unsigned count, Act act) {
  Call driver;
  if (!driver) return driver.error();
  const auto object = driver->user_objects.find(number(named));
  return object == nullptr || !is_count(count) ? CUDA_ERROR_INVALID_VALUE
                                               : act(driver, object, number(named));
}

}  // namespace

CUresult api::cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned int count,
                                 unsigned int flags) {
  Call driver;
  if (!driver) return driver.error();
  const bool is_valid = out != nullptr && destroy != nullptr && is_count(count);
  if (!is_valid || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  *out = handle<CUuserObject>(driver->user_objects.create(destroy, data, count));
  return CUDA_SUCCESS;
}

CUresult api::cuUserObjectRetain(CUuserObject named, unsigned int count) {
  return with_object(named, count, [&](Call& driver, const auto& object, std::uint64_t number) {
    UserObjects::retain(driver->user_objects.owned(), number, {object, count});
    return CUDA_SUCCESS;
  });
}

CUresult api::cuUserObjectRelease(CUuserObject named, unsigned int count) {
  return with_object(named, count, [&](Call& driver, const auto&, std::uint64_t number) {
    return UserObjects::release(driver->user_objects.owned(), number, count) ? CUDA_SUCCESS
                                                                             : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult api::cuGraphRetainUserObject(CUgraph graph, CUuserObject named, unsigned int count,
                                      unsigned int flags) {
  return with_object(named, count, [&](Call& driver, const auto& object, std::uint64_t number) {
    Graph* const owner = driver->graphs.find(graph);
    if (owner == nullptr || flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
    const bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;
    if (moves && !UserObjects::release(driver->user_objects.owned(), number, count))
      return CUDA_ERROR_INVALID_VALUE;
    UserObjects::retain(owner->objects, number, {object, count});
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphReleaseUserObject(CUgraph graph, CUuserObject named, unsigned int count) {
  return with_object(named, count, [&](Call& driver, const auto&, std::uint64_t number) {
    Graph* const owner = driver->graphs.find(graph);
    return owner != nullptr && UserObjects::release(owner->objects, number, count) ? CUDA_SUCCESS
                                                                                   : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace gpumem::sim
