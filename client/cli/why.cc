#include "client/cli/why.h"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "client/cli/interrupt.h"
#include "client/cli/why_view.h"

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
    const std::string text = options.style.json ? json_text(why_json(*explained)) : why_text(*explained);
    if (options.watch_seconds && options.style.terminal) std::cout << kClearScreen;
    std::cout << text << std::flush;
  } while (options.watch_seconds && std::cout &&
           interrupt.wait(std::chrono::duration<double>(*options.watch_seconds)));
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
