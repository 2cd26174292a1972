#pragma once

namespace gpumem::bench {

/// Registers the benchmarks of one decision: by the ledger and the arbiter alone.
void register_decide();
/// Registers the benchmarks of one decision through the whole core of the broker.
void register_decide_broker();

}  // namespace gpumem::bench
