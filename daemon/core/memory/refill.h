#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "daemon/core/memory/size_classes.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// The bytes of a pool that the driver does not give at present, and the plan to create them. A round creates
/// one extent of the largest class at most, so that requests are served between two rounds.
///
/// A round asks for no more than the driver was last seen to have to spare. If the driver refuses an extent
/// all the same, the next round tries its bytes in extents of the next smaller class. Once the driver gives
/// nothing, one extent of the smallest class is tried after pauses that double.
///
/// Missing bytes can be set aside for the driver. They are not created. Other missing bytes are dormant: they
/// are not created until there is demand for them (set_demand()). The rest is open.
///
/// Invariant  missing() is the sum of the open, the dormant and the bytes set aside.
class Refill {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(5);
  static constexpr Duration kLongestPause = std::chrono::seconds(2);
  /// Extents that one round tries.
  static constexpr std::size_t kMostOfARound = 256;

  explicit Refill(const SizeClasses& classes)
      : classes_(classes), most_(classes.largest()), largest_(classes.largest()) {}

  Bytes missing() const { return missing_; }
  /// Sets the missing bytes of a pool that is still to be created. The first round is due at once.
  void plan(Bytes missing) {
    missing_ = missing;
    dormant_ = obtainable().minus(demand_.bytes);
  }
  /// Warm extents of `bytes` were to be created anew, and the driver refused.
  void lose(Bytes bytes, TimePoint now);
  /// Warm extents of `bytes` leave the pool for the driver. They are missing, and set aside.
  void set_aside(Bytes bytes);
  /// Undoes set_aside(): the extents are still there.
  void keep_after_all(Bytes bytes);
  /// `bytes` are not set aside any more. They are created when the driver gives them.
  void reopen(Bytes bytes, TimePoint now);
  /// `bytes` leave the pool: warm extents that nobody needs, or memory that was lent and is given back to the
  /// driver. They are missing, and dormant.
  void retire(Bytes bytes);

  struct Demand {
    Bytes bytes = kUnlimited;  ///< so many of the missing bytes are open, and the others dormant
    /// The first round creates these bytes, if `bytes` and the driver have room for them, and nothing else.
    Bytes first{};
    bool as_one = false;  ///< `first` is one extent
  };
  /// Replaces the demand. Default: all missing bytes are open. If it opens more bytes than before,
  /// ask_anew().
  void set_demand(const Demand& demand, TimePoint now);
  /// Asks the driver at once, whatever it has refused before.
  void ask_anew(TimePoint now);

  Bytes dormant() const { return dormant_; }
  /// Bytes that are to be created.
  Bytes open() const { return obtainable() - dormant_; }
  /// What is open and what is dormant.
  Bytes obtainable() const { return missing_ - aside_; }
  /// The demand is that of a request (Demand::first).
  bool serves_request() const { return !demand_.first.is_zero(); }
  /// Whether the last round is older than the last demand for more.
  bool is_unasked() const { return unasked_; }

  bool is_due(TimePoint now) const { return !open().is_zero() && !under_way_ && next_ <= now; }
  bool is_under_way() const { return under_way_; }
  /// When the next round is due; nothing: no bytes are to be created, or a round is under way.
  std::optional<TimePoint> next() const;
  void hurry(TimePoint now);

  /// Begins a round. Returns the sizes to create, the largest first: `most_extents` of them at most.
  std::vector<Bytes> begin(std::size_t most_extents);
  struct Outcome {
    Bytes created{};
    std::optional<Bytes> refused{};  ///< the smallest extent that the driver refused
    std::optional<Bytes> room{};     ///< the memory that the driver has to spare; nothing: it does not tell
    bool may_split = true;           ///< `refused` may be tried again in smaller extents
  };
  void end(const Outcome& outcome, TimePoint now);

  /// Whether the pool has got all that the driver gives.
  bool is_exhausted() const { return open().is_zero() || (probes_ && !unasked_); }

 private:
  void start_anew(TimePoint now);
  void forget_refusals();

  SizeClasses classes_;
  Bytes missing_;
  Bytes aside_;    ///< of `missing_`
  Bytes dormant_;  ///< of `missing_`
  Demand demand_;
  bool unasked_ = false;
  Bytes most_;     ///< of the next round
  Bytes largest_;  ///< extent of the next round
  std::optional<Bytes> room_;
  bool under_way_ = false;
  bool probes_ = false;  ///< the next round is one extent of the smallest class
  Duration pause_ = kFirstPause;
  TimePoint next_{};
};

}  // namespace gpumem::core
