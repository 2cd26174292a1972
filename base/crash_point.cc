#include "base/crash_point.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

namespace gpumem {
namespace detail {

constinit std::atomic<CrashPlan> crash_plan{CrashPlan::kUnread};

}  // namespace detail

namespace {

enum class CrashAction : unsigned char { kKill, kStop, kFail };

/// What is to happen at a point.
struct ArmedPoint {
  CrashPoint point{};
  CrashAction action = CrashAction::kKill;
  std::atomic<unsigned> left{0};  ///< times that it is reached until then; 0: it has happened
};

constexpr const char* kCrashVariable = "GPUMEM_CRASH_POINT";
constexpr std::array<std::string_view, 3> kCrashActions{"kill", "stop", "fail"};

// To standard error by one system call: the process may be anybody's, and is about to end.
void say(std::string_view what, std::string_view words) {
  const std::string line =
      std::string(kCrashVariable) + ": " + std::string(what) + " " + std::string(words) + "\n";
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

/// The part of `text` before `separator`, which `text` loses with it; all of it, if there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::string_view taken = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), taken.size() + 1));
  return taken;
}

/// The crash points that the environment names, read once. An unknown part is reported and skipped.
class CrashPoints {
 public:
  CrashPoints() {
    const char* const told = ::secure_getenv(kCrashVariable);
    std::string_view text = told == nullptr ? "" : told;
    while (!text.empty() && count_ < armed_.size()) {
      const std::string_view part = take_until(text, ',');
      if (!add(part)) say(part, "is no crash point");
    }
  }

  bool empty() const { return count_ == 0; }

  /// What is to happen now.
  std::optional<CrashAction> reach(CrashPoint point) {
    for (std::size_t i = 0; i < count_; ++i) {
      ArmedPoint& one = armed_[i];
      if (one.point != point) continue;
      unsigned left = one.left.load(std::memory_order_relaxed);
      while (left != 0 && !one.left.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
      }
      if (left == 1) return one.action;
    }
    return std::nullopt;
  }

 private:
  bool add(std::string_view part) {
    std::string_view where = take_until(part, '=');
    const std::string_view how = part.empty() ? kCrashActions[0] : part;
    const std::string_view name = take_until(where, ':');
    const auto* const entry =
        std::ranges::find(std::begin(kCrashPoints), std::end(kCrashPoints), name, &CrashPointEntry::name);
    const auto* const action = std::ranges::find(kCrashActions, how);
    unsigned count = 1;
    const auto* const end = where.data() + where.size();
    const bool counted = where.empty() || std::from_chars(where.data(), end, count).ptr == end;
    if (entry == std::end(kCrashPoints) || action == kCrashActions.end() || !counted || count == 0)
      return false;
    ArmedPoint& one = armed_[count_];
    one.point = entry->point;
    one.action = static_cast<CrashAction>(action - kCrashActions.begin());
    one.left = count;
    if (one.action == CrashAction::kFail && !entry->can_fail) return false;
    ++count_;
    return true;
  }

  std::array<ArmedPoint, 8> armed_;
  std::size_t count_ = 0;
};

CrashPoints& crash_points() {
  static CrashPoints points;
  return points;
}

}  // namespace

bool detail::reach(CrashPoint point) {
  CrashPoints& points = crash_points();
  crash_plan.store(points.empty() ? CrashPlan::kNone : CrashPlan::kSome, std::memory_order_relaxed);
  const auto action = points.reach(point);
  if (!action) return false;
  const CrashPointEntry& entry = kCrashPoints[static_cast<std::size_t>(point)];
  say(entry.name, kCrashActions[static_cast<std::size_t>(*action)]);
  if (*action == CrashAction::kFail) return true;
  // To all threads at once, and not to be caught: the end that no destructor sees.
  ::kill(::getpid(), *action == CrashAction::kKill ? SIGKILL : SIGSTOP);
  return false;
}

}  // namespace gpumem
