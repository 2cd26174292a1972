#include "client/cli/commands/commands.h"

#include <array>
#include <iostream>
#include <string_view>

#include "base/printable.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

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

/// The words for each kind of event; `%` stands for the bytes.
struct Phrase {
  std::string_view kind;
  std::string_view words;
};
constexpr std::array<Phrase, 27> kPhrases{{
    {"opened", "session opened"},
    {"resumed", "session resumed after a restart of the broker"},
    {"ended", "session ended"},
    {"died", "its process is gone"},
    {"waiting", "% asked for: waits"},
    {"granted", "% granted"},
    {"denied", "% denied"},
    {"withdrawn", "a request for % withdrawn"},
    {"pressure", "asked to give % back"},
    {"relieved", "no longer asked to give memory back"},
    {"returned", "% given back, not yet proved free"},
    {"freed", "% proved free"},
    {"quarantined", "% given back, but the driver does not free them"},
    {"debt", "% beyond the limit"},
    {"debt-paid", "within the limit again"},
    {"terminating", "SIGTERM sent to its process"},
    {"killing", "SIGKILL sent to its process"},
    {"quota", "quotas changed"},
    {"past-broker", "holds % past the broker"},
    {"fabric", "gave out % by fabric handles"},
    {"unexplained", "% in use that nobody is known to hold"},
    {"published", "published % as a region"},
    {"mapped", "mapped a region of %"},
    {"removed", "removed a region of %"},
    {"expired", "the time of a region of % is over"},
    {"region-lost", "a region of % ended with its memory"},
    {"inherited", "charged for %: whoever had lent them has let go"},
}};

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string who(const v1::Event& event) {
  std::string words = event.tenant().empty() ? "-" : tenant_text(event.tenant());
  if (event.job() != 0) words += "  job " + std::to_string(event.job());
  if (event.session() != 0) words += "  session " + std::to_string(event.session());
  if (event.pid() != 0) {
    const std::string pid = "pid " + std::to_string(event.pid());
    words += event.session() != 0 ? " (" + pid + ")" : "  " + pid;
  }
  return words;
}

std::string what(const v1::Event& event) {
  std::string words = event.kind();  // of a newer broker
  for (const Phrase& phrase : kPhrases) {
    if (phrase.kind == event.kind()) words = phrase.words;
  }
  if (const auto amount = words.find('%'); amount != std::string::npos)
    words.replace(amount, 1, size_text(event.bytes()));
  if (event.waited_ms() != 0) words += " after " + span_text(std::chrono::milliseconds(event.waited_ms()));
  if (event.within_ms() != 0) words += " within " + span_text(std::chrono::milliseconds(event.within_ms()));
  return words;
}

template <class Number>
Json number_or_null(Number number) {
  return number == 0 ? Json() : Json(number);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

int run_events(const EventsOptions& options) {
  auto request = request_of(options);
  if (!request) return report(request.error());
  const Interrupt interrupt;
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return report(monitor.error());
  request->set_tenant(find_tenant(*monitor, options.tenant));
  if (options.follow) warn_of_unknown_tenant(*monitor, request->tenant());
  const Layout layout = layout_for(*monitor, options.flags.is_long);
  bool any = false;
  const auto show = [&](const v1::Event& event) {
    any = true;
    std::cout << (options.flags.json ? event_json_line(event) : event_line(event, layout)) << std::flush;
    return static_cast<bool>(std::cout);
  };
  const auto watched = monitor->watch_events(*request, show, interrupt.token());
  if (!watched && !interrupt.happened()) return report(watched.error());
  if (!options.follow && !any) warn_of_unknown_tenant(*monitor, request->tenant());
  return std::cout ? 0 : 1;
}

std::string event_line(const v1::Event& event, const Layout& layout) {
  std::string line = event.time() + "  " + padded(event.kind(), 11) + "  " + who(event) + "  ";
  if (!event.device().empty()) line += layout.device(event.device()) + "  ";
  return printable(line + event_words(event, layout.devices)) + "\n";
}

std::string event_words(const v1::Event& event, const std::vector<std::string>& devices) {
  const std::string& more = event.words();
  return what(event) + (more.empty() ? "" : ": " + escape_non_ascii(with_device_names(more, devices)));
}

std::string event_json_line(const v1::Event& event) {
  const Json json{{"sequence", event.sequence()},
                  {"time", event.time()},
                  {"kind", event.kind()},
                  {"tenant", text_or_null(event.tenant())},
                  {"job", number_or_null(event.job())},
                  {"session", number_or_null(event.session())},
                  {"pid", number_or_null(event.pid())},
                  {"device", text_or_null(event.device())},
                  {"bytes", event.bytes()},
                  {"request", number_or_null(event.request())},
                  {"waited_ms", event.waited_ms()},
                  {"within_ms", event.within_ms()},
                  {"words", text_or_null(event.words())}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpumem::cli
