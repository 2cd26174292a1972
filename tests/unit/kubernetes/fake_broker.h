#pragma once
#include <grpcpp/server.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpumem/v1/broker.grpc.pb.h"
#include "gpumem/v1/claims.grpc.pb.h"

namespace gpumem::kubernetes::test {

/// A broker's API socket in `folder`, with the devices that it is given; it keeps claims, and refuses what it
/// is told to.
class FakeBroker {
 public:
  explicit FakeBroker(const std::filesystem::path& folder);
  ~FakeBroker();

  void set_devices(std::vector<v1::DeviceStatus> devices);
  /// Every claim is refused from now on; OK: none is.
  void refuse(grpc::Status status);
  /// Restarts the broker, without its state.
  void forget();

  std::map<std::string, v1::Claim> claims();
  int prepared();  ///< how often Prepare was called
  int listed();    ///< how often List was called

 private:
  class Monitor;
  class Claims;
  std::mutex mutex_;
  std::vector<v1::DeviceStatus> devices_;
  std::map<std::string, v1::Claim> claims_;
  grpc::Status refusal_;
  int prepared_ = 0;
  int listed_ = 0;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Claims> claims_service_;
  std::unique_ptr<grpc::Server> server_;
};

/// A device of `mebibytes`.
v1::DeviceStatus lent_device(const std::string& uuid, std::uint64_t mebibytes);

}  // namespace gpumem::kubernetes::test
