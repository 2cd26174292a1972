#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"
#include "gpumem/v1/broker.grpc.pb.h"
#include "gpumem/v1/claims.grpc.pb.h"

namespace gpumem::kubernetes {

/// A device that the broker lends.
struct Device {
  std::string uuid;
  std::string name;   ///< in the ResourceSlice, see device_name()
  std::string model;  ///< as the driver calls it; may be empty
  Bytes pool;         ///< the memory that the broker lends, in whole units of 2 MiB
};

/// The name of a device in the ResourceSlice: its UUID in lower case, which is a DNS label. The device's
/// place in the machine is not in it: that changes when a neighbour fails, and allocations name devices by
/// this name alone.
std::string device_name(const std::string& uuid);

/// A claim for the broker, without pods and amounts.
v1::Claim claim_message(const std::string& uid, const std::string& space, const std::string& name);
/// Adds a pod, which is in the claim's namespace.
void add_pod(v1::Claim& claim, const std::string& uid, const std::string& name);
void add_amount(v1::Claim& claim, const std::string& device, Bytes guarantee, Bytes limit);
/// In whatever order their pods and amounts are.
bool are_equal(const v1::Claim& one, const v1::Claim& other);

/// The broker on its API socket, as an administrator. Each call waits 10 s at most and is made once.
/// Threads  any.
class BrokerClient {
 public:
  explicit BrokerClient(const std::filesystem::path& socket);

  /// Errors  kUnavailable: it is not there.
  Result<std::vector<Device>> devices();

  /// Errors  as Claims.Prepare has them; kUnavailable.
  Result<void> prepare(const v1::Claim& claim);
  Result<void> unprepare(const std::string& uid);
  Result<std::vector<v1::Claim>> claims();

 private:
  Error error_of(const grpc::Status& status) const;

  std::filesystem::path socket_;
  std::unique_ptr<v1::Monitor::Stub> monitor_;
  std::unique_ptr<v1::Claims::Stub> claims_;
};

}  // namespace gpumem::kubernetes
