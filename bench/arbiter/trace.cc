#include "bench/arbiter/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>

namespace gpumem::bench {
namespace {

constexpr double kGuaranteedTenants = 0.04;  // of all tenants
constexpr double kGuaranteedPart = 0.2;      // of a pool, all guarantees together
constexpr double kGuaranteedActivity = 4;    // sessions of a tenant that has a guarantee, against one without
constexpr double kElastic = 0.4;             // of all sessions
constexpr double kAtHome = 0.8;              // of all sessions
constexpr double kBursts = 0.02;             // of arrivals are many sessions at once
constexpr double kBurstMean = 10;            // sessions in a burst
constexpr double kNight = 0.15;              // of the rate at noon
constexpr std::size_t kSteps = 288;          // of the day's curve

// Draws of our own: the standard library's distributions differ between its implementations.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  bool chance(double part) { return uniform() < part; }
  std::size_t below(std::size_t end) {
    return std::min(end - 1, static_cast<std::size_t>(uniform() * static_cast<double>(end)));
  }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }
  double exponential(double mean) { return -mean * std::log(uniform()); }

 private:
  std::mt19937_64 engine_;
};

// Where in 0..1 a draw of an amount in proportion to `weights` falls.
class Proportional {
 public:
  explicit Proportional(std::vector<double> weights) : sums_(std::move(weights)) {
    for (std::size_t i = 1; i < sums_.size(); ++i) sums_[i] += sums_[i - 1];
  }
  /// The place that was drawn, and how far into it, 0 to 1.
  std::pair<std::size_t, double> draw(Dice& dice) const {
    const double at = dice.uniform() * sums_.back();
    const auto place = std::min<std::size_t>(
        static_cast<std::size_t>(std::ranges::upper_bound(sums_, at) - sums_.begin()), sums_.size() - 1);
    const double from = place == 0 ? 0 : sums_[place - 1];
    return {place, (at - from) / (sums_[place] - from)};
  }

 private:
  std::vector<double> sums_;
};

// How many sessions start in each part of a local day: few at night, most at 14 o'clock.
std::vector<double> day_curve() {
  std::vector<double> rates(kSteps);
  for (std::size_t i = 0; i < kSteps; ++i) {
    const double hour = 24 * (static_cast<double>(i) + 0.5) / kSteps;
    const double height = std::sin(std::numbers::pi * (hour - 7) / 14);
    rates[i] = kNight + (1 - kNight) * std::pow(std::max(0.0, hour < 21 ? height : 0.0), 1.5);
  }
  return rates;
}

Bytes whole(double bytes) {
  return Bytes{static_cast<std::uint64_t>(bytes)}.rounded_up(kGranularity).value();
}

struct Habits {
  double activity = 1;
  double phase = 0;  ///< of the day, 0 to 1
};

class Generator {
 public:
  explicit Generator(const TraceOptions& options) : dice_(options.seed), curve_(day_curve()) {
    trace_.options = options;
  }

  Trace make() {
    make_tenants();
    std::vector<double> activities;
    for (const Habits& one : habits_) activities.push_back(one.activity);
    const Proportional who(std::move(activities));
    while (trace_.sessions.size() < trace_.options.sessions) arrive(who.draw(dice_).first);
    std::ranges::stable_sort(trace_.sessions, {}, &SimulatedSession::arrival);
    scale_durations();
    return std::move(trace_);
  }

 private:
  void make_tenants() {
    const TraceOptions& options = trace_.options;
    // Of every 1/kGuaranteedTenants tenants of a device, one has a guarantee.
    const auto every = static_cast<std::size_t>(1 / kGuaranteedTenants);
    const auto promised = static_cast<double>(options.pool.count) * kGuaranteedPart;
    const auto sharers =
        std::max<std::size_t>(1, (options.tenants + options.devices * every - 1) / (options.devices * every));
    for (std::size_t i = 0; i < options.tenants; ++i) {
      const bool guaranteed = i / options.devices % every == 0;
      SimulatedTenant tenant{i % options.devices, {}, weight()};
      if (guaranteed) tenant.guarantee = Bytes{static_cast<std::uint64_t>(promised) / sharers};
      tenant.guarantee = tenant.guarantee.rounded_down(kGranularity);
      trace_.tenants.push_back(tenant);
      habits_.push_back({dice_.log_normal(guaranteed ? kGuaranteedActivity : 1, 1), phase()});
    }
  }
  std::uint32_t weight() {
    const double draw = dice_.uniform();
    return core::kDefaultWeight * (draw < 0.05 ? 4 : draw < 0.2 ? 2 : 1);
  }
  // Three time zones of different sizes, and everybody's own habit.
  double phase() {
    const double draw = dice_.uniform();
    const double zone = draw < 0.6 ? 0 : draw < 0.85 ? 8.0 / 24 : 18.0 / 24;
    return zone + dice_.normal() / 24;
  }

  // One session, or a burst of equal ones.
  void arrive(std::size_t tenant) {
    const auto [step, within] = curve_.draw(dice_);
    const double local = (static_cast<double>(step) + within) / kSteps;
    const double at = local + habits_[tenant].phase;
    const double start = at - std::floor(at);
    const SimulatedSession one = session(tenant);
    const double more = dice_.chance(kBursts) ? dice_.exponential(kBurstMean) : 0;
    for (double i = 0; i <= more && trace_.sessions.size() < trace_.options.sessions; ++i) {
      trace_.sessions.push_back(one);
      trace_.sessions.back().arrival =
          TimePoint(part_of_day(start)) + std::chrono::milliseconds(static_cast<int>(250 * i));
    }
  }
  SimulatedSession session(std::size_t tenant) {
    const auto pool = static_cast<double>(trace_.options.pool.count);
    SimulatedSession one;
    one.tenant = static_cast<std::uint32_t>(tenant);
    one.device = dice_.chance(kAtHome) ? trace_.tenants[tenant].home : dice_.below(trace_.options.devices);
    const double smallest = static_cast<double>(mebibytes(8).count);
    one.size = whole(std::clamp(dice_.log_normal(pool / 320, 1.6), smallest, pool * (1 - kGuaranteedPart)));
    one.least = dice_.chance(kElastic) ? whole(static_cast<double>(one.size.count) / 4) : one.size;
    one.duration = part_of_day(dice_.log_normal(4.0 / (24 * 60), 1.2));
    one.patience = part_of_day(dice_.log_normal(10.0 / (24 * 60), 1));
    return one;
  }
  Duration part_of_day(double part) const {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, Duration::period>(
        part * static_cast<double>(trace_.options.day.count())));
  }

  void scale_durations() {
    double asked = 0;
    for (const SimulatedSession& one : trace_.sessions)
      asked += static_cast<double>(one.size.count) * static_cast<double>(one.duration.count());
    const TraceOptions& options = trace_.options;
    const double offered = static_cast<double>(options.pool.count) * static_cast<double>(options.devices) *
                           static_cast<double>(options.day.count());
    const double scale = options.load * offered / asked;
    for (SimulatedSession& one : trace_.sessions)
      one.duration = Duration(static_cast<Duration::rep>(static_cast<double>(one.duration.count()) * scale));
  }

  Dice dice_;
  Proportional curve_;
  Trace trace_;
  std::vector<Habits> habits_;
};

}  // namespace

Trace make_trace(const TraceOptions& options) { return Generator(options).make(); }

}  // namespace gpumem::bench
