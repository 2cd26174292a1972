// One user's calls of gRPC, each made to cost the broker memory or threads: they stay within that user's
// share.
#include <fstream>
#include <functional>

#include "proto/lane.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/raw_http2.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

constexpr uid_t kAttacker = 10'007;
constexpr int kConnections = 8, kCalls = 250;  // of each connection

using Connect = std::function<RawHttp2(RawHttp2::Reads, bool acknowledges)>;
using Connections = std::vector<RawHttp2>;

// Each call sends all but the end of a message of 4 MiB, as fast as the broker takes it.
Connections unfinished_messages(const Connect& connect) {
  constexpr std::uint32_t kLength = 4 << 20;
  Connections all;
  for (int i = 0; i < kConnections; ++i) {
    RawHttp2& one = all.emplace_back(connect(RawHttp2::Reads::kAll, true));
    std::map<std::uint32_t, std::size_t> left;
    one.take_in(1000);
    for (int call = 0; call < 25; ++call) {
      const std::uint32_t stream = one.call("/gpumem.v1.Monitor/GetStatus");
      one.begin_message(stream, kLength);
      left[stream] = kLength - 1;
    }
    for (int idle = 0; idle < 3 && !one.is_cut();) {
      std::size_t sent = 0;
      for (auto& [stream, bytes] : left) {
        const std::size_t some = one.send_some(stream, bytes);
        bytes -= some;
        sent += some;
      }
      idle = sent == 0 ? idle + 1 : 0;
      one.take_in(sent == 0 ? 100 : 0);
    }
  }
  return all;
}

// Listings of many tenants, whose answers nobody reads.
Connections unread_listings(const Connect& connect) {
  Connections all;
  for (int i = 0; i < kConnections; ++i) {
    RawHttp2& one = all.emplace_back(connect(RawHttp2::Reads::kNothing, true));
    for (int call = 0; call < kCalls; ++call) one.send_empty(one.call("/gpumem.v1.Monitor/ListTenants"));
  }
  return all;
}

Connections calls_reset_at_once(const Connect& connect) {
  Connections all;
  for (int i = 0; i < kConnections; ++i) {
    RawHttp2& one = all.emplace_back(connect(RawHttp2::Reads::kAll, true));
    for (int call = 0; call < 5'000 && !one.is_cut(); ++call) {
      const std::uint32_t stream = one.call("/gpumem.v1.Monitor/ListTenants");
      one.send_empty(stream);
      one.reset(stream);
      one.take_in();
    }
  }
  return all;
}

Connections streams(const Connect& connect, std::string_view path, bool acknowledges, int calls) {
  Connections all;
  for (int i = 0; i < kConnections; ++i) {
    RawHttp2& one = all.emplace_back(connect(RawHttp2::Reads::kAll, acknowledges));
    for (int call = 0; call < calls && !one.is_cut(); ++call) {
      one.call(path);
      one.take_in();
    }
  }
  return all;
}

Connections reflection_streams(const Connect& connect) {
  return streams(connect, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true, kCalls);
}

// A client that has not acknowledged the settings is not bound to them, as far as gRPC goes.
Connections streams_beyond_the_settings(const Connect& connect) {
  return streams(connect, "/gpumem.v1.Broker/Session", false, 4'000);
}

struct Script {
  const char* name;
  Connections (*run)(const Connect& connect);
};

struct GrpcFlood : BrokerTest, testing::WithParamInterface<Script> {
  GrpcFlood() : BrokerTest({.config = config()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  static std::string config() {
    std::string text = kShared;
    for (int i = 0; i < 256; ++i)
      text += "[[tenant]]\nname = \"tenant-with-a-long-name-" + std::string(60, 'x') + std::to_string(i) +
              "\"\nuser = " + std::to_string(20'000 + i) + "\n";
    return text;
  }
  RawHttp2 connect(RawHttp2::Reads reads, bool acknowledges) {
    const AsUser user(kAttacker, BrokerProcess::kGroup);
    return RawHttp2(connect_to_stream(broker_.folder() + "/" + kApiSocketName), reads, acknowledges);
  }
  /// A figure of /proc/PID/status: KiB, or a number.
  long figure(const std::string& name) const {
    std::ifstream status("/proc/" + std::to_string(broker_.pid()) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
    return -1;
  }
};

TEST_P(GrpcFlood, CostsTheBrokerLittleAndNobodyElseAnything) {
  auto before = client_with(mebibytes(4), test_user(10'002));
  [[maybe_unused]] const long memory = figure("VmRSS");
  const long threads = figure("Threads");
  {
    const auto held = GetParam().run([this](auto... how) { return connect(how...); });
    auto other = client_with(mebibytes(4), test_user(10'003));
    EXPECT_EQ(other->leave(), 0);
    EXPECT_TRUE(broker_.status().version() == GPUMEM_VERSION);
    EXPECT_LE(figure("Threads"), threads + 4);
  }
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  EXPECT_LE(figure("VmHWM") - memory, 64 * 1024);
#endif
  EXPECT_TRUE(succeeded(before->ask({{"do", "ping"}})));
  EXPECT_EQ(before->leave(), 0);
  expect_rest();
}

INSTANTIATE_TEST_SUITE_P(Scripts, GrpcFlood,
                         testing::Values(Script{"UnfinishedMessages", unfinished_messages},
                                         Script{"UnreadListings", unread_listings},
                                         Script{"CallsResetAtOnce", calls_reset_at_once},
                                         Script{"ReflectionStreams", reflection_streams},
                                         Script{"StreamsBeyondTheSettings", streams_beyond_the_settings}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace gpumem::test
