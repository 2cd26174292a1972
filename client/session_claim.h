#pragma once
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "proto/lane/frames.h"

namespace gpumem::client {

/// The memory that a session may claim from a restarted broker, computed from the frames sent and received.
/// Memory whose return has begun is not part of it.
class SessionClaim {
 public:
  /// The client is about to send `packet`, one frame.
  void note_sent(std::string_view packet);
  /// The client has received `frame`.
  void note_received(const lane::Incoming& frame);

  /// The frames that claim all of it, for `session`.
  std::vector<lane::Resume> frames(std::uint64_t session) const;
  /// Returns the claim as it is at the time of the call. Threads  any.
  using Frames = std::function<std::vector<lane::Resume>(std::uint64_t session)>;

 private:
  using Ids = std::set<std::uint64_t>;
  Ids slices_;
  Ids leases_;
  Ids imports_;
};

}  // namespace gpumem::client
