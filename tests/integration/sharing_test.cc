// Memory that processes of a tenant share: handles by the library, by frames and by gRPC.
#include "tests/integration/ending_config.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

struct Sharing : BrokerTest {
  explicit Sharing(BrokerOptions options = {.config = kSomeSpare}) : BrokerTest(std::move(options)) {}

  /// A handle of the client's slice "a", as many times as may be.
  static Json handle_of(ClientProcess& client, Json more = Json::object()) {
    Json command{{"do", "export"}, {"slice", "a"}, {"uses", 100}};
    command.update(more);
    const Json answer = client.ask(command);
    EXPECT_TRUE(succeeded(answer));
    return answer.at("handle");
  }
  static Json import(ClientProcess& client, const Json& handle, const std::string& name = "i") {
    return client.ask({{"do", "import"}, {"handle", handle}, {"import", name}});
  }
  static Json close_import(ClientProcess& client, const std::string& name = "i") {
    return client.ask({{"do", "close_import"}, {"import", name}});
  }
  static Json access(ClientProcess& client, const char* what, int value, const std::string& name = "i") {
    return client.ask({{"do", what}, {"import", name}, {"value", value}});
  }
  static lane::HandleBytes bytes_of(const Json& handle) {
    lane::HandleBytes bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(handle.at(i).get<int>());
    return bytes;
  }
};

TEST_F(Sharing, TwoProcessesReadAndWriteTheSameBytes) {
  auto lender = client_with(mebibytes(6));
  auto user = client();
  EXPECT_TRUE(succeeded(lender->write("a", 7)));
  const Json imported = import(*user, handle_of(*lender));
  ASSERT_TRUE(succeeded(imported));
  EXPECT_EQ(imported.at("bytes"), mebibytes(6).count);
  EXPECT_TRUE(succeeded(access(*user, "check", 7)));
  EXPECT_TRUE(succeeded(access(*user, "write", 8)));
  EXPECT_TRUE(succeeded(lender->check("a", 8)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count) << "one copy, charged once";
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_TRUE(sessions[0].shared().empty()) << "its slice's";
  ASSERT_EQ(sessions[1].shared_size(), 1);
  EXPECT_EQ(sessions[1].shared(0).imported(), mebibytes(6).count);
  EXPECT_EQ(sessions[1].shared(0).charged(), 0U);
  EXPECT_TRUE(succeeded(close_import(*user)));
  expect_rest_after(*user, *lender);
}

TEST_F(Sharing, ARangeIsMappedAtItsBytes) {
  auto lender = client_with(mebibytes(6));
  auto user = client();
  EXPECT_TRUE(succeeded(lender->write("a", 1)));
  const Json part = handle_of(*lender, {{"offset", mebibytes(3).count}, {"bytes", 4096}});
  ASSERT_TRUE(succeeded(import(*user, part)));
  EXPECT_TRUE(succeeded(access(*user, "write", 2)));
  EXPECT_TRUE(failed_with(lender->check("a", 1), "INTERNAL")) << "some bytes are 2 now";
  const Json before = handle_of(*lender, {{"bytes", mebibytes(3).count}});
  const Json behind = handle_of(*lender, {{"offset", mebibytes(3).count + 4096}});
  EXPECT_TRUE(succeeded(import(*user, before, "before")));
  EXPECT_TRUE(succeeded(import(*user, behind, "behind")));
  EXPECT_TRUE(succeeded(access(*user, "check", 1, "before")));
  EXPECT_TRUE(succeeded(access(*user, "check", 1, "behind")));
  EXPECT_TRUE(failed_with(lender->ask({{"do", "export"}, {"slice", "a"}, {"offset", mebibytes(6).count}}),
                          "INVALID_ARGUMENT"));
  EXPECT_TRUE(failed_with(lender->ask({{"do", "export"}, {"slice", "a"}, {"bytes", mebibytes(7).count}}),
                          "INVALID_ARGUMENT"));
  expect_rest_after(*user, *lender);
}

TEST_F(Sharing, MemoryOutlivesTheProcessThatLentIt) {
  auto lender = client_with(mebibytes(6));
  auto user = client();
  EXPECT_TRUE(succeeded(lender->write("a", 5)));
  ASSERT_TRUE(succeeded(import(*user, handle_of(*lender))));
  lender->kill();
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  EXPECT_TRUE(succeeded(access(*user, "check", 5)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count) << "the user's now";
  EXPECT_EQ(broker_.sessions().at(0).shared(0).charged(), mebibytes(6).count);
  EXPECT_EQ(broker_.sessions().at(0).shared(0).imported(), 0U);
  EXPECT_TRUE(succeeded(close_import(*user)));
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == 0; }));
  expect_rest_after(*user);
}

TEST_F(Sharing, MemoryThatIsShrunkAwayStaysWithItsUser) {
  auto lender = client_with(mebibytes(6));
  auto user = client();
  ASSERT_TRUE(succeeded(import(*user, handle_of(*lender))));
  EXPECT_TRUE(succeeded(lender->shrink("a", {})));
  EXPECT_TRUE(succeeded(lender->close("a"))) << "the slice is not in the way";
  EXPECT_TRUE(succeeded(access(*user, "write", 3)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  user->kill();
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == 0; }));
  expect_rest_after(*lender);
}

TEST_F(Sharing, AHandleWorksOnceUnlessMoreIsSaid) {
  auto lender = client_with(mebibytes(2));
  auto user = client();
  const Json once = handle_of(*lender, {{"uses", 1}});
  EXPECT_TRUE(succeeded(import(*user, once)));
  EXPECT_TRUE(failed_with(import(*user, once, "j"), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(close_import(*user)));
  EXPECT_TRUE(failed_with(import(*user, Json(std::vector<int>(64, 7))), "INVALID_ARGUMENT"));
  expect_rest_after(*user, *lender);
}

TEST_F(Sharing, AHandleIsRevokedByFrames) {
  FrameLane lender(broker_.folder()), user(broker_.folder());
  EXPECT_EQ(lender.greet().version, lane::kVersion);
  user.greet();
  const std::uint64_t slice = lender.open_slice();
  const auto answer = lender.grow(slice, mebibytes(2));
  const auto granted = answer.as<lane::Granted>();
  lender.send(lane::Accept{granted.grant});
  lane::ExportHandle request{};
  request.slice = slice;
  request.uses = 10;
  request.count = granted.count;
  for (std::size_t i = 0; i < granted.count; ++i) request.leases[i] = granted.leases[i].lease;
  const lane::HandleBytes handle = lender.ask(request).as<lane::HandleExported>().handle;
  EXPECT_TRUE(user.ask(lane::ImportHandle{handle}).is(lane::Kind::kImported));
  EXPECT_TRUE(user.ask(lane::RevokeHandle{handle}).is(lane::Kind::kFailed)) << "it is the lender's";
  EXPECT_TRUE(lender.ask(lane::RevokeHandle{handle}).is(lane::Kind::kDone));
  EXPECT_TRUE(user.ask(lane::ImportHandle{handle}).is(lane::Kind::kFailed));
  EXPECT_TRUE(lender.ask(lane::RevokeHandle{handle}).is(lane::Kind::kFailed));
  EXPECT_EQ(broker_.sessions().at(1).shared(0).imported(), mebibytes(2).count) << "what is open stays";
}

TEST_F(Sharing, AHandleIsRevokedByGrpc) {
  auto user = client();
  SessionStream stream(broker_.folder());
  stream.open();
  const std::uint64_t slice = stream.open_slice();
  const v1::SessionAnswer granted = stream.ask(growth(slice, mebibytes(2)));
  ASSERT_TRUE(granted.has_granted());
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(2).count; }));
  v1::SessionRequest request;
  request.mutable_export_handle()->set_slice(slice);
  for (const v1::Lease& lease : granted.granted().leases())
    request.mutable_export_handle()->add_leases(lease.id());
  const std::string handle = stream.ask(request).handle_exported().handle();
  request.mutable_revoke_handle()->set_handle(handle.substr(1));
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_revoke_handle()->set_handle(handle);
  EXPECT_TRUE(stream.ask(request).has_done());
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(failed_with(import(*user, Json(std::vector<int>(handle.begin(), handle.end()))), "NOT_FOUND"));
  EXPECT_EQ(user->leave(), 0);
}

TEST_F(Sharing, GrpcHandsOutHandlesThatAreRedeemedOnALane) {
  auto user = client();
  {
    SessionStream stream(broker_.folder());
    stream.open();
    const std::uint64_t slice = stream.open_slice();
    const v1::SessionAnswer granted = stream.ask(growth(slice, mebibytes(4)));
    ASSERT_TRUE(granted.has_granted());
    EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(4).count; }));
    v1::SessionRequest request;
    v1::ExportHandleRequest& exported = *request.mutable_export_handle();
    exported.set_slice(slice);
    for (const v1::Lease& lease : granted.granted().leases()) exported.add_leases(lease.id());
    const v1::SessionAnswer answer = stream.ask(request);
    ASSERT_TRUE(answer.has_handle_exported()) << answer.DebugString();
    const std::string& handle = answer.handle_exported().handle();
    ASSERT_EQ(handle.size(), 64U);
    EXPECT_LE(answer.handle_exported().within_ms(), 60'000U);
    request.mutable_import_handle()->set_handle(handle);
    const v1::FailedResponse refused = stream.ask(request).failed();
    EXPECT_EQ(refused.code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_NE(refused.message().find("gpumem_import_handle"), std::string::npos) << "says what to do";
    request.mutable_release_import()->set_import(1);
    EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_TRUE(succeeded(import(*user, Json(std::vector<int>(handle.begin(), handle.end())))));
    EXPECT_TRUE(succeeded(access(*user, "write", 9)));
  }
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  EXPECT_TRUE(succeeded(access(*user, "check", 9))) << "the stream is gone, the memory is the user's";
  expect_rest_after(*user);
}

TEST_F(Sharing, AnImportThatComesTooLateIsReleased) {
  auto lender = client_with(mebibytes(2));
  const lane::HandleBytes handle = bytes_of(handle_of(*lender));
  FrameLane lane(broker_.folder());
  lane.greet();
  EXPECT_TRUE(lane.send(lane::ImportHandle{handle}, 1) != 0);  // its deadline has passed
  EXPECT_TRUE(lane.receive().is(lane::Kind::kFailed));
  auto answer = lane.ask(lane::ImportHandle{handle});
  ASSERT_TRUE(answer.is(lane::Kind::kImported));
  const auto imported = answer.as<lane::Imported>();
  EXPECT_EQ(answer.descriptors.size(), imported.count);
  EXPECT_EQ(imported.bytes, mebibytes(2).count);
  EXPECT_TRUE(lane.ask(lane::ReleaseImport{imported.import}).is(lane::Kind::kDone));
  EXPECT_TRUE(lane.ask(lane::ReleaseImport{imported.import}).is(lane::Kind::kFailed)) << "once";
  EXPECT_EQ(lender->leave(), 0);
}

TEST_F(Sharing, ClientThatDoesNotReadItsImportsGetsNoMore) {
  auto lender = client_with(mebibytes(2));
  const lane::HandleBytes handle = bytes_of(handle_of(*lender, {{"uses", 1000}}));
  FrameLane lane(broker_.folder());
  lane.greet();
  constexpr int kImports = 300;
  for (int i = 0; i < kImports; ++i) lane.send(lane::ImportHandle{handle});
  // Between two calls of others the broker takes some frames of each lane: now it has done them all.
  for (int i = 0; i < kImports; ++i) broker_.device();
  int imported = 0, refused = 0;
  for (int i = 0; i < kImports; ++i) {
    const auto answer = lane.receive();
    imported += answer.is(lane::Kind::kImported) ? 1 : 0;
    refused += answer.is(lane::Kind::kFailed) ? 1 : 0;
  }
  EXPECT_GT(imported, 4);
  EXPECT_GT(refused, 4) << "each would have kept a descriptor";
  EXPECT_EQ(imported + refused, kImports);
  EXPECT_TRUE(lane.ask(lane::ImportHandle{handle}).is(lane::Kind::kImported)) << "it has read";
  EXPECT_EQ(lender->leave(), 0);
}

// ---- Several tenants ----

const User kClaimant = test_user(10'001), kSharer = test_user(10'002);

struct SharingTenants : Sharing {
  SharingTenants() : Sharing({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SharingTenants, AnotherTenantLearnsNothingFromAHandle) {
  auto lender = client_with(mebibytes(2), kClaimant);
  auto intruder = client({}, kSharer);
  const Json handle = handle_of(*lender);
  const Json refused = import(*intruder, handle);
  ASSERT_TRUE(failed_with(refused, "NOT_FOUND"));
  Json made_up = handle;
  made_up.back() = made_up.back().get<int>() ^ 1;
  const Json unknown = import(*intruder, made_up);
  ASSERT_TRUE(failed_with(unknown, "NOT_FOUND"));
  EXPECT_EQ(refused.at("message"), unknown.at("message"));
  auto friendly = client({}, kClaimant);
  EXPECT_TRUE(succeeded(import(*friendly, handle)));
  expect_rest_after(*friendly, *intruder, *lender);
}

struct SharingClaims : Sharing {
  SharingClaims()
      : Sharing({.config =
                     "[broker]\nreserve = \"100%\"\nsocket_group = 10000\n" + std::string(kEndsWhoKeeps)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SharingClaims, AUserThatKeepsReclaimedMemoryIsEndedWithTheLender) {
  auto lender = client_with(mebibytes(256), kSharer);
  auto user = client({}, kSharer);
  ASSERT_TRUE(succeeded(import(*user, handle_of(*lender))));
  auto ann = client({}, kClaimant);
  ann->begin_to_grow("a", mebibytes(64), std::chrono::minutes(1));
  EXPECT_TRUE(succeeded(ann->answer()));
  EXPECT_EQ(lender->child().wait(), -SIGTERM);
  EXPECT_EQ(user->child().wait(), -SIGTERM);
  expect_rest_after(*ann);
}

TEST_F(SharingClaims, AUserAloneIsEndedWhenTheLenderGaveItsMemoryBack) {
  auto lender = client_with(mebibytes(256), kSharer);
  auto user = client({}, kSharer);
  ASSERT_TRUE(succeeded(import(*user, handle_of(*lender))));
  EXPECT_TRUE(succeeded(lender->shrink("a", {})));
  auto ann = client({}, kClaimant);
  ann->begin_to_grow("a", mebibytes(64), std::chrono::minutes(1));
  EXPECT_TRUE(succeeded(ann->answer()));
  EXPECT_EQ(user->child().wait(), -SIGTERM);
  EXPECT_EQ(lender->leave(), 0) << "it owes nothing";
  expect_rest_after(*ann);
}

}  // namespace
}  // namespace gpumem::test
