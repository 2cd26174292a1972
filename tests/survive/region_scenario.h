#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/survive/crash_actor.h"

namespace gpumem::test {

/// What comes by every crash point of regions: ann publishes; her mate, of her tenant, and bob, of another
/// one, map what she publishes and wait for it; regions are removed, kept, adopted, and expire.
class RegionScenario {
 public:
  /// `manager`  as CrashStage's.
  RegionScenario(const CrashPlan& plan, StandInManager* manager);

  /// Again and again, until the whole plan has come true; fails the test if it never does.
  void play();
  /// What holds whoever has died. All clients end.
  void check_promises();

  CrashStage& stage() { return stage_; }

 private:
  /// A region that is mapped.
  struct Mapping {
    CrashActor* reader;
    pid_t pid;
    std::string name;
    int value;
  };

  void share();
  void wait();
  void keep();
  void adopt();
  void expire();

  /// One attempt to have `who` publish a slice of its own. False: somebody died, or it is not there.
  static bool publish(CrashActor& who, const std::string& name, int value, const Json& more = Json::object());
  static Json mapping_of(const std::string& name);
  /// One attempt; what is mapped must be what was published.
  bool map(CrashActor& reader, const std::string& name, int value, const Json& more = Json::object());
  bool note_mapped(CrashActor& reader, const std::string& name, int value);
  void unmap(CrashActor& reader, const std::string& name);
  /// Every mapping is as it was published, whoever else has ended.
  void verify();
  /// Again and again until it comes off. It unmaps and closes what it leaves behind.
  void come_to(const char* what, const std::function<bool()>& attempt);
  void check_books();
  void remove_all();
  void check_rest();

  CrashStage stage_;
  CrashActor ann_{stage_, "ann", CrashStage::kAnn}, mate_{stage_, "mate", CrashStage::kAnn},
      bob_{stage_, "bob", CrashStage::kBob};
  std::vector<Mapping> mapped_;
};

}  // namespace gpumem::test
