#include "sim/control/control_time.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>

namespace gpumem::sim {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t picoseconds;
};
constexpr std::array<Unit, 5> kUnits = {
    {{"s", 1'000'000'000'000}, {"ms", 1'000'000'000}, {"us", 1'000'000}, {"ns", 1'000}, {"ps", 1}}};
constexpr std::int64_t kDay = 86'400 * kUnits[0].picoseconds;

/// A thread is woken up to the timer slack, 50 us by default, after its time: the rest is spun.
constexpr std::chrono::microseconds kSpin{100};

Error bad_time(std::string_view text) {
  return {Code::kInvalidArgument,
          "'" + std::string(text) +
              "' is no time; wanted is a number and a unit, up to a day, such as 5ms, " + "1.5us, 218.4ns"};
}

const Unit* find_unit(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

Result<Picoseconds> parse_time(std::string_view text) {
  const auto name = text.find_first_not_of("0123456789.");
  const Unit* const unit = name == std::string_view::npos ? nullptr : find_unit(text.substr(name));
  if (unit == nullptr || !is_digit(text[0]) || !is_digit(text[name - 1])) return bad_time(text);
  std::int64_t sum = 0;
  std::int64_t worth = 0;  // of the next digit behind the point; zero before it
  for (const char c : text.substr(0, name)) {
    if (c == '.') {
      if (worth != 0) return bad_time(text);
      worth = unit->picoseconds;
    } else if (worth == 0) {
      sum = sum * 10 + (c - '0') * unit->picoseconds;
      if (sum > kDay) return bad_time(text);
    } else {
      worth = worth / 10;
      sum += (c - '0') * worth;
      if (worth == 0) break;
    }
  }
  return Picoseconds(sum);
}

std::string to_string(Picoseconds time) {
  const std::int64_t count = time.count();
  if (count == 0) return "0s";
  const Unit* unit = kUnits.begin();
  while (count < unit->picoseconds) ++unit;
  std::string text = std::to_string(count / unit->picoseconds);
  std::int64_t rest = count % unit->picoseconds;
  if (rest != 0) text += '.';
  for (std::int64_t worth = unit->picoseconds / 10; rest != 0; worth /= 10) {
    text += static_cast<char>('0' + rest / worth);
    rest %= worth;
  }
  return text + std::string(unit->name);
}

void spend(std::chrono::nanoseconds time) {
  using Clock = std::chrono::steady_clock;
  if (time.count() <= 0) return;
  const Clock::time_point end = Clock::now() + time;
  if (time > 2 * kSpin) {
    const auto wake = std::chrono::duration_cast<std::chrono::nanoseconds>((end - kSpin).time_since_epoch());
    const timespec until{wake.count() / 1'000'000'000, wake.count() % 1'000'000'000};
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
  while (Clock::now() < end) __builtin_ia32_pause();
}

}  // namespace gpumem::sim
