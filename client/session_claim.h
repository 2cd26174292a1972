#pragma once
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "proto/lane/frames.h"

namespace gpumem::client {

/// What a session has, by the frames that went to and fro: what it may claim of a broker that was restarted.
/// What it has begun to return is not part of it.
class SessionClaim {
 public:
  /// The client is about to send `packet`, one frame.
  void note_sent(std::string_view packet);
  /// It has received `frame`.
  void note_received(const lane::Incoming& frame);

  /// The frames that claim all of it, for `session`.
  std::vector<lane::Resume> frames(std::uint64_t session) const;
  /// The same, of a claim that changes: whoever calls it gets the claim as it is then. Threads  any.
  using Frames = std::function<std::vector<lane::Resume>(std::uint64_t session)>;

 private:
  using Ids = std::set<std::uint64_t>;
  Ids slices_;
  Ids leases_;
  Ids imports_;
};

}  // namespace gpumem::client
