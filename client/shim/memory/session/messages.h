#pragma once
#include <atomic>
#include <chrono>
#include <string_view>

namespace gpumem::shim {

/// Writes `text` as one line of this process on standard error: `gpumem: text`. It is whole beside other
/// threads' lines.
void say(std::string_view text);

/// Says why requests were refused, once in a while: a program that probes for memory is refused often.
/// Threads  any.
class RefusalMessages {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{30};

  /// Says `text`, unless something was said less than kPause before `now`. Whether it was said.
  bool tell(std::string_view text, Clock::time_point now = Clock::now());

 private:
  static constexpr Clock::rep kNever = Clock::duration::min().count();
  std::atomic<Clock::rep> last_{kNever};
  std::atomic<unsigned> left_out_{0};
};

}  // namespace gpumem::shim
