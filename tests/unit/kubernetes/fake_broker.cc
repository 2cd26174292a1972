#include "tests/unit/kubernetes/fake_broker.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "proto/channel.h"

namespace gpumem::kubernetes::test {

class FakeBroker::Monitor final : public v1::Monitor::Service {
 public:
  explicit Monitor(FakeBroker& broker) : broker_(broker) {}
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    const std::lock_guard lock(broker_.mutex_);
    for (const v1::DeviceStatus& device : broker_.devices_) *response->add_devices() = device;
    return grpc::Status::OK;
  }

 private:
  FakeBroker& broker_;
};

class FakeBroker::Claims final : public v1::Claims::Service {
 public:
  explicit Claims(FakeBroker& broker) : broker_(broker) {}
  grpc::Status Prepare(grpc::ServerContext*, const v1::PrepareClaimRequest* request,
                       v1::PrepareClaimResponse*) override {
    const std::lock_guard lock(broker_.mutex_);
    ++broker_.prepared_;
    if (!broker_.refusal_.ok()) return broker_.refusal_;
    broker_.claims_[request->claim().uid()] = request->claim();
    return grpc::Status::OK;
  }
  grpc::Status Unprepare(grpc::ServerContext*, const v1::UnprepareClaimRequest* request,
                         v1::UnprepareClaimResponse*) override {
    const std::lock_guard lock(broker_.mutex_);
    broker_.claims_.erase(request->uid());
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListClaimsRequest*,
                    v1::ListClaimsResponse* response) override {
    const std::lock_guard lock(broker_.mutex_);
    ++broker_.listed_;
    for (const auto& [uid, claim] : broker_.claims_) *response->add_claims() = claim;
    return grpc::Status::OK;
  }

 private:
  FakeBroker& broker_;
};

FakeBroker::FakeBroker(const std::filesystem::path& folder)
    : monitor_(std::make_unique<Monitor>(*this)), claims_service_(std::make_unique<Claims>(*this)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(socket_target(folder / "api.sock"), grpc::InsecureServerCredentials());
  builder.RegisterService(monitor_.get());
  builder.RegisterService(claims_service_.get());
  server_ = builder.BuildAndStart();
}

FakeBroker::~FakeBroker() { server_->Shutdown(); }

void FakeBroker::set_devices(std::vector<v1::DeviceStatus> devices) {
  const std::lock_guard lock(mutex_);
  devices_ = std::move(devices);
}

void FakeBroker::refuse(grpc::Status status) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(status);
}

void FakeBroker::forget() {
  const std::lock_guard lock(mutex_);
  claims_.clear();
}

std::map<std::string, v1::Claim> FakeBroker::claims() {
  const std::lock_guard lock(mutex_);
  return claims_;
}

int FakeBroker::prepared() {
  const std::lock_guard lock(mutex_);
  return prepared_;
}

int FakeBroker::listed() {
  const std::lock_guard lock(mutex_);
  return listed_;
}

v1::DeviceStatus lent_device(const std::string& uuid, std::uint64_t mebibytes) {
  v1::DeviceStatus device;
  device.set_uuid(uuid);
  device.set_name("Simulated GPU");
  device.set_total((mebibytes + 1024) << 20);
  device.set_pool(mebibytes << 20);
  return device;
}

}  // namespace gpumem::kubernetes::test
