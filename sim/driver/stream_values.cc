#include "sim/driver/stream_values.h"

#include <algorithm>
#include <chrono>
#include <shared_mutex>
#include <thread>

#include "sim/driver/driver.h"
#include "sim/driver/memory/managed_range.h"
#include "sim/driver/memory/transfer.h"

namespace gpumem::sim {
namespace {

using std::chrono::microseconds;

template <class Word, class Signed>
bool holds(Word found, Word wanted, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND: return (found & wanted) != 0;
    default: return static_cast<Word>(~(found | wanted)) != 0;
  }
}

/// Writes the word, or tells whether the condition on it holds.
template <class Word, class Signed>
bool attempt(const ValueOperation& operation) {
  Word* const word = reinterpret_cast<Word*>(operation.address);  // NOLINT(performance-no-int-to-ptr)
  const auto value = static_cast<Word>(operation.value);
  if (operation.kind == ValueOperation::Kind::kWrite) {
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    return true;
  }
  return holds<Word, Signed>(__atomic_load_n(word, __ATOMIC_SEQ_CST), value, operation.condition);
}

CUresult attempt(const ValueOperation& operation, bool* is_done) {
  Call driver;
  if (!driver) return driver.error();
  if (const CUresult result = check(driver, operation); result != CUDA_SUCCESS) return result;
  const std::shared_lock in_use(driver->in_use);
  driver.unlock();
  *is_done = operation.bytes == 4 ? attempt<std::uint32_t, std::int32_t>(operation)
                                  : attempt<std::uint64_t, std::int64_t>(operation);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check(Call& driver, const ValueOperation& operation) {
  if (managed_at(driver, operation.address)) return CUDA_ERROR_INVALID_VALUE;
  const Place word{.address = operation.address, .side = Side::kDevice, .device = operation.device};
  if (operation.address % operation.bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (operation.kind == ValueOperation::Kind::kWrite) {
    return check(driver, Fill{.to = word, .shape = {.width = operation.bytes}});
  }
  return check_read(driver, word, operation.bytes);
}

CUresult perform(const ValueOperation& operation) {
  for (microseconds pause(10);; pause = std::min(2 * pause, microseconds(1000))) {
    bool is_done = false;
    const CUresult result = attempt(operation, &is_done);
    if (result != CUDA_SUCCESS || is_done) return result;
    std::this_thread::sleep_for(pause);
  }
}

CUresult perform(const std::vector<ValueOperation>& operations) {
  for (const ValueOperation& operation : operations) {
    if (const CUresult result = perform(operation); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
