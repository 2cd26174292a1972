#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/arbiter/trace.h"
#include "bench/samples.h"

namespace gpumem::bench {

/// A session's place in the trace.
using SessionIndex = std::uint32_t;

/// A way to share devices among the sessions of a trace. Every session has at most one request at a time,
/// which waits until it is granted, withdrawn or refused; outcomes are taken after each call.
class Strategy {
 public:
  struct Outcome {
    SessionIndex session = 0;
    Bytes granted;  ///< zero: refused for good
  };

  virtual ~Strategy() = default;

  virtual void open(SessionIndex session, TimePoint now) = 0;
  /// Asks for `wanted`, content with `least` of it.
  virtual void ask(SessionIndex session, Bytes wanted, Bytes least, TimePoint now) = 0;
  virtual void withdraw(SessionIndex session, TimePoint now) = 0;
  /// The session gives back what it is asked for, but keeps `keep`. Answers how much it was.
  virtual Bytes yield(SessionIndex, Bytes /*keep*/, TimePoint) { return {}; }
  /// Ends the session: what it holds comes back, its request is dropped.
  virtual void close(SessionIndex session, TimePoint now) = 0;
  /// Time has passed: to be called at next_deadline().
  virtual void tick(TimePoint) {}
  virtual std::optional<TimePoint> next_deadline() const { return std::nullopt; }

  /// Nothing is charged to anybody, and nobody waits.
  virtual bool is_as_new() const = 0;
  /// What each decision took; empty where it is not the question.
  virtual const Samples& decisions() const { return decisions_; }

  std::vector<Outcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  /// Sessions that are asked to give memory back.
  std::vector<SessionIndex> take_pressed() { return std::exchange(pressed_, {}); }

 protected:
  std::vector<Outcome> outcomes_;
  std::vector<SessionIndex> pressed_;
  Samples decisions_;
};

/// The broker's core, with a driver that takes no time. `lends`: guarantees that are idle are lent. `aging`:
/// as in the policy.
std::unique_ptr<Strategy> broker_strategy(const Trace& trace, bool lends, Duration aging);
/// On each device, every tenant that has a session there may use its guarantee and its weighted part of what
/// is not promised, not more.
std::unique_ptr<Strategy> static_split(const Trace& trace);
/// One line for each device, no quotas.
std::unique_ptr<Strategy> first_come(const Trace& trace);
/// No line: whoever finds too little tries again every half second and takes what is there.
std::unique_ptr<Strategy> retrying(const Trace& trace);

}  // namespace gpumem::bench
