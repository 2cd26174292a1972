#pragma once
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "tests/support/broker_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/survive/stand_in_manager.h"

namespace gpumem::test {

/// Where processes are to die: as in GPUMEM_CRASH_POINT.
struct CrashPlan {
  struct OfClient {
    std::string actor;  ///< the client's name in the scenario
    std::string plan;
  };
  std::vector<std::string> brokers;  ///< the first broker's; the next one's, when that has come true; ...
  std::vector<OfClient> clients;     ///< several of one client: those who come in its place
};
/// For a test's messages.
std::string to_text(const CrashPlan& plan);

/// A broker that is restarted whenever it has died, and all that its clients and it have said.
class CrashStage {
 public:
  static constexpr Bytes kPool = mebibytes(56);  ///< the rest is for clients' contexts
  static constexpr Bytes kGuarantee = mebibytes(36);
  static constexpr uid_t kAnn = 10'001, kBob = 10'002, kCat = 10'003;

  /// `manager`  keeps descriptors of what is lent, for the next broker; outlives it. None: nobody does.
  explicit CrashStage(CrashPlan plan, StandInManager* manager = nullptr);

  BrokerProcess& broker() { return broker_; }
  /// Starts a broker if the one before has died.
  void mend();
  /// Ends the broker in good order, and starts another.
  void restart();
  /// The plan of the client `actor` that is started now; empty: none.
  std::string take_plan_of(const std::string& actor);
  /// A file for what a client says.
  std::string output_of(const std::string& actor) const { return (folder_ / (actor + ".log")).string(); }

  /// Whether everything of the plan has come true, and whoever was to die is dead.
  bool has_come_true() const;
  /// What has not.
  std::string missing() const;
  /// From now on nobody dies: another broker without a plan.
  void disarm();
  /// Everything that anybody has said.
  std::string said() const;

 private:
  std::vector<std::pair<std::string, std::string>> environment() const;
  bool has_happened(const std::string& plan) const;
  void start_next();
  /// Whether that of the broker that runs has come true; then the next one is the next broker's.
  bool take_plan();

  TemporaryFolder folder_;
  StandInManager* const manager_;
  const CrashPlan plan_;
  std::size_t next_ = 0;                      ///< of the brokers' plans: that of the broker that runs
  std::vector<CrashPlan::OfClient> clients_;  ///< clients' plans that are not taken yet
  BrokerProcess broker_;
};

/// The environment with `plan` in it; none, if it is empty.
std::vector<std::pair<std::string, std::string>> crash_environment(const std::string& plan);

}  // namespace gpumem::test
