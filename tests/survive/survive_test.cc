#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

// Clients of several kinds, that end with an error on anything that is not as it should be.
class Survive : public testing::Test {
 protected:
  void start_clients() {
    add({GPUMEM_TEST_ENDURANCE, {"slice", "1"}});
    add({GPUMEM_TEST_ENDURANCE, {"allocator", "2"}});
#ifndef GPUMEM_TEST_NO_PYTHON
    add({"/usr/bin/python3", {GPUMEM_TEST_ENDURANCE_PY}});
#endif
  }

  // Lets every client do some more rounds, and then takes the broker away.
  void kill_and_restart(int times) {
    for (int i = 0; i < times && !HasFailure(); ++i) {
      await_rounds(1 + random_() % 4);
      if (random_() % 6 == 0)
        EXPECT_EQ(broker_.stop(), 0);
      else
        broker_.kill();
      broker_.start_again();
    }
    await_rounds(1);
  }

  // Between them it is killed now and then, so that not every broker has all descriptors.
  void upgrade(int times) {
    for (int i = 0; i < times && !HasFailure(); ++i) {
      await_rounds(1 + random_() % 4);
      const Outcome outcome = broker_.upgrade();
      EXPECT_EQ(outcome.status, 0) << outcome.output;
      if (random_() % 4 == 0) kill_and_restart(1);
    }
    await_rounds(1);
  }

  void expect_that_nothing_was_lost() {
    for (Client& client : clients_) client.child->signal(SIGTERM);
    for (Client& client : clients_) EXPECT_EQ(client.child->wait(), 0) << client.progress;
    EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
    EXPECT_EQ(broker_.used_of_driver(), broker_.device().pool());
  }

 private:
  struct Client {
    std::unique_ptr<Child> child;
    std::filesystem::path progress;
    std::size_t rounds() const {
      struct stat found {};
      return ::stat(progress.c_str(), &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
    }
  };

  void add(ChildOptions options) {
    const auto progress = folder_ / ("progress-" + std::to_string(clients_.size()));
    options.arguments.push_back(progress.string());
    options.environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()},
                           {"ENDURANCE_DRIVER_FOLDER", broker_.driver_folder()},
                           {"GPUMEM_LIBRARY", GPUMEM_TEST_LIBRARY},
                           {"PYTHONPATH", GPUMEM_TEST_PACKAGE},
                           {"PYTHONDONTWRITEBYTECODE", "1"}};
    clients_.push_back({std::make_unique<Child>(options), progress});
  }

  void await_rounds(std::size_t more) {
    for (const Client& client : clients_) {
      const std::size_t enough = client.rounds() + more;
      EXPECT_TRUE(eventually([&] { return client.rounds() >= enough || !client.child->running(); }));
      EXPECT_TRUE(client.child->running()) << client.progress << " has ended";
    }
  }

  TemporaryFolder folder_;
  BrokerProcess broker_{{.config = "[broker]\nreserve = \"all-but 32MiB\"\n"}};
  std::vector<Client> clients_;
  std::mt19937 random_{20'261'123};
};

using LongSurvive = Survive;

TEST_F(Survive, ClientsOfABrokerThatIsKilledFourTimesLoseNothing) {
  start_clients();
  kill_and_restart(4);
  expect_that_nothing_was_lost();
}

TEST_F(LongSurvive, ClientsOfABrokerThatIsKilledTwoHundredTimesLoseNothing) {
  start_clients();
  kill_and_restart(200);
  expect_that_nothing_was_lost();
}

TEST_F(Survive, ClientsOfABrokerThatIsUpgradedTwiceLoseNothing) {
  start_clients();
  upgrade(2);
  expect_that_nothing_was_lost();
}

TEST_F(LongSurvive, ClientsOfABrokerThatIsUpgradedTwentyTimesLoseNothing) {
  start_clients();
  upgrade(20);
  expect_that_nothing_was_lost();
}

}  // namespace
}  // namespace gpumem::test
