#include <unordered_map>

#include "bench/arbiter/books.h"

namespace gpumem::bench {
namespace {

class FirstCome final : public Books {
 public:
  using Books::Books;

 private:
  std::uint64_t order_of(SessionIndex, TimePoint) override { return ++last_; }
  // The first takes the least it is content with; more, if nobody else waits.
  void changed(DeviceIndex device, TimePoint) override {
    Line& line = waiting_[device];
    while (!line.empty() && line.begin()->second.least <= free_[device]) {
      const Wish& first = line.begin()->second;
      const Bytes most = std::min(first.wanted, free_[device]);
      grant(device, line.begin(), line.size() == 1 ? most : first.least);
    }
  }
  std::uint64_t last_ = 0;
};

class StaticSplit final : public Books {
 public:
  explicit StaticSplit(const Trace& trace) : Books(trace), devices_(trace.options.devices) {
    for (const SimulatedTenant& one : trace.tenants) {
      devices_[one.home].promised += one.guarantee;
      devices_[one.home].kept += one.guarantee;
    }
  }
  void open(SessionIndex index, TimePoint) override {
    Device& device = devices_[device_of(index)];
    if (device.tenants[session(index).tenant].sessions++ == 0) device.weights += tenant(index).weight;
  }

 private:
  struct Present {
    std::size_t sessions = 0;
    Bytes used;
  };
  struct Device {
    Bytes promised;
    Bytes kept;  ///< of the guarantees, what is not used
    std::uint64_t weights = 0;
    std::unordered_map<std::uint32_t, Present> tenants;
  };

  std::uint64_t order_of(SessionIndex, TimePoint) override { return ++last_; }
  void changed(DeviceIndex device, TimePoint) override {
    for (auto at = waiting_[device].begin(); at != waiting_[device].end();) {
      const Wish wish = at->second;
      const Bytes most = std::min(wish.wanted, allowed(wish.session).rounded_down(kGranularity));
      if (most < wish.least) {
        ++at;
        continue;
      }
      at = grant(device, at, most);
      use(wish.session, [&](Bytes& used) { used += most; });
      GPUMEM_CHECK(used(wish.session) <= share(wish.session), "nobody is granted more than its share");
    }
  }
  void closed(SessionIndex index, Bytes held) override {
    use(index, [&](Bytes& used) { used -= held; });
    Device& device = devices_[device_of(index)];
    if (--device.tenants[session(index).tenant].sessions != 0) return;
    device.weights -= tenant(index).weight;
    device.tenants.erase(session(index).tenant);
  }

  const SimulatedTenant& tenant(SessionIndex index) const { return trace_.tenants[session(index).tenant]; }
  Bytes guarantee(SessionIndex index) const {
    return tenant(index).home == device_of(index) ? tenant(index).guarantee : Bytes{};
  }
  Bytes used(SessionIndex index) const {
    return devices_[device_of(index)].tenants.at(session(index).tenant).used;
  }
  template <class Change>
  void use(SessionIndex index, Change&& change) {
    Device& device = devices_[device_of(index)];
    Bytes& used = device.tenants[session(index).tenant].used;
    device.kept -= guarantee(index).minus(used);
    change(used);
    device.kept += guarantee(index).minus(used);
  }
  Bytes share(SessionIndex index) const {
    const Device& device = devices_[device_of(index)];
    const auto open = static_cast<double>((trace_.options.pool - device.promised).count);
    const double part = static_cast<double>(tenant(index).weight) / static_cast<double>(device.weights);
    return guarantee(index) + Bytes{static_cast<std::uint64_t>(open * part)};
  }
  Bytes allowed(SessionIndex index) const {
    const Bytes kept_for_others = devices_[device_of(index)].kept - guarantee(index).minus(used(index));
    return std::min(share(index).minus(used(index)), free_[device_of(index)].minus(kept_for_others));
  }

  std::vector<Device> devices_;
  std::uint64_t last_ = 0;
};

// A poll can only succeed after something has changed: so only the next one that will is looked for.
class Retrying final : public Books {
 public:
  explicit Retrying(const Trace& trace) : Books(trace), next_(trace.options.devices) {}

  void tick(TimePoint now) override {
    for (DeviceIndex device = 0; device < next_.size(); ++device) {
      if (!next_[device] || next_[device]->at > now) continue;
      take(device, waiting_[device].find(next_[device]->who));
      changed(device, now);
    }
  }
  std::optional<TimePoint> next_deadline() const override {
    std::optional<TimePoint> soonest;
    for (const auto& one : next_) {
      if (one && (!soonest || one->at < *soonest)) soonest = one->at;
    }
    return soonest;
  }

 private:
  static constexpr Duration kPause = std::chrono::milliseconds(500);
  struct Poll {
    TimePoint at;
    Line::key_type who;
  };

  // The moment within each pause at which the session looks.
  std::uint64_t order_of(SessionIndex, TimePoint now) override {
    return static_cast<std::uint64_t>((now.time_since_epoch() % kPause).count());
  }
  void asked(SessionIndex index, TimePoint now) override {
    Line& line = waiting_[device_of(index)];
    const auto own = line.find({order_of(index, now), index});
    if (own->second.least > free_[device_of(index)]) return;
    take(device_of(index), own);
    changed(device_of(index), now);
  }
  void take(DeviceIndex device, Line::iterator at) {
    grant(device, at, std::min(at->second.wanted, free_[device]));
  }
  void changed(DeviceIndex device, TimePoint now) override {
    next_[device].reset();
    if (free_[device].is_zero()) return;
    Line& line = waiting_[device];
    const std::uint64_t phase = order_of(0, now);
    const auto middle = line.lower_bound({phase, 0});
    if (find(device, middle, line.end(), now - Duration(phase))) return;
    find(device, line.begin(), middle, now - Duration(phase) + kPause);
  }
  bool find(DeviceIndex device, Line::iterator from, Line::iterator to, TimePoint round) {
    for (auto at = from; at != to; ++at) {
      if (at->second.least > free_[device]) continue;
      next_[device] = Poll{round + Duration(at->first.first), at->first};
      return true;
    }
    return false;
  }

  std::vector<std::optional<Poll>> next_;  ///< by device
};

}  // namespace

std::unique_ptr<Strategy> static_split(const Trace& trace) { return std::make_unique<StaticSplit>(trace); }
std::unique_ptr<Strategy> first_come(const Trace& trace) { return std::make_unique<FirstCome>(trace); }
std::unique_ptr<Strategy> retrying(const Trace& trace) { return std::make_unique<Retrying>(trace); }

}  // namespace gpumem::bench
