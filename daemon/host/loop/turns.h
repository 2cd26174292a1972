#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>

#include "daemon/core/words/types.h"

namespace gpumem::host {

/// The party that a piece of work on the deciding thread is charged to.
struct Flow {
  enum class Kind {
    kBroker,         ///< proofs, deadlines, ends of processes
    kConnections,    ///< new connections, whose users are not known yet
    kUnknown,        ///< posted without a caller
    kAdministrator,  ///< on the host; root of a container is none
    kUser
  };
  Kind kind = Kind::kUnknown;
  std::uint64_t account = 0;  ///< Peer::account(), of administrators and users
  auto operator<=>(const Flow&) const = default;
};

inline constexpr Flow kOwnFlow{.kind = Flow::Kind::kBroker};
inline constexpr Flow kConnectionsFlow{.kind = Flow::Kind::kConnections};
/// The flow of a client. `is_admin`  as Administrators::include() says.
inline Flow flow_of(const core::Peer& peer, bool is_admin) {
  return {is_admin ? Flow::Kind::kAdministrator : Flow::Kind::kUser, peer.account()};
}

/// The work of the deciding thread, in turns: deficit round robin (Shreedhar and Varghese, 1995) over flows.
/// The length of a piece of work is known only once it is done, so it is charged afterwards, by the processor
/// time that it took. A flow that has used more than its quantum carries the debt into its next rounds, which
/// pass at once where nobody else has work. Within a flow work is done in the order in which it came.
///
/// A flow whose work comes while it has credit left is served before the round, as new flows are in RFC 8290,
/// and keeps its place in the round. Only the round gives credit, a quantum at most. Flows before the round
/// take turns by stretches, and a turn of the round is interrupted for them after a stretch. So a flow that
/// uses less than its share waits for a stretch and one piece of each flow that does the same. Every other
/// flow waits for two quanta and one piece of each flow at most.
///
/// Threads  one.
class Turns {
 public:
  using Work = std::function<void()>;
  using Clock = std::function<core::TimePoint()>;
  static constexpr core::Duration kQuantum = std::chrono::milliseconds(1);
  /// A turn is interrupted after so long, for flows whose work comes meanwhile.
  static constexpr core::Duration kStretch = std::chrono::microseconds(200);
  /// The broker's own work serves all users, and so do new connections.
  static constexpr int kQuantaForAll = 4;

  /// `clock`  how long the calling thread has run on a processor: a ProcessorClock.
  explicit Turns(Clock clock) : clock_(std::move(clock)) {}

  void add(const Flow& flow, Work work);
  /// Has one flow's work done, for a stretch at most and the piece that passes it. False: there is no work.
  bool run_stretch();
  bool empty() const { return pieces_ == 0; }

 private:
  struct Queue {
    Flow flow;
    core::Duration credit;  ///< negative: debt
    bool in_turn = false;   ///< it runs, or its turn was interrupted
    std::deque<Work> works{};
  };
  using Ring = std::list<Queue>;

  static core::Duration quantum_of(const Flow& flow);
  /// The first flow of the round that has work and credit. Gives credit to those that the round passes. There
  /// must be work.
  Queue& next_of_round();
  /// Has its work done for a stretch. False: its work or its credit has ended.
  bool run(Queue& queue);

  const Clock clock_;
  std::size_t pieces_ = 0;
  std::deque<Queue*> before_;  ///< flows that are served before the round: each has work and credit
  Ring ring_;                  ///< the next turn first; a flow without work stays until its turn
  std::map<Flow, Ring::iterator> by_flow_;
};

}  // namespace gpumem::host
