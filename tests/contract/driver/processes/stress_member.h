#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/system/unique_fd.h"

namespace gpumem::contract {

/// The page that all members of a stress run share.
struct StressBoard {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0}, created{0}, refused{0}, sent{0}, received{0};
};

/// A socket pair of whole messages: anybody may put something in, its owner takes it out.
struct Mailbox {
  UniqueFd in, out;
};

/// One process of a stress run. Until the board says stop it creates extents, fills them with a pattern of
/// their own, sends them to others, and checks and passes on what others sent. Being refused for lack of
/// memory is no failure, anything else is. Returns when all is released; may be killed at any instant.
void run_stress_member(StressBoard& board, const std::vector<Mailbox>& mailboxes, std::size_t self,
                       std::uint64_t seed);

}  // namespace gpumem::contract
