#pragma once

namespace gpumem::test {

/// Of a broker: whoever does not give back in 0.3 s is ended, and killed after another second. Ann's
/// guarantee, which is lent, can be claimed. More tenants may follow.
inline constexpr const char* kEndsWhoKeeps = R"(
lend_guarantees = true
reclaim_deadline_ms = 300
escalation = "end-session"
grace_seconds = 1
context_overhead = "0B"
[[tenant]]
name = "ann"
user = 10001
guarantee = "64MiB"
)";

}  // namespace gpumem::test
