#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "daemon/core/arbiter/arbiter.h"
#include "tests/model/rules.h"

namespace gpumem::core::model {

/// What a world of the arbiter is made of.
struct ArbiterShape {
  std::size_t devices = 1;
  std::size_t depth = 1;   ///< of the tenants' tree
  std::size_t leaves = 4;  ///< at the start
  std::size_t most_waiting = 6;
  Number pool = 40;  ///< of each device, in pieces of kPiece
  bool guarantees = true;
  bool lends = false;
  bool disturbed = true;  ///< memory goes missing, is declared, quotas and the tree change
};

/// A ledger and an arbiter next to the books and the rules: the same random events for both. After each, both
/// must agree; the first difference is kept in fault().
class ArbiterWorld {
 public:
  static constexpr Number kPiece = 4;
  static constexpr Bytes kNoLimit{1ULL << 40};

  explicit ArbiterWorld(std::uint64_t seed);

  void step();
  /// Everything is given back and withdrawn.
  void finish();

  const std::string& fault() const { return fault_; }

  /// How often a world came by what it is meant to try.
  struct Seen {
    std::uint64_t grants = 0;
    std::uint64_t claims = 0;   ///< events after which a claim waited
    std::uint64_t waits = 0;    ///< events after which anybody waited
    std::uint64_t partial = 0;  ///< grants of more than the least, but less than was wanted
    std::uint64_t joint = 0;    ///< grants for several devices
    std::uint64_t overdue = 0;  ///< events after which somebody was overdue
    std::uint64_t debts = 0;    ///< events after which somebody was over a limit
    std::uint64_t covered = 0;  ///< grants of what was reserved, at least in part
    void add(const Seen& other);
  };
  const Seen& seen() const { return seen_; }

 private:
  struct Held {
    NodeIndex leaf;
    DeviceIndex device;
    Number bytes;
    Charge state;
  };

  // arbiter_events.cc
  void ask();
  void release();
  void move();
  void withdraw();
  void end_session();
  void pass_time();
  void change_aging();
  void change_quotas();
  void change_tree();
  void add_leaf();
  void remove_leaf();
  void declare();
  void lose_memory();
  void change_lending();
  void add_job();
  void reserve();
  void give_up();
  void pass_on();
  Request::Parts some_parts(NodeIndex leaf);
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class Values>
  auto& some(Values& values) {
    return values[below(values.size())];
  }
  std::vector<NodeIndex> leaves() const;
  bool waits_or_holds(NodeIndex leaf) const;

  // arbiter_tree.cc
  void grow_tree();
  Quota some_quota(NodeIndex node, DeviceIndex device);
  std::vector<Quotas> some_quotas();
  bool may_hold(const Books& books) const;
  void put_in_force(const std::vector<Quotas>& quotas);
  NodeIndex add_node(Quotas quotas, NodeIndex parent, bool is_leaf);
  NodeIndex add_part(Quotas quotas, NodeIndex whole);
  void divide(NodeIndex leaf);

  // arbiter_world.cc
  void compare();
  void compare_grants();
  void note_grant(const Decision& one);
  void check_properties(const Moment& moment, DeviceIndex device);
  void compare_device(const Moment& moment, DeviceIndex device);
  void compare_node(const Accounts& accounts, NodeIndex node, DeviceIndex device);
  /// Takes the same out of the queue.
  void compare_removed(std::vector<Request> removed, const std::function<bool(const Waiting&)>& is_removed);
  void require(bool holds, const std::string& what) {
    if (!holds && fault_.empty()) fault_ = event_ + ": " + what;
  }
  void same(const char* what, Number expected, Bytes found);
  // GPUMEM_MODEL_TRACE: tells every event, to find out how a difference came about.
  void trace(const auto&... words) {
    static const bool wanted = std::getenv("GPUMEM_MODEL_TRACE") != nullptr;
    if (!wanted) return;
    std::clog << event_ << ": ";
    ((std::clog << words), ...) << '\n';
  }

  ArbiterShape shape_;
  std::mt19937_64 random_;
  Books books_;
  std::vector<Waiting> queue_;
  std::vector<TenantId> tenants_;  ///< by node
  std::vector<bool> is_leaf_;      ///< by node
  std::vector<Held> held_;
  Duration aging_{60};
  TimePoint now_{};
  TimePoint aged_{};  ///< when the arbiter was last told the time
  Ledger ledger_;
  Arbiter arbiter_;
  IdSource<RequestId> request_ids_;
  Seen seen_;
  std::string event_ = "start";
  std::string fault_;
};

}  // namespace gpumem::core::model
