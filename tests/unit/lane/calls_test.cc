// Every request exists on both transports, with the same fields.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "daemon/lane/session_calls.h"
#include "gpumem/v1/broker.pb.h"
#include "tests/support/no_executor.h"

namespace gpumem::lane {
namespace {

// The kind that carries each request. A request that is added to the core does not compile until it has one.
Kind kind_of(const core::OpenSlice&) { return Kind::kOpenSlice; }
Kind kind_of(const core::CloseSlice&) { return Kind::kCloseSlice; }
Kind kind_of(const core::Grow&) { return Kind::kGrow; }
Kind kind_of(const core::Return&) { return Kind::kReturn; }
Kind kind_of(const core::ExportHandle&) { return Kind::kExportHandle; }
Kind kind_of(const core::ImportHandle&) { return Kind::kImportHandle; }
Kind kind_of(const core::RevokeHandle&) { return Kind::kRevokeHandle; }
Kind kind_of(const core::ReleaseImport&) { return Kind::kReleaseImport; }
Kind kind_of(const core::Publish&) { return Kind::kPublish; }
Kind kind_of(const core::MapRegion&) { return Kind::kMapRegion; }
Kind kind_of(const core::MapOrReserve&) { return Kind::kMapOrReserve; }
Kind kind_of(const core::ReleaseReservation&) { return Kind::kReleaseReservation; }
Kind kind_of(const core::RemoveRegion&) { return Kind::kRemoveRegion; }
Kind kind_of(const core::DeclareCharge&) { return Kind::kCharge; }
Kind kind_of(const core::Ping&) { return Kind::kPing; }
Kind kind_of(const core::Spent&) { return Kind::kSpent; }
Kind kind_of(const core::Describe&) { return Kind::kDescribe; }
Kind kind_of(const core::Explain&) { return Kind::kExplain; }
Kind kind_of(const core::BeginJob&) { return Kind::kBeginJob; }
Kind kind_of(const core::ReserveForJob&) { return Kind::kReserveForJob; }
Kind kind_of(const core::DescribeJob&) { return Kind::kDescribeJob; }

// The message of each request on the stream.
std::string type_of(std::string_view call) {
  if (call == "Explain") return "ExplainSessionRequest";  // as Monitor has one for everybody
  return std::string(call) + "Request";
}

struct NoSender final : core::PacketSender {
  void send(SessionId, std::string_view, const core::SentExtents&) override {}
  bool is_behind(SessionId) const override { return false; }
};

struct CountingExecutor final : test::NoExecutor {
  void after(std::function<void()>) override { ++answers; }
  int answers = 0;
};

struct LaneCalls : testing::Test {
  LaneCalls() : broker(policy()), calls(executor, sender) {}
  static core::Policy policy() {
    core::Policy one;
    one.devices = {{"GPU-0", "one", mebibytes(64), mebibytes(64), mebibytes(2)}};
    one.others = {{{.guarantee = {}, .limit = mebibytes(64)}}};
    return one;
  }
  Result<void> receive(Kind kind, std::size_t bytes) {
    const Header header{kMagic, kVersion, kind, 1, 0};
    std::string packet(reinterpret_cast<const char*>(&header), sizeof header);
    packet.append(bytes, '\xff');
    return calls.receive(SessionId{1}, packet, broker, {});
  }

  CountingExecutor executor;
  NoSender sender;
  core::Broker broker;
  SessionCalls calls;
};

template <std::size_t I = 0, class Visit>
void for_each_call(Visit visit) {
  if constexpr (I < std::variant_size_v<core::AnyRequest>) {
    visit(core::kRequestNames[I], kind_of(std::variant_alternative_t<I, core::AnyRequest>{}));
    for_each_call<I + 1>(visit);
  }
}

TEST_F(LaneCalls, AreAllCarriedByBothTransports) {
  const auto* requests = v1::SessionRequest::descriptor()->FindOneofByName("request");
  ASSERT_NE(requests, nullptr);
  std::set<std::string> types;
  for (int i = 0; i < requests->field_count(); ++i) types.insert(requests->field(i)->message_type()->name());
  // Opening, withdrawing and leaving are each transport's own.
  EXPECT_EQ(types.size(), core::kRequestNames.size() + 3);
  for_each_call([&](std::string_view name, Kind kind) {
    EXPECT_TRUE(types.contains(type_of(name))) << name << " is not known by the stream";
    const auto broken = receive(kind, 4000);
    ASSERT_FALSE(broken) << name;
    EXPECT_EQ(broken.error().message.find("unknown kind"), std::string::npos)
        << name << " is not known by frames";
  });
  EXPECT_EQ(executor.answers, 0);
}

TEST_F(LaneCalls, OfUnknownKindsAreBroken) {
  for (int kind = 0; kind < 300; ++kind) {
    const auto taken = receive(static_cast<Kind>(kind), 4000);
    EXPECT_FALSE(taken) << kind;
  }
}

// ---- Deadlines ----

/// Keeps what is sent.
struct RecordingSender final : core::PacketSender {
  void send(SessionId, std::string_view bytes, const core::SentExtents&) override {
    sent.emplace_back(bytes);
  }
  bool is_behind(SessionId) const override { return false; }
  std::vector<std::string> sent;
};

struct PromptExecutor final : test::NoExecutor {
  void after(std::function<void()> done) override { done(); }
};

/// A session whose requests come after their deadlines.
struct LateCalls : testing::Test {
  LateCalls() : broker(LaneCalls::policy()), calls(executor, sender) {
    const auto opened = broker.open_session({.pid = 1, .uid = 1, .gids = {1}, .command = "test"}, "", now);
    EXPECT_TRUE(opened);
    session = *opened;
  }
  /// Whether the request `body` is not done because it is late.
  template <class Body>
  bool is_refused(const Body& body) {
    sender.sent.clear();
    EXPECT_TRUE(calls.receive(session, Outgoing(body, 1, 1).bytes(), broker, now));
    if (sender.sent.size() != 1) return false;
    const auto failed = body_of<Failed>(*parse(sender.sent[0]));
    return failed && failed->code == static_cast<std::uint64_t>(Code::kDeadlineExceeded);
  }

  const core::TimePoint now{std::chrono::hours(1)};
  PromptExecutor executor;
  RecordingSender sender;
  core::Broker broker;
  SessionCalls calls;
  SessionId session;
};

/// The list in docs/lane.md of requests that may be answered with DEADLINE_EXCEEDED.
std::string page_on_late_requests() {
  std::ifstream file(GPUMEM_LANE_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const auto begin = text.find("deadline has passed when the broker reads them:");
  return begin == std::string::npos ? "" : text.substr(begin, text.find('.', begin) - begin);
}

TEST_F(LateCalls, AreRefusedIfThePageOfTheLaneSaysSo) {
  const std::string page = page_on_late_requests();
  EXPECT_NE(page, "");
  const auto check = [&](std::string_view name, const auto& body) {
    const bool is_named = page.find(" " + std::string(name) + ",") != std::string::npos ||
                          page.find("\n" + std::string(name) + ",") != std::string::npos ||
                          page.ends_with(" " + std::string(name));
    EXPECT_EQ(is_refused(body), is_named) << name;
  };
  check("OpenSlice", OpenSlice{});
  check("CloseSlice", CloseSlice{});
  check("Grow", Grow{});
  check("Return", Return{});
  check("Charge", Charge{});
  check("Ping", Ping{});
  check("ExportHandle", ExportHandle{});
  check("ImportHandle", ImportHandle{});
  check("ReleaseImport", ReleaseImport{});
  check("Describe", Describe{});
  check("Explain", Explain{});
  check("RevokeHandle", RevokeHandle{});
  check("Publish", Publish{});
  check("MapRegion", MapRegion{});
  check("RemoveRegion", RemoveRegion{});
  check("MapOrReserve", MapOrReserve{});
  check("ReleaseReservation", ReleaseReservation{});
  check("BeginJob", BeginJob{});
  check("ReserveForJob", ReserveForJob{});
  check("DescribeJob", DescribeJob{});
}

core::Denial denial() {
  core::Denial one;
  one.reason = core::Denial::Reason::kTenantLimit;
  one.device = "GPU-0";
  one.tenant = std::string(200, 't');
  one.asked = {1};
  one.asked_min = {2};
  one.quota = {.guarantee = {3}, .limit = {4}};
  one.charged = {5};
  one.pool = {6};
  one.free = {7};
  one.kept_for_others = {8};
  one.charged_to_others = {9};
  one.waiters_ahead = 10;
  one.waited = std::chrono::milliseconds(11);
  one.wait_limit = std::chrono::milliseconds(12);
  one.limiting_tenant = "group";
  one.limiting_limit = {13};
  one.limiting_charged = {14};
  one.returning = {15};
  one.asked_back = {16};
  one.soonest = {std::chrono::milliseconds(17), "then"};
  for (std::uint64_t i = 1; i <= 20; ++i) one.holders.push_back({SessionId{i}, 100, "python", {18}, "t"});
  one.other_tenants.push_back({{}, 0, "", {19}, "secret"});
  return one;
}

TEST(LaneConvert, KeepsEveryFigureOfADenial) {
  const Failed body =
      to_body(core::GrowFailure{{Code::kResourceExhausted, std::string(2000, 'w')}, denial()});
  EXPECT_EQ(body.code, 8U);
  EXPECT_EQ(body.message.view().size(), 1024U) << "cut off";
  const Denial& one = body.denial;
  const std::uint64_t figures[] = {
      one.reason,         one.asked,      one.asked_min,  one.tenant_guarantee, one.tenant_limit,
      one.tenant_charged, one.pool,       one.free,       one.kept_for_others,  one.charged_to_others,
      one.waiters_ahead,  one.waited,     one.wait_limit, one.limiting_limit,   one.limiting_charged,
      one.returning,      one.asked_back, one.soonest};
  const std::uint64_t expected[] = {2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_TRUE(std::ranges::equal(figures, expected));
  EXPECT_EQ(one.soonest_known, 1U);
  EXPECT_EQ(one.soonest_why.view(), "then");
  EXPECT_EQ(one.limiting_tenant.view(), "group");
  EXPECT_EQ(one.tenant.view().size(), 128U);
  EXPECT_EQ(body.count, kMostHolders);
  EXPECT_EQ(body.own, kMostHolders) << "other tenants' names are not told";
  EXPECT_EQ(body.holders[7].session, 8U);
  EXPECT_EQ(body.holders[7].command.view(), "python");
}

TEST(DenialReasons, AreThoseOfTheProtobufDenial) {
  using Reason = core::Denial::Reason;
  const std::pair<Reason, v1::Denial::Reason> reasons[] = {
      {Reason::kSliceLimit, v1::Denial::REASON_SLICE_LIMIT},
      {Reason::kTenantLimit, v1::Denial::REASON_TENANT_LIMIT},
      {Reason::kPoolSize, v1::Denial::REASON_POOL_SIZE},
      {Reason::kNoMemory, v1::Denial::REASON_NO_MEMORY},
      {Reason::kDebt, v1::Denial::REASON_DEBT},
      {Reason::kTurn, v1::Denial::REASON_TURN}};
  for (const auto& [reason, number] : reasons)
    EXPECT_EQ(static_cast<int>(reason), static_cast<int>(number)) << number;
}

TEST(LaneConvert, CutsAGrantIntoFrames) {
  core::Grant grant{GrantId{5}, {}};
  for (std::uint64_t i = 1; i <= 300; ++i)
    grant.leases.push_back({LeaseId{i}, {ExtentId{i}, mebibytes(2)}, SliceId{9}, 0});
  std::uint64_t next = 1;
  for (std::size_t first = 0; first < 300; first += kMostLeases) {
    const Granted body = to_body(grant, first);
    EXPECT_EQ(body.grant, 5U);
    EXPECT_EQ(body.missing, 300 - first - body.count);
    for (std::size_t i = 0; i < body.count; ++i) EXPECT_EQ(body.leases[i].lease, next++);
  }
  EXPECT_EQ(next, 301U);
}

}  // namespace
}  // namespace gpumem::lane
