#pragma once
#include <vector>

#include "daemon/core/broker/broker.h"

namespace gpumem::bench {

/// Does the broker's jobs at once, and each of them succeeds: what is measured is the broker alone.
/// Everything else that is to be done goes to `take(effect)`.
template <class Take>
void do_effects(core::Broker& broker, core::TimePoint now, Take&& take) {
  std::vector<core::Effect> effects;
  for (broker.outbox().take_effects(effects); !effects.empty(); broker.outbox().take_effects(effects)) {
    for (core::Effect& effect : effects) {
      if (const auto* run = std::get_if<core::RunJobs>(&effect)) {
        for (const core::Job& job : run->jobs) broker.job_done({job.id, job.device, {}}, now);
      } else {
        take(effect);
      }
    }
  }
}

}  // namespace gpumem::bench
