// A recorded session of the version before, as bytes, is answered as it was then.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "gpumem/v1/status.pb.h"
#include "proto/lane.h"
#include "tests/integration/fixture.h"
#include "tests/support/hex.h"
#include "tests/support/raw_calls.h"

namespace gpumem::test {
namespace {

// Stands for the device in a record; as long as any device's name.
constexpr std::string_view kRecordedDevice = "GPU-00000000-0000-4000-8000-000000000000";

std::string replaced(std::string bytes, std::string_view from, std::string_view to) {
  for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size()))
    bytes.replace(at, from.size(), to);
  return bytes;
}

/// A session of version 2 by its bytes: packets of the lane, and calls with the token that it is told.
class RecordedSession {
 public:
  RecordedSession(const std::string& folder, std::string device)
      : lane_(folder), channel_(connect_to_api(folder)), stub_(channel_), device_(std::move(device)) {}

  void send(const std::string& what, const std::string& bytes) {
    const std::string sent = replaced(bytes, kRecordedDevice, device_);
    if (what == "Return") lane_.descriptors().clear();  // it says that the memory is released
    if (what != "lane") {
      answer_ = call(what, sent);
    } else {
      EXPECT_TRUE(lane_.send(sent));
    }
  }
  /// As a record has it: without what differs each time.
  std::string receive(const std::string& what) { return what == "lane" ? packet() : answer_; }

 private:
  std::string packet() {
    const std::size_t before = lane_.descriptors().size();
    v1::ToClient message = lane_.receive();
    if (message.has_welcome()) {
      v1::Welcome& welcome = *message.mutable_welcome();
      token_ = welcome.token();
      EXPECT_FALSE(token_.empty());
      EXPECT_FALSE(welcome.tenant().empty());
      EXPECT_FALSE(welcome.driver_folder().empty());
      welcome.clear_token();
      welcome.clear_tenant();
      welcome.clear_driver_folder();
    }
    return recorded(lane_.descriptors().size() - before, message.SerializeAsString());
  }

  std::string call(const std::string& name, const std::string& bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    context.AddMetadata(kSessionMetadataKey, token_);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareUnaryCall(&context, "/gpumem.v1.Broker/" + name, request, &queue);
    call->StartCall();
    call->Finish(&response, &status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    grpc::Slice answer;
    EXPECT_EQ(response.DumpToSingleSlice(&answer).ok(), status.ok());
    const std::string said(reinterpret_cast<const char*>(answer.begin()), answer.size());
    return recorded(static_cast<std::size_t>(status.error_code()),
                    status.ok() ? said : denial(status.error_details()));
  }

  // The figures of a denial; who holds what differs each time.
  static std::string denial(const std::string& details) {
    v1::Status status;
    v1::Denial denial;
    if (!status.ParseFromString(details) || status.details().empty()) return "";
    EXPECT_TRUE(status.details(0).UnpackTo(&denial));
    denial.clear_tenant();
    denial.clear_limiting_tenant();
    denial.clear_holders();
    denial.clear_other_tenants();
    return denial.SerializeAsString();
  }

  std::string recorded(std::size_t number, const std::string& bytes) const {
    const std::string hex = to_hex(replaced(bytes, device_, kRecordedDevice));
    return std::to_string(number) + (hex.empty() ? "" : " " + hex);
  }

  RawLane lane_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::string device_;
  std::string token_;
  std::string answer_;
};

using Recorded = BrokerTest;

// GPUMEM_TEST_RECORD: a file to write the session to, with the answers of this broker.
TEST_F(Recorded, SessionOfVersion2IsAnsweredAsItWasThen) {
  std::ifstream record(GPUMEM_TEST_RECORDED "/lane-2.txt");
  ASSERT_TRUE(record);
  const char* const file = std::getenv("GPUMEM_TEST_RECORD");
  std::ofstream anew(file == nullptr ? "/dev/null" : file);
  std::optional<RecordedSession> session(std::in_place, broker_.folder(), broker_.device().uuid());
  int steps = 0;
  for (std::string line; std::getline(record, line);) {
    std::istringstream words(line);
    std::string direction, what, rest;
    words >> direction >> what;
    std::getline(words >> std::ws, rest);
    if (direction == ">") session->send(what, from_hex(rest));
    if (direction == "=") {
      EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; }));
    }
    if (direction == "<") {
      const std::string answer = session->receive(what);
      line = "< " + what + " " + answer;
      EXPECT_TRUE(answer == rest || file != nullptr)
          << "step " << steps << ", " << what << ": " << answer << " in place of " << rest;
    }
    if (direction != "#") ++steps;
    anew << line << "\n";
  }
  EXPECT_GT(steps, 10);
  session.reset();
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
