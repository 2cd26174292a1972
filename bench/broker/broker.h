#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "bench/broker/process.h"
#include "bench/temporary_folder.h"
#include "gpumem/session.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::bench {

/// The simulated device, and lines of the table [broker] of the broker's configuration there.
struct BrokerOptions {
  const char* device = "1x24GiB";
  std::string settings{};
};

/// A broker process of the benchmark's own, on one GPU: a simulated one unless $GPUMEM_DRIVER_DIR names a
/// driver. Goes without a trace.
class Broker {
 public:
  explicit Broker(const BrokerOptions& options = {});
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  std::string folder() const { return folder_.path().string(); }
  std::filesystem::path api_socket() const;
  pid_t pid() const { return process_->pid(); }

  /// A session of this process, and a slice of `limit` in it.
  Session connect() const;
  /// The figures of its device, as the Monitor service gives them.
  v1::DeviceStatus device() const;
  std::size_t sessions() const;
  /// Waits until nothing is on its way back, so that the stock of warm extents is as it should be.
  void await_stock() const;
  /// Waits until nothing is charged to anybody: all memory is proved free.
  void await_all_free() const;
  void await_sessions(std::size_t count) const;

 private:
  v1::GetStatusResponse status() const;
  struct End {
    void operator()(Process* process) const;
  };

  TemporaryFolder folder_;
  std::unique_ptr<Process, End> process_;
  std::unique_ptr<v1::Monitor::Stub> monitor_;
};

/// A session with the broker in `folder`, for the roles.
Session connect_to(const std::string& folder);

}  // namespace gpumem::bench
