#pragma once
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/memory/job.h"
#include "tests/model/reference.h"
#include "tests/support/core_world.h"

namespace gpumem::core::model {

inline std::string in_words(Number expected, Number found) {
  return ": expected " + std::to_string(expected) + ", found " + std::to_string(found);
}

/// A machine for one broker: how large, and who is there.
struct Shape {
  std::string name;
  Policy policy;
  std::uint32_t users = 4;  ///< connect as uid 1, 2, ...
  Number largest_growth = 0;

  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
};

/// The broker, its driver and its clients, all driven by one random source, next to the reference. After
/// every step both must agree; the first difference is kept in fault().
class World : private CoreWorld<> {
 public:
  World(const Shape& shape, std::mt19937_64& random);

  /// One random event.
  void step();
  /// Every process ends, a process past the broker too, and time passes until nothing is left to do.
  void finish();

  const std::string& fault() const { return fault_; }

  /// How often a run came by what it is meant to try.
  struct Seen {
    std::uint64_t grants = 0;
    std::uint64_t refusals = 0;
    std::uint64_t waits = 0;  ///< steps after which somebody waited
    std::uint64_t unobtainable = 0;
    std::uint64_t quarantines = 0;  ///< steps after which something was quarantined
    std::uint64_t shortages = 0;    ///< steps after which memory was missing
    std::uint64_t pressure = 0;     ///< steps after which somebody was asked to give back
    std::uint64_t signals = 0;
    std::uint64_t claims = 0;             ///< steps after which a claim waited
    std::uint64_t quiet_looks = 0;        ///< at the driver, while nothing was on its way
    std::uint64_t past_broker_looks = 0;  ///< likewise, with memory past the broker
    std::uint64_t other_looks = 0;        ///< while something was on its way
  };
  const Seen& seen() const { return seen_; }

 private:
  struct Process {
    SessionId session;
    std::vector<ExtentId> held;
    std::vector<std::pair<SliceId, LeaseId>> leases;  ///< that it remembers, given back or not
    bool hostile = false;                             ///< keeps using what it gave back
    bool stubborn = false;                            ///< does not heed what it is asked for
    bool doomed = false;                              ///< was told to end
    std::int64_t pid = 0;
    std::map<DeviceIndex, Bytes> taken{};  ///< by device: the part of its declarations in use
  };

  // events.cc
  void happen();
  void connect();
  void open_slice();
  void close_slice();
  void grow();
  void cancel();
  void accept();
  void give_back();
  void end_session();
  void run_job(DeviceIndex device);
  void declare();
  void heed();
  void obey_signals();
  void all_heed();
  void pass_time();
  void reload();
  void disturb();
  void take_declared(Process& process, DeviceIndex device, Bytes declared);
  void give_declared_back(Process& process);
  Policy changed_policy();
  std::vector<GrowthPart> some_parts(const Process& process);
  bool give_back_what_is_asked(Process& process);
  void exit(Process& process);
  void give_back(Process& process, SliceId slice, const std::vector<LeaseId>& ids);
  Bytes some_size();
  Process* some_process();
  SliceId some_slice_of(const Process& process);
  void let_go_of_all(Process& process);
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  // looks.cc
  void look(DeviceIndex device);
  Observation ask_driver(DeviceIndex device) const;
  /// Of the device's memory, what no process is known to have: taken past the broker, and kept by processes
  /// although the memory passed as free.
  Number past_broker(DeviceIndex device) const;
  /// Leases that are charged although the driver has their memory back.
  Number not_proved_yet(DeviceIndex device) const;

  // world.cc
  void compare();
  friend CoreWorld<>;
  void before_queueing(const Job& job);
  void take(SendOffer& effect);
  void take(AnswerGrow& effect);
  void take(AnswerMap&) { require(false, "nobody has asked for a region"); }
  void take(ForgetSession& effect);
  void take(LookAtDevices&) {}
  bool may_be_denied(const Reference::RequestRecord& asked, const AnswerGrow& effect) const;
  void granted(const Reference::RequestRecord& asked, const Grant& grant, const std::string& name);
  void take(RingDoorbell& effect);
  void take(SignalSession& effect);
  void take(SignalForeignProcess&) { require(false, "a signal for a process that nobody has seen"); }
  void check_devices();
  void check_device(const DeviceView& view, DeviceIndex device);
  void check_tenants();
  void check_tenant(const TenantView& view, const Accounts& accounts, NodeIndex node);
  void check_sessions();
  void check_no_one_waits_in_vain();
  void check_pressure();
  void check_pressure(const Reference::Standing& standing, DeviceIndex device);
  Number needed(const Reference::Standing& standing, DeviceIndex device) const;
  Number may_be_asked(const Accounts& accounts, NodeIndex leaf) const;
  void expect_same(std::optional<Code> expected, const Result<void>& answer, const char* what);
  void require(bool holds, const std::string& what) {
    if (!holds && fault_.empty()) fault_ = last_event_ + ": " + what;
  }

  const Shape& shape_;
  std::mt19937_64& random_;
  Reference reference_;
  std::vector<Number>
      remade_later_;              ///< bytes of warm extents that jobs have destroyed, and others will create
  std::set<ExtentId> destroyed_;  ///< what jobs that have run were told to destroy
  std::vector<Process> processes_;
  std::int64_t last_pid_ = 1;
  std::vector<Bytes> stolen_;  ///< by device: by a process past the broker that the driver does not name
  std::map<ExtentId, std::pair<DeviceIndex, Bytes>> offered_;  ///< all extents, ever
  std::map<GrantId, SessionId> offers_;
  std::vector<std::pair<SessionId, GrantId>> grants_;
  std::map<RequestId, Code> refusals_;  ///< that must come in this step
  std::vector<RequestId> asked_;
  std::vector<SessionId> signalled_;     ///< in this step
  std::optional<TimePoint> last_spent_;  ///< when somebody said that it has nothing to give
  std::map<std::pair<std::string, DeviceIndex>, Number> leased_before_;
  IdSource<RequestId> request_ids_;
  bool flaky_ = false;
  Seen seen_;
  std::string last_event_ = "start";
  std::string fault_;
};

}  // namespace gpumem::core::model
