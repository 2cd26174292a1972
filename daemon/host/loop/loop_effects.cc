#include "daemon/host/loop/loop.h"

#include <variant>

#include "base/crash_point.h"
#include "base/log.h"
#include "daemon/host/system/process.h"

// What the core has decided is done.

namespace gpumem::host {
namespace {

void warn_of_signal(const std::string& who, core::Signal signal, const Result<void>& sent, const char* why) {
  const char* const name = signal == core::Signal::kKill ? "SIGKILL" : "SIGTERM";
  if (sent)
    spdlog::warn("{}: {} sent: {}", who, name, why);
  else
    spdlog::warn("{}: {} could not be sent: {}", who, name, sent.error().message);
}

}  // namespace

// Doing an effect may cause further ones: a lane that breaks while it is sent an offer ends its session.
void Loop::do_effects() {
  std::vector<core::Effect> effects;
  static_cast<void>(journal_.write(broker_, now()));
  for (broker_.outbox().take_effects(effects); !effects.empty(); broker_.outbox().take_effects(effects)) {
    if (!journal_.write(broker_, now())) withhold(effects);
    for (core::Effect& effect : effects) {
      std::visit([this](auto& one) { do_effect(one); }, effect);
    }
  }
}

// Memory that the next broker would not know of is not lent: it comes back at once.
void Loop::withhold(std::vector<core::Effect>& effects) {
  for (core::Effect& effect : effects) {
    auto* map = std::get_if<core::AnswerMap>(&effect);
    if (map != nullptr && map->answer && std::holds_alternative<core::MappedRegion>(*map->answer)) {
      broker_.take_back(map->session, std::get<core::MappedRegion>(*map->answer), now());
      map->answer = Error{Code::kUnavailable, journal_.why()};
    }
    auto* answered = std::get_if<core::AnswerGrow>(&effect);
    if (answered == nullptr || !answered->answer) continue;
    broker_.abandon(answered->answer->id, now());
    answered->answer = core::GrowFailure{{Code::kUnavailable, journal_.why()}, std::nullopt};
  }
  std::erase_if(effects,
                [](const core::Effect& effect) { return std::holds_alternative<core::SendOffer>(effect); });
}

void Loop::do_effect(core::RunJobs& effect) { extents_->run(effect.device, std::move(effect.jobs)); }

void Loop::do_effect(core::HurryJob& effect) { extents_->hurry(effect.device, effect.job); }

void Loop::do_effect(core::SendOffer& effect) {
  for (const core::OfferedLease& one : effect.grant.leases)
    extents_->lent(one.extent.id, one.lease, one.device, one.is_private);
}

void Loop::do_effect(core::AnswerGrow& effect) {
  auto answer = pending_.take(effect.request);
  if (!answer) return;
  after([answer = std::move(*answer), result = std::move(effect.answer)] { answer(result); });
}

void Loop::do_effect(core::AnswerMap& effect) {
  auto answer = pending_maps_.take(effect.request);
  if (!answer) return;
  after([answer = std::move(*answer), result = std::move(effect.answer)] { answer(result); });
}

void Loop::do_effect(core::RingDoorbell& effect) {
  const auto client = clients_.find(effect.session);
  if (client != clients_.end() && broker_.knows(effect.session))
    client->second.link->press(broker_.figures(effect.session));
}

void Loop::do_effect(core::SignalSession& effect) {
  const auto client = clients_.find(effect.session);
  if (client == clients_.end()) return;
  crash_at(CrashPoint::kPressureSignal);
  SessionLink& link = *client->second.link;
  if (effect.may_wait && link.has_unread()) return broker_.hold_signal(effect.session, now());
  warn_of_signal("session " + std::to_string(effect.session.value) + ", " + link.who(), effect.signal,
                 link.signal(effect.signal), "see `gpumem events` for the reason");
  crash_at(CrashPoint::kPressureSignalled);
}

void Loop::do_effect(core::SignalForeignProcess& effect) {
  warn_of_signal("pid " + std::to_string(effect.pid), effect.signal,
                 signal_process(effect.pid, effect.started, effect.signal),
                 "it holds memory past the broker");
}

void Loop::do_effect(core::ForgetSession& effect) {
  auto client = clients_.extract(effect.session);
  if (client.empty()) return;
  client.mapped().link->forget();
}

// Where too many looks wait already, one of these comes soon enough.
void Loop::do_effect(core::LookAtDevices& effect) {
  if (observer_ != nullptr)
    static_cast<void>(observer_->look({.account = effect.account}, [](core::Broker&, core::TimePoint) {}));
}

}  // namespace gpumem::host
