#pragma once
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/memory/pool.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// Work for the driver of one device, done step by step in order: a step destroys, then creates.
struct Job {
  enum class Turn {
    kNow,      ///< a request waits for it, or nothing else is to be done
    kSoon,     ///< creates warm extents from destroyed ones; no request waits for them
    kInOrder,  ///< all other jobs
  };
  struct Step {
    std::vector<ExtentId> destroy;
    std::vector<Extent> create;
    /// Creates only what leaves so many bytes of the device free, if the driver tells. Nothing: creates
    /// regardless, because the memory takes the place of other memory of the pool. A step that creates
    /// nothing asks how much is free.
    std::optional<Bytes> keep_free{};
    /// The step is to prove that the driver has got memory of this lease back, which `destroy` or an earlier
    /// step has destroyed. Without `by_use`, creating all of `create` proves it. With it, the proof is that
    /// the used bytes of the device have fallen; then `create` is created.
    struct Proof {
      LeaseId lease;
      Bytes size;
      bool by_use = false;
    };
    std::optional<Proof> proof{};
    /// Instead of `proof`: leases whose memory `destroy` has destroyed. Creating `create`, which has the
    /// bytes of all, proves them all. If that fails, `alone` is created for each at once, and proves that
    /// one.
    struct Member {
      LeaseId lease;
      Extent alone;
    };
    std::vector<Member> group{};
  };
  JobId id;
  DeviceIndex device = 0;
  Turn turn = Turn::kInOrder;
  std::vector<Step> steps;
};

/// The result of a job. All of `destroy` was destroyed, and all extents but `failed` were created.
struct JobResult {
  JobId id;
  DeviceIndex device = 0;
  std::vector<ExtentId> failed;
  bool lacks_files = false;  ///< extents failed because descriptors ran out, not memory
  /// The bytes that steps with `keep_free` left beyond that. Nothing: no such step, or the driver does not
  /// tell.
  std::optional<Bytes> room{};
  std::vector<LeaseId> unproved{};  ///< leases whose proof by use has failed
};

/// The order in which a device's jobs run. A job that a request waits for runs first, so that a growth waits
/// for one driver call, however many other jobs there are.
///
/// Invariant  a job that proves a lease's memory free is kInOrder. It runs only when all memory that was
///            destroyed to make other extents is created again; else that memory could pass as the proof. A
///            job that destroys extents to make others is kNow, so that the kSoon jobs that create them may
///            be hurried.
template <class Task>
class JobQueue {
 public:
  bool empty() const { return size() == 0; }
  std::size_t size() const { return now_.size() + soon_.size() + in_order_.size(); }
  void push(Job::Turn turn, Task&& task) { of(turn).push_back(std::move(task)); }
  /// The next job. The queue is not empty.
  Task pop() {
    if (auto task = pop_before_those_in_order()) return std::move(*task);
    return pop(in_order_);
  }
  /// The next job that is not kInOrder. It runs before the next step of a kInOrder job.
  std::optional<Task> pop_before_those_in_order() {
    if (!now_.empty()) return pop(now_);
    if (!soon_.empty()) return pop(soon_);
    return std::nullopt;
  }
  /// Moves the kSoon job for which `is_it(task)` is true to kNow: a request waits for it now. No effect if it
  /// has begun.
  template <class IsIt>
  void hurry(IsIt&& is_it) {
    const auto found = std::ranges::find_if(soon_, is_it);
    if (found == soon_.end()) return;
    now_.push_back(std::move(*found));
    soon_.erase(found);
  }
  void clear() {
    for (std::deque<Task>* const tasks : {&now_, &soon_, &in_order_}) tasks->clear();
  }
  /// Calls `visit(task)` for each job.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const std::deque<Task>* const tasks : {&now_, &soon_, &in_order_})
      for (const Task& task : *tasks) visit(task);
  }

 private:
  static Task pop(std::deque<Task>& tasks) {
    Task task = std::move(tasks.front());
    tasks.pop_front();
    return task;
  }
  std::deque<Task>& of(Job::Turn turn) {
    if (turn == Job::Turn::kNow) return now_;
    return turn == Job::Turn::kSoon ? soon_ : in_order_;
  }

  std::deque<Task> now_, soon_, in_order_;
};

}  // namespace gpumem::core
