// Fabric handles by gRPC: imported by processes that the broker knows nothing of.
#include <unistd.h>

#include "tests/integration/fixture.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

constexpr Bytes kGuarantee = mebibytes(64);
constexpr Bytes kGivenOut = mebibytes(2);  // one extent

/// The whole device is lent, so that nothing outside the pool passes as memory that came back. The test's own
/// user is guaranteed some.
std::string fabric_config(bool broker, bool tenant) {
  const auto key = [](bool is_set) { return std::string(is_set ? "fabric_handles = true\n" : ""); };
  return kNoSpare + key(broker) + "[[tenant]]\nname = \"me\"\nuser = " + std::to_string(::geteuid()) +
         "\nguarantee = \"64MiB\"\n" + key(tenant);
}

struct FabricHandles : BrokerTest {
  explicit FabricHandles(BrokerOptions options = {.simulate = "1x256MiB+fabric",
                                                  .config = fabric_config(true, true)})
      : BrokerTest(std::move(options)) {}

  struct Memory {
    std::uint64_t slice = 0;
    v1::GrowResponse granted;
  };
  static Memory grown(SessionStream& stream, Bytes bytes) {
    if (stream.opened().session() == 0) stream.open();
    Memory memory{stream.open_slice(), {}};
    const v1::SessionAnswer answer = stream.ask(growth(memory.slice, bytes));
    EXPECT_TRUE(answer.has_granted()) << answer.DebugString();
    memory.granted = answer.granted();
    return memory;
  }
  static v1::SessionRequest request_for(const Memory& memory) {
    v1::SessionRequest request;
    v1::ExportHandleRequest& wanted = *request.mutable_export_handle();
    wanted.set_kind(v1::HANDLE_KIND_FABRIC);
    wanted.set_slice(memory.slice);
    for (const v1::Lease& lease : memory.granted.leases()) wanted.add_leases(lease.id());
    return request;
  }
  /// A process with the driver, and without a session.
  Json import(ClientProcess& process, const v1::FabricPart& part) const {
    return process.ask({{"do", "fabric_import"},
                        {"driver", broker_.driver_folder()},
                        {"handle", std::vector<int>(part.handle().begin(), part.handle().end())},
                        {"size", part.size()}});
  }
  static Json access(ClientProcess& process, const char* what, int value) {
    return process.ask({{"do", what}, {"value", value}});
  }
  ClientProcess stranger() const { return ClientProcess(broker_.folder()); }
};

TEST_F(FabricHandles, CarryMemoryToProcessesWithoutASession) {
  EXPECT_TRUE(eventually([&] { return broker_.log().find("with fabric handles") != std::string::npos; }));
  ClientProcess painter = stranger();
  ClientProcess reader = stranger();
  SessionStream stream(broker_.folder());
  const Memory memory = grown(stream, mebibytes(6));
  v1::SessionRequest request = request_for(memory);
  request.mutable_export_handle()->set_offset(mebibytes(3).count);
  const v1::SessionAnswer answer = stream.ask(request);
  ASSERT_TRUE(answer.has_handle_exported()) << answer.DebugString();
  EXPECT_EQ(answer.handle_exported().handle(), "");
  ASSERT_EQ(answer.handle_exported().fabric_size(), 2);
  const v1::FabricPart& first = answer.handle_exported().fabric(0);
  EXPECT_EQ(first.handle().size(), 64U);
  EXPECT_EQ(first.lease(), memory.granted.leases(1).id());
  EXPECT_EQ(first.size(), mebibytes(2).count);
  EXPECT_EQ(first.offset(), mebibytes(1).count);
  EXPECT_EQ(first.bytes(), mebibytes(1).count);
  EXPECT_TRUE(succeeded(import(painter, first)));
  EXPECT_TRUE(succeeded(access(painter, "fabric_write", 7)));
  EXPECT_TRUE(succeeded(import(reader, first)));
  EXPECT_TRUE(succeeded(access(reader, "fabric_check", 7)));
  EXPECT_TRUE(failed_with(access(reader, "fabric_check", 8), "INTERNAL"));
  EXPECT_EQ(broker_.sessions().at(0).shared(0).fabric(), mebibytes(4).count);
  EXPECT_EQ(painter.leave(), 0);
  EXPECT_EQ(reader.leave(), 0);
  EXPECT_TRUE(stream.leave().ok());
  expect_rest();
}

TEST_F(FabricHandles, AnImporterKeepsTheBytesChargedAfterTheSession) {
  ClientProcess user = stranger();
  {
    SessionStream stream(broker_.folder());
    const Memory memory = grown(stream, kGivenOut);
    const v1::SessionAnswer answer = stream.ask(request_for(memory));
    ASSERT_EQ(answer.handle_exported().fabric_size(), 1) << answer.DebugString();
    ASSERT_TRUE(succeeded(import(user, answer.handle_exported().fabric(0))));
    EXPECT_TRUE(succeeded(access(user, "fabric_write", 9)));
    EXPECT_TRUE(stream.leave().ok());
  }
  EXPECT_TRUE(eventually([&] { return broker_.device().quarantined() == kGivenOut.count; }));
  EXPECT_EQ(broker_.tenant("me").quarantined(), kGivenOut.count) << "whose session gave it out";
  auto other = client();
  EXPECT_TRUE(failed_with(other->grow("a", mebibytes(256)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(other->grow("a", mebibytes(256) - kGivenOut, std::chrono::seconds(10))));
  EXPECT_TRUE(succeeded(access(user, "fabric_check", 9))) << "untouched";
  EXPECT_TRUE(succeeded(user.ask({{"do", "fabric_let_go"}})));
  EXPECT_TRUE(eventually([&] { return broker_.device().quarantined() == 0; }));
  EXPECT_EQ(other->leave(), 0);
  EXPECT_EQ(user.leave(), 0);
  expect_rest();
}

TEST_F(FabricHandles, AreRefusedBeyondTheGuaranteeAndWithTerms) {
  SessionStream stream(broker_.folder());
  const Memory memory = grown(stream, kGuarantee + mebibytes(2));
  v1::SessionRequest request = request_for(memory);
  v1::FailedResponse failed = stream.ask(request).failed();
  EXPECT_EQ(failed.code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(failed.message().find("64MiB"), std::string::npos) << failed.message();
  request.mutable_export_handle()->set_uses(1);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_export_handle()->set_kind(static_cast<v1::HandleKind>(9));
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(stream.leave().ok());
  expect_rest();
}

/// What the first request for a fabric handle is refused with.
template <bool kBroker, bool kTenant>
struct Without : FabricHandles {
  explicit Without(std::string machine = "1x256MiB+fabric")
      : FabricHandles({.simulate = std::move(machine), .config = fabric_config(kBroker, kTenant)}) {}
  v1::FailedResponse refusal() {
    SessionStream stream(broker_.folder());
    const v1::SessionAnswer answer = stream.ask(request_for(grown(stream, kGivenOut)));
    EXPECT_TRUE(answer.has_failed()) << answer.DebugString();
    EXPECT_TRUE(stream.leave().ok());
    return answer.failed();
  }
  void expect_refused(grpc::StatusCode code, const std::string& words) {
    const v1::FailedResponse failed = refusal();
    EXPECT_EQ(failed.code(), code);
    EXPECT_NE(failed.message().find(words), std::string::npos) << failed.message();
    expect_rest();
  }
};

using FabricHandlesOff = Without<false, false>;
TEST_F(FabricHandlesOff, AreRefusedWithTheKeyThatTurnsThemOn) {
  expect_refused(grpc::StatusCode::FAILED_PRECONDITION, "fabric_handles in [broker]");
  broker_.reload(fabric_config(true, true));
  EXPECT_TRUE(
      eventually([&] { return broker_.log().find("fabric_handles stays 'false'") != std::string::npos; }));
  expect_refused(grpc::StatusCode::FAILED_PRECONDITION, "restart the broker");
}

using FabricHandlesOfNobody = Without<true, false>;
TEST_F(FabricHandlesOfNobody, AreRefusedWithTheKeyThatAllowsThem) {
  expect_refused(grpc::StatusCode::PERMISSION_DENIED, "fabric_handles = true in its [[tenant]]");
  broker_.reload(fabric_config(true, true));
  SessionStream stream(broker_.folder());
  EXPECT_TRUE(stream.ask(request_for(grown(stream, kGivenOut))).has_handle_exported());
  EXPECT_TRUE(stream.leave().ok());
}

struct FabricHandlesOfAnOldDevice : Without<true, true> {
  FabricHandlesOfAnOldDevice() : Without("1x256MiB") {}
};
TEST_F(FabricHandlesOfAnOldDevice, AreRefusedAndMemoryIsLentAllTheSame) {
  EXPECT_TRUE(eventually(
      [&] { return broker_.log().find("lent without fabric handles: the device") != std::string::npos; }));
  expect_refused(grpc::StatusCode::FAILED_PRECONDITION, "does not offer fabric handles");
}

}  // namespace
}  // namespace gpumem::test
