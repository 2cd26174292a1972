#pragma once
#include <vector>

#include "daemon/core/broker.h"

namespace gpumem::bench {

/// Does the broker's jobs at once, and each of them succeeds: what is measured is the broker alone.
/// Everything else that is to be done goes to `take(effect)`.
template <class Take>
void do_effects(core::Broker& broker, core::TimePoint now, Take&& take) {
  std::vector<core::Effect> effects;
  for (broker.take_effects(effects); !effects.empty(); broker.take_effects(effects)) {
    for (core::Effect& effect : effects) {
      if (const auto* run = std::get_if<core::RunJob>(&effect)) {
        broker.job_done({run->job.id, run->job.device, {}}, now);
      } else {
        take(effect);
      }
    }
  }
}

}  // namespace gpumem::bench
