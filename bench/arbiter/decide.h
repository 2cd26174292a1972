#pragma once

namespace gpumem::bench {

/// Registers what a decision costs: by the ledger and the arbiter alone, by the whole core of the broker; and
/// what an idle tenant takes of memory.
void register_decide();
void register_decide_broker();
void register_tenant_idle();

}  // namespace gpumem::bench
