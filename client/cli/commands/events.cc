#include "client/cli/commands/commands.h"

#include <google/protobuf/util/json_util.h>

#include <array>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "client/cli/monitor/event_cursor.h"
#include "client/cli/monitor/history_client.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

constexpr WallTime kEver{};
constexpr std::chrono::hours kBrokerLog{24};  // what the broker keeps at most

/// Which events are shown.
struct Wanted {
  WallTime since = kEver;
  WallTime until = WallTime::max();
  std::set<std::string> tenants{};  ///< empty: all

  bool has(const v1::Event& event) const {
    const auto time = parse_rfc3339(event.time());
    return time && *time >= since && *time < until && (tenants.empty() || tenants.count(event.tenant()) != 0);
  }
};

Result<Wanted> wanted_of(const EventsOptions& options, WallTime now) {
  Wanted wanted;
  for (const auto& [text, time] :
       {std::pair{&options.since, &wanted.since}, std::pair{&options.until, &wanted.until}}) {
    if (text->empty()) continue;
    const auto instant = instant_of(*text, now);
    if (!instant) return instant.error();
    *time = *instant;
  }
  return wanted;
}

// The tenant and those below it.
std::set<std::string> with_members(const Result<Monitor>& monitor, const std::string& tenant) {
  std::set<std::string> names{tenant};
  const auto all = monitor ? monitor->tenants() : v1::ListTenantsResponse();
  if (!all) return names;
  for (std::size_t before = 0; before != names.size();) {
    before = names.size();
    for (const v1::TenantUsage& one : all->tenants())
      if (names.count(one.parent()) != 0) names.insert(one.tenant());
  }
  return names;
}

using Show = std::function<bool(const v1::Event& event)>;

/// The events that gpumem-history has, which those of the broker follow.
class Past {
 public:
  Past(const std::filesystem::path& runtime_folder, const Wanted& wanted)
      : runtime_folder_(runtime_folder), wanted_(wanted) {}

  /// False: `show` wants no more. Errors  as ask_history().
  Result<bool> tell(const Show& show) const {
    for (std::optional<std::int64_t> after = 0; after;) {
      const auto answer = ask_history(runtime_folder_, "GET", target(*after));
      if (!answer) return answer.error();
      const nlohmann::json events = answer->value("events", nlohmann::json::array());
      for (const nlohmann::json& one : events)
        if (!take(one.dump(), show)) return false;
      const nlohmann::json last = answer->value("after", nlohmann::json());
      after = last.is_number() ? std::optional(last.get<std::int64_t>()) : std::nullopt;
    }
    return true;
  }

 private:
  std::string target(std::int64_t after) const {
    const auto seconds = [](WallTime time) {
      return std::to_string(std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count());
    };
    std::string target = "/v1/events?after=" + std::to_string(after) + "&since=" + seconds(wanted_.since);
    if (wanted_.until != WallTime::max())
      target += "&until=" + seconds(wanted_.until + std::chrono::seconds(1));
    return target;
  }
  bool take(const std::string& body, const Show& show) const {
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    v1::Event event;
    if (!google::protobuf::util::JsonStringToMessage(body, &event, options).ok() || !wanted_.has(event))
      return true;
    return show(event);
  }

  const std::filesystem::path& runtime_folder_;
  const Wanted& wanted_;
};

void say_what_is_missing(const Error& error, const Wanted& wanted, WallTime now) {
  const bool is_away = error.code == Code::kNotFound;
  if (is_away && wanted.since >= now - kBrokerLog) return;  // the broker's log may have all of it
  std::cerr << "gpumem: " << (is_away ? "gpumem-history has nothing here" : error.message)
            << ": these are the events of the broker's own log, which has the last 10,000 of the last day\n";
}

void warn_of_unknown_tenant(const Monitor& monitor, const std::string& tenant) {
  if (tenant.empty() || unknown_tenants(monitor, {tenant}).empty()) return;
  std::cerr << "gpumem: no tenant '" << tenant << "' is known now; see `gpumem tenants`\n";
}

// Shows the broker's events. A command that follows them goes on with the next broker. It says once that it
// waits for one, until an event has come.
Result<void> watch(const std::filesystem::path& runtime_folder, v1::WatchEventsRequest& request,
                   EventCursor& told, const Show& show, const std::stop_token& stop) {
  Result<void> last;
  bool is_away = false, is_over = false;
  const auto watch_one = [&](const Monitor& monitor) {
    request.set_since(told.begin());
    const auto show_one = [&](const v1::Event& event) {
      is_away = false;
      return !(is_over = !show(event));
    };
    return monitor.watch_events(request, show_one, stop);
  };
  keep_watching(runtime_folder, stop, watch_one, [&](const Result<void>& watched) {
    last = watched;
    if (is_over || !request.follow() || (!watched && !may_pass(watched.error()))) return false;
    if (!std::exchange(is_away, true))
      std::cerr << "gpumem: waiting for the broker" << (watched ? "" : ": " + watched.error().message)
                << "\n";
    last = {};
    return true;
  });
  return last;
}

/// The words for each kind of event; `%` stands for the bytes.
struct Phrase {
  std::string_view kind;
  std::string_view words;
};
constexpr std::array<Phrase, 28> kPhrases{{
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
    {"closed", "over, and charged for nothing any more"},
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
  if (event.waited_ms() != 0 && event.kind() != "closed")
    words += " after " + span_text(std::chrono::milliseconds(event.waited_ms()));
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
  const WallTime now = std::chrono::system_clock::now();
  auto wanted = wanted_of(options, now);
  if (!wanted) return report(wanted.error());
  const Interrupt interrupt;
  const auto monitor = Monitor::connect(options.runtime_folder);
  const bool asks_history = !options.since.empty() || !options.until.empty();
  if (!monitor && !asks_history) return report(monitor.error());
  const std::string tenant = monitor ? find_tenant(*monitor, options.tenant) : options.tenant;
  const bool is_long = options.flags.is_long;
  const Layout layout = monitor ? layout_for(*monitor, is_long) : Layout::of_output(is_long);
  bool any = false;
  const auto show = [&](const v1::Event& event) {
    any = true;
    std::cout << (options.flags.json ? event_json_line(event) : event_line(event, layout)) << std::flush;
    return std::cout && !interrupt.happened();
  };

  const bool from_now = !asks_history && options.follow;
  EventCursor told(to_rfc3339(from_now ? now : wanted->since, Precision::kMicroseconds));
  const auto show_new = [&](const v1::Event& event) { return !told.is_new(event) || show(event); };
  if (asks_history) {
    if (!tenant.empty()) wanted->tenants = with_members(monitor, tenant);
    const auto shown = Past(options.runtime_folder, *wanted).tell(show_new);
    if (!shown) say_what_is_missing(shown.error(), *wanted, now);
    if (shown && (!*shown || !options.until.empty())) return std::cout ? 0 : 1;
    if (!monitor) return report(monitor.error());
  }
  v1::WatchEventsRequest request;
  request.set_follow(options.follow && options.until.empty());
  request.set_tenant(tenant);
  if (options.follow) warn_of_unknown_tenant(*monitor, tenant);
  const auto show_next = [&](const v1::Event& event) {
    const auto time = parse_rfc3339(event.time());
    return (!time || *time < wanted->until) && show_new(event);
  };
  const Result<void> watched = watch(options.runtime_folder, request, told, show_next, interrupt.token());
  if (!watched && !interrupt.happened()) return report(watched.error());
  if (!options.follow && !any) warn_of_unknown_tenant(*monitor, tenant);
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
