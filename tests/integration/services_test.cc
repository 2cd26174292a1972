// The standard service of gRPC beside the broker's own: health.
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "tests/integration/fixture.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

using Services = BrokerTest;

// Sends one message, given as it goes over the wire, and takes one: its .proto file is not the project's.
std::string exchange(const std::string& folder, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(connect_to_api(folder));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const auto await = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(await()) << method;
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions().set_last_message(), nullptr);
  EXPECT_TRUE(await()) << method;
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  EXPECT_TRUE(await()) << method;
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(await());
  EXPECT_TRUE(status.ok()) << status.error_message();
  grpc::Slice joined;
  EXPECT_TRUE(response.DumpToSingleSlice(&joined).ok());
  return {reinterpret_cast<const char*>(joined.begin()), joined.size()};
}

TEST_F(Services, HealthSaysServing) {
  // HealthCheckResponse: field 1, status, is 1: SERVING.
  EXPECT_EQ(exchange(broker_.folder(), "/grpc.health.v1.Health/Check", ""), std::string("\x08\x01"));
}

TEST_F(Services, HealthKnowsTheBrokersServices) {
  const std::string name = "gpumem.v1.Broker";
  const std::string request =
      std::string("\x0a") + static_cast<char>(name.size()) + name;  // field 1, service
  EXPECT_EQ(exchange(broker_.folder(), "/grpc.health.v1.Health/Check", request), std::string("\x08\x01"));
}

TEST_F(Services, StatusNamesVersionsDevicesAndDates) {
  const v1::GetStatusResponse status = broker_.status();
  EXPECT_EQ(status.version(), GPUMEM_VERSION);
  EXPECT_NE(status.driver().find("CUDA "), std::string::npos) << status.driver();
  EXPECT_EQ(status.started().size(), std::string("2000-01-01T00:00:00Z").size()) << status.started();
  ASSERT_EQ(status.devices_size(), 1);
  const v1::DeviceStatus& device = status.devices(0);
  EXPECT_EQ(device.total(), mebibytes(256).count);
  EXPECT_EQ(device.pool(), kPool.count);
  EXPECT_EQ(device.free(), kPool.count);
  EXPECT_EQ(device.warm(), kPool.count);
  EXPECT_EQ(device.missing(), 0U);
}

TEST_F(Services, BrokerItselfHasNoContext) {
  EXPECT_EQ(broker_.used_of_driver(), kPool.count) << "what it has created, and not a byte more";
}

}  // namespace
}  // namespace gpumem::test
