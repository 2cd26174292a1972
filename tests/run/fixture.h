#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/support/broker_process.h"
#include "tests/support/client_process.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

/// Whether `text` has `words` in it. Prints the text where not.
inline testing::AssertionResult says(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << words << "' is not in: " << text;
}

inline std::filesystem::path actor_program() { return GPUMEM_TEST_ACTOR; }
/// The folder of a library that looks like the drop-in driver.
inline std::filesystem::path fake_shim_folder() {
  return std::filesystem::path(GPUMEM_TEST_FAKE_SHIM).parent_path();
}

/// The command `gpumem`, running, and what it and its command have said.
class RunningCli {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  RunningCli(std::vector<std::string> arguments, Variables environment, std::optional<User> user = {})
      : output_(::memfd_create("output", MFD_CLOEXEC)) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd input(ends[0]);
    input_.reset(ends[1]);
    child_ = std::make_unique<Child>(ChildOptions{.program = cli_program(),
                                                  .arguments = std::move(arguments),
                                                  .environment = std::move(environment),
                                                  .user = user,
                                                  .input = input.get(),
                                                  .output = output_.get(),
                                                  .own_group = true});
  }

  Child& child() { return *child_; }
  int wait() { return child_->wait(); }
  void tell(const std::string& line) const {
    EXPECT_EQ(::write(input_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string said() const {
    std::string text(static_cast<std::size_t>(::lseek(output_.get(), 0, SEEK_END)), '\0');
    const ssize_t count = ::pread(output_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return text;
  }
  /// Waits until it has said `words`, `times` times.
  testing::AssertionResult has_said(const std::string& words, int times = 1) const {
    const bool has = eventually([&] {
      int count = 0;
      const std::string text = said();
      for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
      return count >= times;
    });
    return has ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "'" << words << "' is not in: " << said();
  }
  /// Of a command that says `ready PID`.
  pid_t pid_of_command() const {
    EXPECT_TRUE(has_said("ready "));
    const std::string text = said();
    return static_cast<pid_t>(std::stol(text.substr(text.find("ready ") + 6)));
  }

 private:
  UniqueFd output_, input_;
  std::unique_ptr<Child> child_;
};

/// A broker, and what `gpumem` needs to run commands with it.
class RunTest : public testing::Test {
 protected:
  explicit RunTest(BrokerOptions options = {.config = "[broker]\nreserve = \"all-but 32MiB\"\n"})
      : broker_(std::move(options)) {}

  using Variables = RunningCli::Variables;
  Variables with(Variables more) const {
    more.emplace_back("GPUMEM_RUNTIME_DIR", broker_.folder());
    more.emplace_back("GPUMEM_SHIM_FOLDER", fake_shim_folder().string());
    return more;
  }
  Outcome gpumem(std::vector<std::string> arguments, Variables more = {}) const {
    return run({.program = cli_program(), .arguments = std::move(arguments), .environment = with(more)});
  }
  RunningCli begin(std::vector<std::string> arguments, std::optional<User> user = {}) const {
    return {std::move(arguments), with({}), user};
  }
  std::string device() const { return broker_.device().uuid(); }

  TemporaryFolder folder_;
  BrokerProcess broker_;
};

}  // namespace gpumem::test
