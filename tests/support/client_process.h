#pragma once
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "gpumem/bytes.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"

namespace gpumem::test {

using Json = nlohmann::json;

struct ClientOptions {
  std::optional<User> user{};
  std::vector<std::string> arguments{};  ///< other than to serve; see test_client.cc
  std::vector<std::pair<std::string, std::string>> environment{};
  int output = -1;  ///< becomes standard output and standard error; none: the test's own
};

/// A process that uses libgpumem as it is told. Every command answers JSON: `ok`, and either what came of it
/// or `code` (as gpumem::code_name spells it), `message` and, of a refused growth, `denial`.
class ClientProcess {
 public:
  /// Starts it. Nothing is connected yet.
  explicit ClientProcess(const std::string& runtime_folder, ClientOptions options = {});

  pid_t pid() const { return child_->pid(); }
  Child& child() { return *child_; }
  void kill() { child_->kill(); }
  /// Ends it in good order; the exit status.
  int leave();

  /// Sends a command without waiting for what comes of it, and takes the answer of the oldest one.
  /// Descriptors that came with it are put into `descriptors`.
  void tell(const Json& command);
  /// Whether answer() has not to wait: there is one, or the client has ended. Waits so long for that.
  bool has_answer(std::chrono::milliseconds patience) const;
  /// As tell(), to a client that may have ended: then the answer says so.
  void tell_if_there(const Json& command);
  Json answer(std::vector<UniqueFd>* descriptors = nullptr);
  Json ask(const Json& command) {
    tell(command);
    return answer();
  }

  // The commands that most tests need. `slice` is the test's own name for one.
  /// `timeout`  of the session's calls.
  Json connect(const std::string& label = "test", std::chrono::milliseconds timeout = kPatience);
  Json disconnect() { return ask({{"do", "disconnect"}}); }
  Json open(const std::string& slice, Bytes limit = {}, const std::string& device = "");
  Json grow(const std::string& slice, Bytes target, std::chrono::milliseconds wait = {}) {
    begin_to_grow(slice, target, wait);
    return answer();
  }
  void begin_to_grow(const std::string& slice, Bytes target, std::chrono::milliseconds wait);
  Json shrink(const std::string& slice, Bytes target);
  Json close(const std::string& slice) { return ask({{"do", "close"}, {"slice", slice}}); }
  /// Through the driver: sets the committed bytes of the slice; whether all of them have that value.
  Json write(const std::string& slice, int value);
  Json check(const std::string& slice, int value);

 private:
  UniqueFd channel_;
  std::unique_ptr<Child> child_;
};

}  // namespace gpumem::test
