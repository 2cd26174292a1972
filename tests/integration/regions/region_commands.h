#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/fixture.h"

namespace gpumem::test {

/// The commands about regions, on files of the test's.
struct RegionCommands : BrokerTest {
  /// `environment`  of the broker, besides its own.
  explicit RegionCommands(std::vector<std::pair<std::string, std::string>> environment = {})
      : BrokerTest({.config = shared(), .environment = std::move(environment)}) {}

  Json regions(std::optional<User> user = {}, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"regions", "--json"});
    const Outcome outcome = gpumem(std::move(more), user);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return Json::parse(outcome.output, nullptr, false)["regions"];
  }
  /// `gpumem publish` of the file, once it has published.
  std::unique_ptr<Child> publish(std::vector<std::string> arguments, std::optional<User> user = {}) {
    const std::size_t before = regions().size();
    arguments.insert(arguments.begin(), "publish");
    auto child = std::make_unique<Child>(broker_.command(std::move(arguments), user));
    EXPECT_TRUE(eventually([&] { return !child->running() || regions().size() > before; }));
    EXPECT_TRUE(child->running());
    return child;
  }
  static int interrupt(Child& child) {
    child.signal(SIGINT);
    return child.wait();
  }
  std::string file(const std::string& name, const std::string& content) {
    write_file(files_ / name, content);
    return (files_ / name).string();
  }
  /// More than the buffer that it goes through, and no multiple of anything.
  static std::string some_content() {
    std::string content((std::size_t{17} << 20) + 3, '\0');
    std::mt19937 random(7);
    for (char& letter : content) letter = static_cast<char>(random());
    return content;
  }

  TemporaryFolder files_;
};

}  // namespace gpumem::test
