// Listings of more than a page, asked for at once.
#include <grpcpp/channel.h>

#include "gpumem/v1/broker.grpc.pb.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

struct Listings : BrokerTest {
  static constexpr int kTenants = 300, kSessions = 20, kSlices = 64;
  static constexpr std::uint32_t kAll = 1'000'000;

  Listings() : BrokerTest({.config = config()}) {}
  static std::string config() {
    std::string text = kSomeSpare;
    for (int i = 0; i < kTenants; ++i) {
      const std::string number = std::to_string(i);
      text += "[[tenant]]\nname = \"t" + number + "\"\nuser = " + std::to_string(20'000 + i) + "\n";
    }
    return text;
  }
  template <class Request, class Response>
  Response first_page(grpc::Status (v1::Monitor::Stub::*call)(grpc::ClientContext*, const Request&,
                                                              Response*)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    Request request;
    request.set_page_size(kAll);
    Response response;
    const grpc::Status status = (monitor_.get()->*call)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  std::shared_ptr<grpc::Channel> channel_ = connect_to_api(broker_.folder());
  std::unique_ptr<v1::Monitor::Stub> monitor_ = v1::Monitor::NewStub(channel_);
};

TEST_F(Listings, OfTenantsComeInPagesOfBoundedSize) {
  const auto page = first_page(&v1::Monitor::Stub::ListTenants);
  EXPECT_EQ(page.tenants_size(), 256);
  EXPECT_FALSE(page.next_page_token().empty());
}

TEST_F(Listings, OfSessionsComeInPagesOfBoundedSize) {
  std::vector<std::unique_ptr<SessionStream>> sessions;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(std::make_unique<SessionStream>(channel_));
    sessions.back()->open();
    for (int slice = 0; slice < kSlices; ++slice) sessions.back()->open_slice();
  }
  const auto page = first_page(&v1::Monitor::Stub::ListSessions);
  int slices = 0;
  for (const v1::SessionInfo& one : page.sessions()) slices += 1 + one.slices_size();
  EXPECT_LE(slices, 1024 + kSlices) << "it ends with the session that exceeds it";
  EXPECT_LT(page.sessions_size(), kSessions);
  EXPECT_FALSE(page.next_page_token().empty());
  for (auto& one : sessions) one->cancel();
}

}  // namespace
}  // namespace gpumem::test
