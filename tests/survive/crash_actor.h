#pragma once
#include <map>
#include <memory>
#include <string>

#include "tests/support/client_process.h"
#include "tests/survive/crash_stage.h"

namespace gpumem::test {

/// A client of the scenario. Each command is carried out in the end: if the broker dies meanwhile, another
/// one is started; if the client dies, another client does it.
class CrashActor {
 public:
  CrashActor(CrashStage& stage, std::string name, uid_t user);

  const std::string& name() const { return name_; }
  /// Starts it, connects, and opens its slice "a", whose memory may be trimmed.
  void enter();
  bool is_there() const { return client_ != nullptr && client_->child().running(); }

  /// Its answer; one with the code `gone`, if it has died, or `stopped`, if it stands still.
  Json ask(const Json& command);
  /// The two halves of that: what it does meanwhile, others see.
  void tell(const Json& command);
  Json await();
  /// Asks until that succeeds; fails the test if it never does. A client that is stopped stays so, and is let
  /// off.
  Json insist(const Json& command);
  /// Grows the slice, and gives all of it a value of its own.
  void grow(const std::string& slice, Bytes target, int value);
  /// As grow(), with one attempt. False: it failed.
  bool try_to_grow(const std::string& slice, Bytes target, int value);
  void shrink(const std::string& slice, Bytes target);
  void close(const std::string& slice);
  /// Every byte of it is as it was written.
  void verify();
  /// Bytes that its slices have, by its own count; nothing if it has died.
  std::optional<std::uint64_t> committed();

  /// Gives everything back, and ends.
  void leave();
  /// Ends the client, unless the broker has ended it already.
  void end();
  /// Whether it is still the process `pid`.
  bool is_process(pid_t pid) const { return is_there() && client_->pid() == pid; }
  /// The signal that it was ended by, if it was.
  std::optional<int> ended_by() const { return ended_by_; }
  pid_t pid() const { return client_->pid(); }

 private:
  void start();
  void note_end();
  bool is_stopped() const;

  CrashStage& stage_;
  const std::string name_;
  const User user_;
  std::unique_ptr<ClientProcess> client_;
  std::map<std::string, int> painted_;  ///< slices, and the value of their bytes
  Json told_;                           ///< last
  std::optional<int> ended_by_;
};

}  // namespace gpumem::test
