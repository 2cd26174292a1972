// Errors between client and broker: words and codes.
#include <grp.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "client/lane/lane.h"
#include "client/process/runtime_folder.h"
#include "client/process/status.h"
#include "proto/lane.h"
#include "tests/unit/client/lane/fake_lane.h"

namespace gpumem::client::test {
namespace {

TEST(CodeOf, KeepsTheNumbersThatGpumemUses) {
  for (const Code code :
       {Code::kCancelled, Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kNotFound,
        Code::kAlreadyExists, Code::kPermissionDenied, Code::kResourceExhausted, Code::kFailedPrecondition,
        Code::kAborted, Code::kInternal, Code::kUnavailable, Code::kUnauthenticated}) {
    EXPECT_EQ(code_of(static_cast<std::uint64_t>(code)), code);
  }
}

TEST(CodeOf, MapsAllOthersToInternal) {
  for (const std::uint64_t number :
       {0ULL, 2ULL, 11ULL, 12ULL, 15ULL, 17ULL, 1000ULL, ~0ULL, (1ULL << 32) + 3})
    EXPECT_EQ(code_of(number), Code::kInternal);
}

TEST(ErrorOf, KeepsTheBrokersWords) {
  const GrowError error = error_of(failed(Code::kResourceExhausted, "tenant red is at its limit"));
  EXPECT_EQ(error.code, Code::kResourceExhausted);
  EXPECT_EQ(error.message, "tenant red is at its limit");
  EXPECT_FALSE(error.denial);
}

TEST(ErrorOf, SaysSoIfTheBrokerGivesNoReason) {
  EXPECT_EQ(error_of(failed(Code::kAborted, "")).message, "the broker gives no reason");
}

TEST(ErrorOf, TellsTheCallersOwnCallingOffFromTheBrokers) {
  EXPECT_EQ(error_of(failed(Code::kCancelled, "cancelled"), true).code, Code::kCancelled);
  EXPECT_EQ(error_of(failed(Code::kCancelled, "stopping"), false).code, Code::kUnavailable);
  EXPECT_EQ(error_of(failed(Code::kNotFound, "no slice"), true).code, Code::kNotFound);
}

lane::Failed full_denial() {
  lane::Failed failed = test::failed(Code::kResourceExhausted, "no");
  failed.denial = {2, 1, 15, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 1, 20, {}, {}, {}, {}};
  failed.denial.device = decltype(failed.denial.device)::of("GPU-1");
  failed.denial.tenant = decltype(failed.denial.tenant)::of("red");
  failed.denial.limiting_tenant = decltype(failed.denial.limiting_tenant)::of("colours");
  failed.denial.soonest_why = decltype(failed.denial.soonest_why)::of("it is on its way");
  failed.own = 1;
  failed.count = 2;
  failed.holders[0] = {12, 13, 14, lane::Text<16>::of("python"), lane::Text<128>::of("red")};
  failed.holders[1] = {0, 0, 21, {}, lane::Text<128>::of("blue")};
  return failed;
}

TEST(ErrorOf, KeepsEveryFigureOfADenial) {
  const GrowError error = error_of(full_denial());
  ASSERT_TRUE(error.denial);
  const Denial& denial = *error.denial;
  EXPECT_EQ(denial.reason, Denial::Reason::kTenantLimit);
  EXPECT_EQ(denial.device, "GPU-1");
  EXPECT_EQ(denial.tenant, "red");
  EXPECT_EQ(denial.asked, Bytes{1});
  EXPECT_EQ(denial.asked_least, Bytes{15});
  EXPECT_EQ(denial.tenant_limit, Bytes{2});
  EXPECT_EQ(denial.tenant_guarantee, Bytes{3});
  EXPECT_EQ(denial.tenant_charged, Bytes{4});
  EXPECT_EQ(denial.pool, Bytes{5});
  EXPECT_EQ(denial.free, Bytes{6});
  EXPECT_EQ(denial.kept_for_others, Bytes{7});
  EXPECT_EQ(denial.charged_to_others, Bytes{8});
  EXPECT_EQ(denial.waiters_ahead, 9U);
  EXPECT_EQ(denial.waited.count(), 10);
  EXPECT_EQ(denial.wait_limit.count(), 11);
  EXPECT_EQ(denial.limiting_tenant, "colours");
  EXPECT_EQ(denial.limiting_limit, Bytes{16});
  EXPECT_EQ(denial.limiting_charged, Bytes{17});
  EXPECT_EQ(denial.returning, Bytes{18});
  EXPECT_EQ(denial.asked_back, Bytes{19});
  EXPECT_EQ(denial.soonest.within, std::chrono::milliseconds(20));
  EXPECT_EQ(denial.soonest.why, "it is on its way");
}

TEST(ErrorOf, TellsTheCallersOwnHoldersFromTheOthers) {
  const GrowError error = error_of(full_denial());
  ASSERT_TRUE(error.denial);
  ASSERT_EQ(error.denial->holders.size(), 1U);
  const Denial::Holder& holder = error.denial->holders[0];
  EXPECT_EQ(holder.session, 12U);
  EXPECT_EQ(holder.pid, 13);
  EXPECT_EQ(holder.command, "python");
  EXPECT_EQ(holder.charged, Bytes{14});
  EXPECT_EQ(holder.tenant, "red");
  ASSERT_EQ(error.denial->other_tenants.size(), 1U);
  EXPECT_EQ(error.denial->other_tenants[0].tenant, "blue");
  EXPECT_EQ(error.denial->other_tenants[0].charged, Bytes{21});
}

TEST(ErrorOf, KnowsEveryReasonOfTheContractAndThatANewerBrokerMayHaveOthers) {
  const auto reason = [](std::uint64_t number) {
    lane::Failed failed = test::failed(Code::kResourceExhausted, "no");
    failed.denial.reason = number;
    return error_of(failed).denial->reason;
  };
  EXPECT_EQ(reason(1), Denial::Reason::kSliceLimit);
  EXPECT_EQ(reason(2), Denial::Reason::kTenantLimit);
  EXPECT_EQ(reason(3), Denial::Reason::kPoolSize);
  EXPECT_EQ(reason(4), Denial::Reason::kNoMemory);
  EXPECT_EQ(reason(5), Denial::Reason::kDebt);
  EXPECT_EQ(reason(6), Denial::Reason::kTurn);
  EXPECT_EQ(reason(99), Denial::Reason::kUnknown);
}

TEST(ErrorOf, TakesADenialWithoutALeastOrAKnownTimeAsSuch) {
  lane::Failed failed = test::failed(Code::kResourceExhausted, "no");
  failed.denial.reason = 4;
  failed.denial.asked = 7;
  failed.denial.soonest = 20;
  const GrowError error = error_of(failed);
  EXPECT_EQ(error.denial->asked_least, Bytes{7});
  EXPECT_FALSE(error.denial->soonest.within);
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

TEST(ConnectError, AdvisesAnotherGroupWhereThatOfTheSocketIsNotToBeJoined) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to a foreign group";
  const TemporaryFolder folder;
  const group* nobodys = ::getgrnam("nogroup");
  ASSERT_NE(nobodys, nullptr);
  for (const auto& [name, advice] : {std::pair("lane.sock", "socket_group in [broker]"),
                                     {"history.sock", "Group= of gpumem-history.service"}}) {
    const std::filesystem::path socket = folder.path() / name;
    const UniqueFd listener = listen_at(socket);
    ASSERT_EQ(::chown(socket.c_str(), 0, nobodys->gr_gid), 0);
    const Error error = connect_error(socket, EACCES);
    EXPECT_NE(error.message.find(advice), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find("usermod"), std::string::npos) << error.message;
  }
}

TEST(ConnectError, SpeaksOfTheFolderWhenTheSocketCannotBeSeen) {
  const Error error = connect_error("/nowhere/at/all/lane.sock", EACCES);
  EXPECT_NE(error.message.find("/nowhere/at/all cannot be entered"), std::string::npos) << error.message;
}

TEST(ConnectError, TellsThatAPathIsTooLong) {
  const auto lane = Lane::connect("/nowhere/" + std::string(200, 'x'), std::chrono::milliseconds(100));
  ASSERT_FALSE(lane);
  EXPECT_EQ(lane.error().code, Code::kInvalidArgument);
}

TEST(RuntimeFolder, IsTheNamedOneThenTheEnvironmentsThenTheDefault) {
  ::setenv("GPUMEM_RUNTIME_DIR", "/from/environment", 1);
  EXPECT_EQ(runtime_folder("/named"), "/named");
  EXPECT_EQ(runtime_folder("named"), std::filesystem::current_path() / "named");
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
