#include "client/cli/events.h"

#include <iostream>

#include "client/cli/interrupt.h"
#include "client/cli/listings.h"
#include "client/cli/monitor.h"
#include "client/cli/time_text.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

Result<v1::WatchEventsRequest> request_of(const EventsOptions& options) {
  v1::WatchEventsRequest request;
  request.set_follow(options.follow);
  request.set_tenant(options.tenant);
  if (!options.follow && options.since.empty()) request.set_since("1970-01-01T00:00:00Z");
  if (options.since.empty()) return request;
  auto since = since_text(options.since, std::chrono::system_clock::now());
  if (!since) return since.error().in("--since");
  request.set_since(*since);
  return request;
}

void warn_of_unknown_tenant(const Monitor& monitor, const std::string& tenant) {
  if (tenant.empty() || unknown_tenants(monitor, {tenant}).empty()) return;
  std::cerr << "gpumem: no tenant '" << tenant << "' is known now; see `gpumem tenants`\n";
}

}  // namespace

int run_events(const EventsOptions& options) {
  auto request = request_of(options);
  if (!request) return report(request.error());
  const Interrupt interrupt;
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return report(monitor.error());
  if (options.follow) warn_of_unknown_tenant(*monitor, options.tenant);
  bool any = false;
  const auto show = [&](const v1::Event& event) {
    any = true;
    std::cout << (options.json ? event_json_line(event) : event_line(event)) << std::flush;
    return static_cast<bool>(std::cout);
  };
  const auto watched = monitor->watch_events(*request, show, interrupt.token());
  if (!watched && !interrupt.happened()) return report(watched.error());
  if (!options.follow && !any) warn_of_unknown_tenant(*monitor, options.tenant);
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
