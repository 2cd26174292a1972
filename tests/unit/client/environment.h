#pragma once
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace gpumem::client::test {

/// Variables of this process's environment, while it exists.
class InEnvironment {
 public:
  explicit InEnvironment(std::vector<std::pair<std::string, std::string>> variables)
      : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~InEnvironment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  InEnvironment(const InEnvironment&) = delete;
  InEnvironment& operator=(const InEnvironment&) = delete;

 private:
  const std::vector<std::pair<std::string, std::string>> variables_;
};

}  // namespace gpumem::client::test
