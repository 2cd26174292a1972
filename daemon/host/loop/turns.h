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
/// The length of a piece of work is known only once it is done, so it is charged afterwards, by measured
/// time. A flow that has used more than its quantum carries the debt into its next rounds, which pass at once
/// where nobody else has work. Within a flow work is done in the order in which it came.
///
/// A flow that had neither work nor debt has its first turn before all others, as in RFC 8290. Then it has
/// its place in the round until the round has come to it. A turn is interrupted for such flows after a
/// stretch. So a flow that rarely has work waits for a stretch and one piece of work. Every flow waits for
/// one turn of each other flow at most: a quantum and one piece.
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

  explicit Turns(Clock clock) : clock_(std::move(clock)) {}

  void add(const Flow& flow, Work work);
  /// Has one flow's work done, for a stretch at most and the piece that passes it. False: there is no work.
  bool run_stretch();
  bool empty() const { return pieces_ == 0; }

 private:
  struct Queue {
    Flow flow;
    core::Duration credit{};  ///< negative: debt
    bool in_turn = false;     ///< its turn has begun and is not over
    std::deque<Work> works{};
  };
  using Ring = std::list<Queue>;

  static core::Duration quantum_of(const Flow& flow);
  /// The list whose first flow has the turn, which has work and credit. Passes the debts of flows before it.
  /// There must be work.
  Ring& next();
  void run(Queue& queue);

  const Clock clock_;
  std::size_t pieces_ = 0;
  Ring new_;   ///< flows before their first turn, in their order
  Ring ring_;  ///< flows after it, the next turn first; one without work stays until its turn
  std::map<Flow, Ring::iterator> by_flow_;
};

}  // namespace gpumem::host
