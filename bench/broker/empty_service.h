#pragma once
#include <memory>

#include "bench/broker/process.h"
#include "bench/temporary_folder.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::bench {

/// The floor of any gRPC call: a callback server with nothing behind it, in a process of its own, on the same
/// kind of socket as the broker's, and everything as gRPC has it by default.
class EmptyService {
 public:
  EmptyService();
  ~EmptyService();
  EmptyService(const EmptyService&) = delete;
  EmptyService& operator=(const EmptyService&) = delete;

  void call() const;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<v1::Monitor::Stub> stub_;
};

}  // namespace gpumem::bench
