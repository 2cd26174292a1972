#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/survive/crash_actor.h"

namespace gpumem::test {

inline bool came_off(const Json& answer) { return answer.at("ok").get<bool>(); }
inline bool failed_as(const Json& answer, const char* code) {
  return !came_off(answer) && answer.at("code") == code;
}

/// A scenario that reaches every crash point of regions: ann publishes; her mate, of her tenant, and bob, of
/// another one, map her regions.
class RegionScenario {
 public:
  /// A scenario has one of them.
  enum class Part {
    kLife,          ///< regions are mapped, waited for, removed, kept, adopted, and expire
    kReservations,  ///< ann and her mate ask who is to make a region
  };

  /// `manager`  as CrashStage's.
  RegionScenario(const CrashPlan& plan, Part part, StandInManager* manager);

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
  using Step = void (RegionScenario::*)();

  std::vector<Step> steps() const;
  void share();
  void wait();
  void keep();
  void adopt();
  void expire();
  void make_once();

  /// One attempt to have `who` publish a slice of its own. False: somebody died, or it is not there.
  static bool publish(CrashActor& who, const std::string& name, int value, const Json& more = Json::object());
  static Json mapping_of(const std::string& name);
  /// One attempt; what is mapped must be what was published.
  bool map(CrashActor& reader, const std::string& name, int value, const Json& more = Json::object());
  bool note_mapped(CrashActor& reader, const std::string& name, int value);
  /// Ann lets go of what she has published, then its readers do: they have all of it until then.
  void outlive_publisher(const std::string& name);
  void unmap(CrashActor& reader, const std::string& name);
  /// Ends the reservation that the answer has, if it has one.
  static void release(CrashActor& holder, const Json& answer);
  /// The tenant of ann and her mate is charged for one region.
  /// Nor has anybody a reservation.
  void check_no_reservation(CrashActor& next);
  /// Every mapping is as it was published, whoever else has ended.
  void verify();
  /// Again and again until it comes off. It unmaps and closes what it leaves behind.
  void come_to(const char* what, const std::function<bool()>& attempt);
  void check_books();
  void remove_all();
  void check_rest();

  StandInManager* const manager_;
  const Part part_;
  CrashStage stage_;
  CrashActor ann_{stage_, "ann", CrashStage::kAnn}, mate_{stage_, "mate", CrashStage::kAnn},
      bob_{stage_, "bob", CrashStage::kBob};
  std::vector<Mapping> mapped_;
};

}  // namespace gpumem::test
