#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <ostream>

#include "tests/support/broker_process.h"
#include "tests/support/client_process.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

/// The first device of most tests: 256 MiB, of which 224 MiB are lent; the rest is for clients' contexts.
inline constexpr Bytes kPool = mebibytes(224);
inline constexpr const char* kSomeSpare = "[broker]\nreserve = \"all-but 32MiB\"\n";
/// A device that is lent whole: what somebody holds on to cannot be made up for by memory outside the pool.
inline constexpr const char* kNoSpare = "[broker]\nreserve = \"100%\"\n";

/// Users that no test's own processes have.
inline const User kAnn = test_user(10'001), kBob = test_user(10'002), kCat = test_user(10'003);

/// An answer of a client that went well, or failed with the code. Prints the answer where not.
inline testing::AssertionResult succeeded(const Json& answer) {
  if (answer.at("ok").get<bool>()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << answer.dump();
}
inline testing::AssertionResult failed_with(const Json& answer, const std::string& code) {
  if (!answer.at("ok").get<bool>() && answer.at("code") == code) return testing::AssertionSuccess();
  return testing::AssertionFailure() << answer.dump();
}

/// A program that has ended with the status, and said the words. Prints what it said where not.
inline testing::AssertionResult says(const Outcome& outcome, int status, const std::string& words) {
  if (outcome.status == status && outcome.output.find(words) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "status " << outcome.status << ", said: " << outcome.output;
}

/// Clients end well, one after the other.
template <class... Clients>
void expect_to_leave(Clients&... clients) {
  for (ClientProcess* client : {static_cast<ClientProcess*>(&clients)...}) EXPECT_EQ(client->leave(), 0);
}

/// A broker that starts for one test, and that must be at rest when the test has ended its clients.
class BrokerTest : public testing::Test {
 protected:
  explicit BrokerTest(BrokerOptions options = {.config = kSomeSpare}) : broker_(std::move(options)) {}

  /// A client that has connected and opened slice "a" of the first device.
  std::unique_ptr<ClientProcess> client(Bytes limit = {}, std::optional<User> user = {});
  /// As client(), grown to `bytes`.
  std::unique_ptr<ClientProcess> client_with(Bytes bytes, std::optional<User> user = {});
  /// Kills `client` and waits until the broker has taken back what it had: until then it is the tenant's.
  void kill_and_reclaim(ClientProcess& client);
  /// Bytes of others' memory that the session at that place of the listing uses.
  std::uint64_t imported_by(std::size_t place) const;
  /// Waits until `count` requests wait.
  void await_waiters(std::uint64_t count);
  /// A client works on over `next_broker`, twice, and loses nothing.
  void expect_a_pause(const std::function<void()>& next_broker);
  /// Runs `gpumem` for this broker.
  Outcome gpumem(std::vector<std::string> words, std::optional<User> user = {}) const {
    return run(broker_.command(std::move(words), user));
  }
  /// Nothing is charged, no session is left, and the driver's figure is the pool to the byte.
  void expect_rest();
  /// Ends these clients, and expects rest.
  template <class... Clients>
  void expect_rest_after(Clients&... clients) {
    expect_to_leave(clients...);
    expect_rest();
  }

  std::chrono::milliseconds client_timeout_ = kPatience;  ///< of the calls of client()'s sessions
  BrokerProcess broker_;
};

/// Tests whose clients are several users; the configuration adds tenants to `kShared`.
#define GPUMEM_NEEDS_ROOT() \
  if (::geteuid() != 0)     \
  GTEST_SKIP() << "several tenants are several users: only root can start their processes"

/// As kSomeSpare; any process with BrokerProcess::kGroup may connect.
inline constexpr const char* kShared = "[broker]\nreserve = \"all-but 32MiB\"\nsocket_group = 10000\n";
/// With `more` in it; without root, where such tests are skipped, one that needs none.
inline std::string shared(const std::string& more = {}) {
  return ::geteuid() == 0 ? kShared + more : kSomeSpare;
}
/// Guarantees that are idle are lent, and user 10001 has one. The deadline never passes: what comes back
/// comes because somebody was asked.
inline constexpr const char* kLending = R"(
lend_guarantees = true
reclaim_deadline_ms = 3600000
[[tenant]]
name = "ann"
user = 10001
guarantee = "64MiB"
)";

}  // namespace gpumem::test
