#include "daemon/host/state/event_log.h"

#include <algorithm>
#include <chrono>

namespace gpumem::host {
namespace {

constexpr std::chrono::seconds kLeastSetBack{1};

// Not in the middle of a UTF-8 character.
void cut(std::string& words) {
  if (words.size() <= EventLog::kMostWords) return;
  constexpr std::string_view kMore = "...";
  std::size_t end = EventLog::kMostWords - kMore.size();
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xC0) == 0x80) --end;
  words.resize(end);
  words += kMore;
  words.shrink_to_fit();
}

}  // namespace

void EventLog::begin(std::unique_ptr<EventHistory> history, core::WallTime wall) {
  history_ = std::move(history);
  if (history_ == nullptr) return;
  for (auto& event : history_->read(wall)) keep(event);
  if (kept_.entries().empty()) return;
  const core::LoggedEvent& newest = *kept_.entries().rbegin()->second.item;
  sequence_ = newest.sequence;
  last_ = newest.time;
}

void EventLog::keep(const std::shared_ptr<const core::LoggedEvent>& event) {
  kept_.push(event->event.tenant, 1, event);
}

void EventLog::add(std::vector<core::Event> events, const core::Broker& broker, core::TimePoint now,
                   core::WallTime wall) {
  EventHistory::Events all;
  for (core::Event& event : events) {
    cut(event.words);
    const auto ago = std::chrono::duration_cast<core::WallTime::duration>(now - event.at);
    // A clock that was set back by more is right now.
    const core::WallTime time = wall - ago;
    last_ = last_ - time < kLeastSetBack ? std::max(last_, time) : time;
    auto logged =
        std::make_shared<const core::LoggedEvent>(core::LoggedEvent{++sequence_, last_, std::move(event)});
    keep(logged);
    tell(logged, broker);
    all.push_back(std::move(logged));
  }
  if (history_ != nullptr) history_->add(all);
}

void EventLog::tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) {
  std::erase_if(watchers_, [&](const auto& watcher) { return !watcher->tell(event, broker); });
}

void EventLog::watch(std::shared_ptr<core::EventWatcher> watcher, std::optional<core::WallTime> since,
                     const core::Broker& broker) {
  if (closed_) return watcher->closed();
  if (since) {
    // After an event of that very time comes what is new to somebody who has heard of it, whatever its time.
    const auto& all = kept_.entries();
    const auto is_of_it = [&](const auto& one) {
      return std::chrono::floor<std::chrono::microseconds>(one.second.item->time) == *since;
    };
    const auto last = std::find_if(all.rbegin(), all.rend(), is_of_it);
    const bool is_known = last != all.rend();
    for (auto next = std::find_if_not(last, all.rend(), is_of_it).base(); next != all.end(); ++next) {
      const auto& event = next->second.item;
      if ((is_known || event->time >= *since) && !watcher->tell(event, broker)) return;
    }
  }
  if (watcher->caught_up()) watchers_.push_back(std::move(watcher));
}

void EventLog::unwatch(const core::EventWatcher& watcher) {
  std::erase_if(watchers_, [&](const auto& one) { return one.get() == &watcher; });
}

void EventLog::judge(const core::Broker& broker) {
  std::erase_if(watchers_, [&](const auto& watcher) { return !watcher->judge(broker); });
}

void EventLog::close() {
  closed_ = true;
  for (const auto& watcher : std::exchange(watchers_, {})) watcher->closed();
}

}  // namespace gpumem::host
