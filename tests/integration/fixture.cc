#include "tests/integration/fixture.h"

namespace gpumem::test {

std::unique_ptr<ClientProcess> BrokerTest::client(Bytes limit, std::optional<User> user) {
  auto client = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{.user = user});
  EXPECT_TRUE(succeeded(client->connect("test", client_timeout_)));
  EXPECT_TRUE(succeeded(client->open("a", limit)));
  return client;
}

std::unique_ptr<ClientProcess> BrokerTest::client_with(Bytes bytes, std::optional<User> user) {
  auto client = this->client({}, user);
  EXPECT_TRUE(succeeded(client->grow("a", bytes, std::chrono::seconds(60))));
  return client;
}

void BrokerTest::kill_and_reclaim(ClientProcess& client) {
  const auto sessions = broker_.sessions().size();
  client.kill();
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() < sessions; }));
}

std::uint64_t BrokerTest::imported_by(std::size_t place) const {
  std::uint64_t imported = 0;
  const v1::SessionInfo session = broker_.sessions().at(place);
  for (const v1::SharedMemory& one : session.shared()) imported += one.imported();
  return imported;
}

void BrokerTest::await_waiters(std::uint64_t count) {
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == count; })) << broker_.device().waiting();
}

void BrokerTest::expect_a_pause(const std::function<void()>& next_broker) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 9)));
  next_broker();
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
  next_broker();
  EXPECT_EQ(broker_.device().pool(), kPool.count);
  EXPECT_EQ(broker_.device().active(), mebibytes(64).count);
  EXPECT_EQ(broker_.used_of_driver(), kPool.count);
  EXPECT_TRUE(succeeded(one->shrink("a", mebibytes(48))));
  EXPECT_TRUE(succeeded(one->check("a", 9)));
  EXPECT_TRUE(succeeded(one->disconnect()));
  expect_rest();
}

void BrokerTest::expect_rest() {
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
  EXPECT_EQ(broker_.used_of_driver(), broker_.device().pool());
}

}  // namespace gpumem::test
