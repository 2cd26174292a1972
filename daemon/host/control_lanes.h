#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "daemon/host/lane.h"

namespace gpumem::host {

/// The control connections of the lane's version 2. Their tokens are only given out: no call needs one any
/// more. Bounded in all and for each user, so that nobody takes the others' place. Administrators have a
/// bound of their own.
class ControlLanes {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kMostOfAUser = 32;
  static constexpr std::size_t kMostOfAdministrators = 256;

  /// Keeps `lane`; its token. Errors  kResourceExhausted: too many.
  Result<std::string> admit(std::shared_ptr<Lane> lane);
  /// Forgets `lane`, if it is one of them.
  void remove(const Lane& lane);

 private:
  Result<void> check_room(const Lane& lane) const;

  std::unordered_map<std::string, std::shared_ptr<Lane>> lanes_;
};

}  // namespace gpumem::host
