// What goes wrong between client and broker, in words and codes.
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "client/lane.h"
#include "client/runtime_folder.h"
#include "client/status.h"
#include "gpumem/v1/broker.pb.h"
#include "gpumem/v1/status.pb.h"
#include "proto/lane.h"
#include "tests/unit/client/fake_lane.h"

namespace gpumem::client::test {
namespace {

TEST(CodeOf, KeepsTheNumbersThatGpumemUses) {
  for (const Code code :
       {Code::kCancelled, Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kNotFound,
        Code::kAlreadyExists, Code::kPermissionDenied, Code::kResourceExhausted, Code::kFailedPrecondition,
        Code::kAborted, Code::kInternal, Code::kUnavailable, Code::kUnauthenticated}) {
    EXPECT_EQ(code_of(static_cast<int>(code)), code);
  }
}

TEST(CodeOf, MapsAllOthersToInternal) {
  for (const int number : {-1, 0, 2, 11, 12, 15, 17, 1000}) EXPECT_EQ(code_of(number), Code::kInternal);
}

GrowError error_of(grpc::StatusCode code, const std::string& words) {
  return call_error(grpc::Status(code, words), "/run/gpumemd/api.sock");
}

TEST(CallError, KeepsTheBrokersWords) {
  const GrowError error = error_of(grpc::StatusCode::RESOURCE_EXHAUSTED, "tenant red is at its limit");
  EXPECT_EQ(error.code, Code::kResourceExhausted);
  EXPECT_EQ(error.message, "tenant red is at its limit");
  EXPECT_FALSE(error.denial);
}

TEST(CallError, SaysThatMemoryStaysUsableWhenTheBrokerIsGone) {
  const GrowError error = error_of(grpc::StatusCode::UNAVAILABLE, "Connection refused");
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.message.find("stays usable"), std::string::npos);
}

v1::Denial full_denial() {
  v1::Denial message;
  message.set_reason(v1::Denial::REASON_TENANT_LIMIT);
  message.set_device("GPU-1");
  message.set_tenant("red");
  message.set_asked(1);
  message.set_tenant_limit(2);
  message.set_tenant_guarantee(3);
  message.set_tenant_charged(4);
  message.set_pool(5);
  message.set_free(6);
  message.set_kept_for_others(7);
  message.set_charged_to_others(8);
  message.set_waiters_ahead(9);
  message.set_waited_ms(10);
  message.set_wait_limit_ms(11);
  message.set_asked_min(15);
  message.set_limiting_tenant("colours");
  message.set_limiting_limit(16);
  message.set_limiting_charged(17);
  message.set_returning(18);
  message.set_asked_back(19);
  message.mutable_soonest()->set_known(true);
  message.mutable_soonest()->set_within_ms(20);
  message.mutable_soonest()->set_why("it is on its way");
  v1::Holder* other = message.add_other_tenants();
  other->set_tenant("blue");
  other->set_charged(21);
  v1::Holder* holder = message.add_holders();
  holder->set_session(12);
  holder->set_pid(13);
  holder->set_command("python");
  holder->set_charged(14);
  return message;
}

std::string as_details(const google::protobuf::Message& message) {
  v1::Status status;
  status.add_details()->PackFrom(message);
  return status.SerializeAsString();
}

TEST(DenialIn, KeepsEveryFigure) {
  const auto denial = denial_in(as_details(full_denial()));
  ASSERT_TRUE(denial);
  EXPECT_EQ(denial->reason, Denial::Reason::kTenantLimit);
  EXPECT_EQ(denial->device, "GPU-1");
  EXPECT_EQ(denial->tenant, "red");
  EXPECT_EQ(denial->asked, Bytes{1});
  EXPECT_EQ(denial->tenant_limit, Bytes{2});
  EXPECT_EQ(denial->tenant_guarantee, Bytes{3});
  EXPECT_EQ(denial->tenant_charged, Bytes{4});
  EXPECT_EQ(denial->pool, Bytes{5});
  EXPECT_EQ(denial->free, Bytes{6});
  EXPECT_EQ(denial->kept_for_others, Bytes{7});
  EXPECT_EQ(denial->charged_to_others, Bytes{8});
  EXPECT_EQ(denial->waiters_ahead, 9U);
  EXPECT_EQ(denial->waited.count(), 10);
  EXPECT_EQ(denial->wait_limit.count(), 11);
  ASSERT_EQ(denial->holders.size(), 1U);
  EXPECT_EQ(denial->holders[0].session, 12U);
  EXPECT_EQ(denial->holders[0].pid, 13);
  EXPECT_EQ(denial->holders[0].command, "python");
  EXPECT_EQ(denial->holders[0].charged, Bytes{14});
  EXPECT_EQ(denial->asked_least, Bytes{15});
  EXPECT_EQ(denial->limiting_tenant, "colours");
  EXPECT_EQ(denial->limiting_limit, Bytes{16});
  EXPECT_EQ(denial->limiting_charged, Bytes{17});
  EXPECT_EQ(denial->returning, Bytes{18});
  EXPECT_EQ(denial->asked_back, Bytes{19});
  EXPECT_EQ(denial->soonest.within, std::chrono::milliseconds(20));
  EXPECT_EQ(denial->soonest.why, "it is on its way");
  ASSERT_EQ(denial->other_tenants.size(), 1U);
  EXPECT_EQ(denial->other_tenants[0].tenant, "blue");
  EXPECT_EQ(denial->other_tenants[0].charged, Bytes{21});
}

TEST(DenialIn, KnowsEveryReasonOfTheContract) {
  const auto reason = [](v1::Denial::Reason of) {
    v1::Denial message;
    message.set_reason(of);
    return to_denial(message).reason;
  };
  EXPECT_EQ(reason(v1::Denial::REASON_SLICE_LIMIT), Denial::Reason::kSliceLimit);
  EXPECT_EQ(reason(v1::Denial::REASON_POOL_SIZE), Denial::Reason::kPoolSize);
  EXPECT_EQ(reason(v1::Denial::REASON_NO_MEMORY), Denial::Reason::kNoMemory);
  EXPECT_EQ(reason(v1::Denial::REASON_DEBT), Denial::Reason::kDebt);
  EXPECT_EQ(reason(v1::Denial::REASON_TURN), Denial::Reason::kTurn);
}

TEST(DenialIn, WithoutAKnownTimeSaysSo) {
  v1::Denial message;
  message.mutable_soonest()->set_within_ms(20);
  message.mutable_soonest()->set_why("others decide");
  EXPECT_FALSE(to_denial(message).soonest.within);
  EXPECT_EQ(to_denial(message).soonest.why, "others decide");
}

TEST(DenialIn, WithoutALeastMeansThatAllWasAskedFor) {
  v1::Denial message;
  message.set_asked(7);
  EXPECT_EQ(to_denial(message).asked_least, Bytes{7});
}

TEST(DenialIn, OfANewerBrokerHasAnUnknownReason) {
  v1::Denial message;
  message.set_reason(static_cast<v1::Denial::Reason>(99));
  EXPECT_EQ(to_denial(message).reason, Denial::Reason::kUnknown);
}

TEST(DenialIn, AnswersNothingForOtherBytesAndOtherDetails) {
  EXPECT_FALSE(denial_in("\xFF\xFF"));
  EXPECT_FALSE(denial_in(""));
  EXPECT_FALSE(denial_in(as_details(v1::PingRequest())));
}

TEST(CallError, CarriesTheDenialAmongItsDetails) {
  const grpc::Status refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "no", as_details(full_denial()));
  const GrowError error = call_error(refused, "/run/gpumemd/api.sock");
  ASSERT_TRUE(error.denial);
  EXPECT_EQ(error.denial->tenant, "red");
}

TEST(ConnectError, NamesTheGroupThatMayConnect) {
  const TemporaryFolder folder;
  const UniqueFd listener = listen_at(folder.path() / "lane.sock");
  const Error error = connect_error(folder.path() / "lane.sock", EACCES);
  EXPECT_EQ(error.code, Code::kPermissionDenied);
  EXPECT_NE(error.message.find("group"), std::string::npos);
}

TEST(ConnectError, NamesAGroupThatThisUserIsNotIn) {
  const TemporaryFolder folder;
  const UniqueFd listener = listen_at(folder.path() / "lane.sock");
  constexpr gid_t kForeign = 54'321;
  if (::chown((folder.path() / "lane.sock").c_str(), static_cast<uid_t>(-1), kForeign) != 0) {
    GTEST_SKIP() << "only root can give a file to a foreign group";
  }
  const Error error = connect_error(folder.path() / "lane.sock", EACCES);
  EXPECT_NE(error.message.find("usermod -aG 54321"), std::string::npos) << error.message;
}

TEST(ConnectError, SpeaksOfTheFolderWhenTheSocketCannotBeSeen) {
  const Error error = connect_error("/nowhere/at/all/lane.sock", EACCES);
  EXPECT_NE(error.message.find("/nowhere/at/all cannot be entered"), std::string::npos) << error.message;
}

TEST(ConnectError, TellsThatAPathIsTooLong) {
  const auto lane = Lane::connect("/tmp/" + std::string(200, 'x'), std::chrono::milliseconds(100));
  ASSERT_FALSE(lane);
  EXPECT_EQ(lane.error().code, Code::kInvalidArgument);
}

TEST(RuntimeFolder, IsTheNamedOneThenTheEnvironmentsThenTheDefault) {
  ::setenv("GPUMEM_RUNTIME_DIR", "/from/environment", 1);
  EXPECT_EQ(runtime_folder("/named"), "/named");
  EXPECT_EQ(runtime_folder(""), "/from/environment");
  ::unsetenv("GPUMEM_RUNTIME_DIR");
  EXPECT_EQ(runtime_folder(""), kDefaultRuntimeFolder);
}

TEST(DriverFolder, OfTheEnvironmentGoesFirst) {
  ::unsetenv("GPUMEM_DRIVER_DIR");
  EXPECT_EQ(driver_folder("/told"), "/told");
  ::setenv("GPUMEM_DRIVER_DIR", "/from/environment", 1);
  EXPECT_EQ(driver_folder("/told"), "/from/environment");
  ::unsetenv("GPUMEM_DRIVER_DIR");
}

}  // namespace
}  // namespace gpumem::client::test
