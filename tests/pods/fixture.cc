#include "tests/pods/fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "proto/channel.h"
#include "proto/lane.h"

namespace gpumem::test {

std::string pods_config(const std::string& more) {
  std::string config = kSomeSpare;
  config += "admin_group = ";
  config += std::to_string(::getegid());
  config += "\n";
  return config += more;
}

v1::Pod pod(const std::string& uid, const std::string& name, const std::string& space) {
  v1::Pod pod;
  pod.set_uid(uid);
  pod.set_namespace_(space);
  pod.set_name(name);
  return pod;
}

v1::Claim claim(const std::string& uid, std::vector<v1::Pod> pods, Bytes guarantee, Bytes limit) {
  v1::Claim claim;
  claim.set_uid(uid);
  claim.set_namespace_(pods.empty() ? "ml" : pods.front().namespace_());
  claim.set_name("claim-" + uid);
  for (v1::Pod& one : pods) *claim.add_pods() = std::move(one);
  v1::ClaimAmount& amount = *claim.add_amounts();
  amount.set_guarantee_bytes(guarantee.count);
  amount.set_limit_bytes(limit.count);
  return claim;
}

void ProcessFolder::put(pid_t pid, const std::string& pod_uid) {
  const std::filesystem::path folder = processes / std::to_string(pid);
  std::filesystem::create_directories(folder);
  write_file(folder / "cgroup", "0::/kubepods/burstable/pod" + pod_uid + "/" + std::string(64, 'c') + "\n");
  write_file(folder / "status", "Name:\tx\nNSpid:\t" + std::to_string(pid) + "\t1\nNSpgid:\t1\n");
}

PodsBrokerTest::PodsBrokerTest(const std::string& config)
    : BrokerTest({.config = config, .arguments = {"--process-dir", processes.path()}}) {}

std::unique_ptr<ClientProcess> PodsBrokerTest::client_of(const std::string& pod_uid, Json* connected) {
  auto client = std::make_unique<ClientProcess>(broker_.folder());
  put(client->pid(), pod_uid);
  Json answer = client->connect();
  const bool taken = answer.at("ok").get<bool>();
  EXPECT_TRUE(taken || connected != nullptr) << answer.dump();
  EXPECT_TRUE(!taken || succeeded(client->open("a")));
  if (connected != nullptr) *connected = std::move(answer);
  return client;
}

std::string PodsBrokerTest::tenant_of(const std::string& pod_uid) {
  Json connected;
  const auto client = client_of(pod_uid, &connected);
  EXPECT_TRUE(succeeded(connected));
  return connected.value("tenant", "");
}

std::unique_ptr<v1::Claims::Stub> PodsBrokerTest::stub() {
  grpc::ChannelArguments alone;
  alone.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::Claims::NewStub(grpc::CreateCustomChannel("unix:" + broker_.folder() + "/" + kApiSocketName,
                                                       grpc::InsecureChannelCredentials(), alone));
}

grpc::Status PodsBrokerTest::prepare(const v1::Claim& claim) {
  v1::PrepareClaimRequest request;
  *request.mutable_claim() = claim;
  // Of which device most tests do not care.
  for (v1::ClaimAmount& amount : *request.mutable_claim()->mutable_amounts())
    if (amount.device().empty()) amount.set_device(broker_.device().uuid());
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::PrepareClaimResponse response;
  return stub()->Prepare(&context, request, &response);
}

grpc::Status PodsBrokerTest::unprepare(const std::string& uid) {
  v1::UnprepareClaimRequest request;
  request.set_uid(uid);
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::UnprepareClaimResponse response;
  return stub()->Unprepare(&context, request, &response);
}

v1::ListClaimsResponse PodsBrokerTest::claims() {
  grpc::ClientContext context;
  set_timeout(context, kPatience);
  v1::ListClaimsResponse response;
  EXPECT_TRUE(stub()->List(&context, {}, &response).ok());
  return response;
}

}  // namespace gpumem::test
