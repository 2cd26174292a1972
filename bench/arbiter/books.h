#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "bench/arbiter/strategy.h"

namespace gpumem::bench {

/// What the simple strategies have in common: who holds how much, and who waits, by device.
///
/// Invariant  on every device, what is held is at most the pool.
class Books : public Strategy {
 public:
  explicit Books(const Trace& trace)
      : trace_(trace),
        free_(trace.options.devices, trace.options.pool),
        held_(trace.sessions.size()),
        waiting_(trace.options.devices) {}

  void open(SessionIndex, TimePoint) override {}
  void ask(SessionIndex session, Bytes wanted, Bytes least, TimePoint now) override {
    waiting_[device_of(session)].emplace(place_of(session, now), Wish{session, wanted, least});
    asked(session, now);
  }
  void withdraw(SessionIndex session, TimePoint now) override {
    drop(session);
    changed(device_of(session), now);
  }
  void close(SessionIndex session, TimePoint now) override {
    drop(session);
    const Bytes held = std::exchange(held_[session], {});
    free_[device_of(session)] += held;
    closed(session, held);
    changed(device_of(session), now);
  }
  bool is_as_new() const override {
    return std::ranges::all_of(free_, [&](Bytes free) { return free == trace_.options.pool; }) &&
           std::ranges::all_of(waiting_, [](const auto& line) { return line.empty(); });
  }

 protected:
  struct Wish {
    SessionIndex session = 0;
    Bytes wanted;
    Bytes least;
  };
  using Line = std::map<std::pair<std::uint64_t, SessionIndex>, Wish>;

  /// By what the line is ordered.
  virtual std::uint64_t order_of(SessionIndex session, TimePoint now) = 0;
  virtual void asked(SessionIndex session, TimePoint now) { changed(device_of(session), now); }
  virtual void closed(SessionIndex, Bytes) {}
  /// Memory has come back, or the line is another: grants what can be.
  virtual void changed(DeviceIndex device, TimePoint now) = 0;

  const SimulatedSession& session(SessionIndex index) const { return trace_.sessions[index]; }
  DeviceIndex device_of(SessionIndex index) const { return session(index).device; }

  Line::iterator grant(DeviceIndex device, Line::iterator at, Bytes bytes) {
    const Wish wish = at->second;
    GPUMEM_CHECK(bytes >= wish.least && bytes <= free_[device], "a grant is there and enough");
    free_[device] -= bytes;
    held_[wish.session] += bytes;
    outcomes_.push_back({wish.session, bytes});
    places_.erase(wish.session);
    return waiting_[device].erase(at);
  }

  const Trace& trace_;
  std::vector<Bytes> free_;
  std::vector<Bytes> held_;
  std::vector<Line> waiting_;

 private:
  Line::key_type place_of(SessionIndex session, TimePoint now) {
    const Line::key_type place{order_of(session, now), session};
    GPUMEM_CHECK(places_.emplace(session, place).second, "one request at a time");
    return place;
  }
  void drop(SessionIndex session) {
    const auto found = places_.find(session);
    if (found == places_.end()) return;
    waiting_[device_of(session)].erase(found->second);
    places_.erase(found);
  }

  std::map<SessionIndex, Line::key_type> places_;
};

}  // namespace gpumem::bench
