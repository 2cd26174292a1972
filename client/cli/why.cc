#include "client/cli/why.h"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "client/cli/interrupt.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

v1::ExplainRequest request_about(const std::string& subject) {
  v1::ExplainRequest request;
  std::uint64_t session = 0;
  const auto [rest, failed] = std::from_chars(subject.data(), subject.data() + subject.size(), session);
  if (failed == std::errc() && rest == subject.data() + subject.size())
    request.set_session(session);
  else
    request.set_tenant(subject);
  return request;
}

// The tenant's last ones, the latest first; none, where that is not to be known.
std::vector<v1::Event> last_denials(const Monitor& monitor, const std::string& tenant, WallTime now,
                                    std::stop_token stop) {
  constexpr std::size_t kMost = 3;
  v1::WatchEventsRequest request;
  request.set_tenant(tenant);
  request.set_since(since_text("10m", now).value_or(""));
  std::vector<v1::Event> denials;
  const auto keep = [&](const v1::Event& event) {
    if (event.kind() != "denied") return true;
    denials.insert(denials.begin(), event);
    if (denials.size() > kMost) denials.pop_back();
    return true;
  };
  if (!monitor.watch_events(request, keep, std::move(stop))) return {};
  return denials;
}

}  // namespace

int run_why(const WhyOptions& options) {
  const Interrupt interrupt;
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return report(monitor.error());
  const v1::ExplainRequest request = request_about(options.subject);
  do {
    auto explained = monitor->explain(request);
    if (interrupt.happened()) return 0;
    if (!explained) return report(explained.error());
    const WallTime now = std::chrono::system_clock::now();
    const auto denials = explained->waiting().empty()
                             ? last_denials(*monitor, explained->tenant(), now, interrupt.token())
                             : std::vector<v1::Event>();
    if (interrupt.happened()) return 0;
    const std::string text =
        options.style.json ? json_text(why_json(*explained, denials)) : why_text(*explained, denials, now);
    if (options.watch_seconds && options.style.terminal) std::cout << kClearScreen;
    std::cout << text << std::flush;
  } while (options.watch_seconds && std::cout &&
           interrupt.wait(std::chrono::duration<double>(*options.watch_seconds)));
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
