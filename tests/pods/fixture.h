#pragma once
#include <memory>
#include <string>

#include "gpumem/v1/claims.grpc.pb.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {

inline constexpr const char* kAnna = "2f0c4a11-9f5d-4d1e-8a77-0a7f6d4c1b22";
inline constexpr const char* kBert = "00000000-1111-2222-3333-444444444444";

/// 224 MiB are lent; whoever runs the tests administers.
std::string pods_config(const std::string& more = {});

/// `amount`  of each pod's or claim's guarantee; it may have `limit`.
v1::Pod pod(const std::string& uid, const std::string& name, const std::string& space = "ml");
v1::Claim claim(const std::string& uid, std::vector<v1::Pod> pods, Bytes guarantee, Bytes limit);

/// Where the broker reads in which pod a process is. Made before it starts.
struct ProcessFolder {
  /// Puts process `pid` into a container of the pod.
  void put(pid_t pid, const std::string& pod_uid);

  TemporaryFolder processes;
};

/// A broker that takes `processes` for the truth.
class PodsBrokerTest : public ProcessFolder, public BrokerTest {
 protected:
  explicit PodsBrokerTest(const std::string& config = pods_config());

  /// A client of the pod, with slice "a" unless it is refused. `connected`  what it was answered.
  std::unique_ptr<ClientProcess> client_of(const std::string& pod_uid, Json* connected = nullptr);
  std::string tenant_of(const std::string& pod_uid);

  grpc::Status prepare(const v1::Claim& claim);
  grpc::Status unprepare(const std::string& uid);
  v1::ListClaimsResponse claims();
  /// Over a connection of its own.
  std::unique_ptr<v1::Claims::Stub> stub();
};

}  // namespace gpumem::test
