#pragma once
#include <string>

#include "tests/survive/crash_actor.h"

namespace gpumem::test {

/// A scenario that reaches every crash point: four clients of three tenants grow, shrink, share, are asked to
/// give back and leave; a quota is changed; the broker is stopped and another one started.
class CrashScenario {
 public:
  explicit CrashScenario(const CrashPlan& plan);

  void play();
  /// Waits until the whole plan has come true; fails the test if nobody comes by its points.
  void await_plan();
  /// Checks the promises of docs/guarantees.md, which hold whichever process has died. All clients have
  /// ended.
  void check_promises();

  CrashStage& stage() { return stage_; }

 private:
  void share(int value);
  void stop_sharing();
  void set_quota();
  void check_quota();
  void claim_the_guarantee();
  /// The broker's books against what the clients have.
  void check_books();
  void check_rest();
  Outcome gpumem(std::vector<std::string> arguments);

  CrashStage stage_;
  CrashActor ann_{stage_, "ann", CrashStage::kAnn}, mate_{stage_, "mate", CrashStage::kAnn},
      bob_{stage_, "bob", CrashStage::kBob}, cat_{stage_, "cat", CrashStage::kCat};
};

}  // namespace gpumem::test
