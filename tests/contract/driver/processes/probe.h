#pragma once
#include <functional>
#include <string>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {

/// A question that only hardware can answer. The answer is recorded (gtest's JSON and XML carry it, as the
/// property "answer"), not judged; what is judged is that the question was put and that nothing of it is left
/// on the device.
class Probe : public DriverTest {
 protected:
  void TearDown() override;

  /// Adds `what: answer` to what is recorded.
  void note(const std::string& what, const std::string& answer);
  void note(const std::string& what, std::uint64_t number) { note(what, std::to_string(number)); }
  /// Notes what `body` says in a process of its own, or how that process ended instead.
  void ask(const std::string& what, const std::function<std::string()>& body);

  /// How much a probe may take at once: $GPUMEM_ACCEPTANCE_BUDGET bytes, 256 MiB if it is not set, at most a
  /// quarter of what is free. A multiple of unit_. Not in a Process: the management library does not survive
  /// a fork.
  Bytes budget() const;

 private:
  std::string answers_;
};

/// `CUDA_ERROR_INVALID_VALUE`. In a Process only.
std::string name_of(CUresult result);

}  // namespace gpumem::contract
