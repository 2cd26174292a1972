#pragma once
#include <cuda.h>

#include <atomic>
#include <memory>

namespace gpumem::test {

/// A host function that holds a stream up until it is opened, and so makes "not yet" a fact instead of a
/// race. Opens when it goes, at the latest. One closed gate at a time: drivers may run host functions one
/// after the other.
class HostGate {
 public:
  HostGate() = default;
  ~HostGate() { open(); }
  HostGate(const HostGate&) = delete;
  HostGate& operator=(const HostGate&) = delete;

  /// To be launched, with one new argument each time; the function takes that over.
  static void CUDA_CB wait(void* argument) {
    const std::unique_ptr<Opened> opened(static_cast<Opened*>(argument));
    (*opened)->wait(false);
  }
  void* argument() const { return new Opened(opened_); }

  void open() {
    *opened_ = true;
    opened_->notify_all();
  }

 private:
  using Opened = std::shared_ptr<std::atomic<bool>>;
  Opened opened_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace gpumem::test
