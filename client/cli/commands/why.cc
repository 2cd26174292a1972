#include "client/cli/commands/commands.h"

#include <algorithm>
#include <iostream>

#include "base/text/missing_memory.h"
#include "base/text/number.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

v1::ExplainRequest request_about(const Monitor& monitor, const std::string& subject) {
  v1::ExplainRequest request;
  if (const auto session = whole_number<std::uint64_t>(subject))
    request.set_session(*session);
  else
    request.set_tenant(find_tenant(monitor, subject));
  return request;
}

// Which the broker sent; null of other events.
const char* signal_in(const v1::Event& event) {
  if (event.kind() == "terminating") return "SIGTERM";
  return event.kind() == "killing" ? "SIGKILL" : nullptr;
}

// The tenant's last denials and ends by a signal, the latest first; none, where that is not to be known.
std::vector<v1::Event> last_troubles(const Monitor& monitor, const std::string& tenant, WallTime now,
                                     std::stop_token stop) {
  constexpr std::size_t kMost = 3;
  v1::WatchEventsRequest request;
  request.set_tenant(tenant);
  request.set_since(to_rfc3339(now - std::chrono::minutes(10), Precision::kMicroseconds));
  std::vector<v1::Event> troubles;
  const auto keep = [&](const v1::Event& event) {
    if (event.kind() != "denied" && !signal_in(event)) return true;
    troubles.insert(troubles.begin(), event);
    if (troubles.size() > kMost) troubles.pop_back();
    return true;
  };
  if (!monitor.watch_events(request, keep, std::move(stop))) return {};
  return troubles;
}

std::string span(std::uint64_t milliseconds) { return span_text(std::chrono::milliseconds(milliseconds)); }

// With a comma before it, if there is anything to say.
std::string and_so(std::uint64_t bytes, const std::string& words) {
  return bytes == 0 ? "" : ", " + size_text(bytes) + " " + words;
}

std::string shortage_words(const v1::Denial& denial) {
  std::string words =
      "of the pool of " + size_text(denial.pool()) + ", " + size_text(denial.free()) + " are free";
  words += and_so(denial.kept_for_others(), "of them kept for others' guarantees");
  words += and_so(denial.charged_to_others(), "charged to other tenants");
  words += and_so(denial.tenant_charged(), "charged to this one");
  words += and_so(denial.missing() - std::min(denial.missing(), denial.contexts()),
                  "missing, " + missing_because(denial.device()));
  words += and_so(denial.contexts(), "given to the driver for contexts");
  words += and_so(denial.returning(), "on their way back");
  return words + and_so(denial.asked_back(), "asked back of borrowers");
}

std::string kept_words(const v1::Denial& denial) {
  if (denial.limiting_kept() == 0) return "";
  return ", " + size_text(denial.limiting_kept()) + " kept for guarantees of others below it";
}

std::string limit_words(const v1::Denial& denial) {
  if (denial.limit() == v1::Denial::LIMIT_OF_RESERVE)
    return "jobs of the tenant may have " + size_text(denial.limiting_limit()) + " reserved together, and " +
           size_text(denial.limiting_charged()) + " are";
  const std::string& whose = denial.limiting_tenant();
  const std::string who = denial.limit() == v1::Denial::LIMIT_OF_JOB  ? "its " + whose
                          : whose.empty() || whose == denial.tenant() ? "the tenant"
                                                                      : "tenant " + whose + " above it";
  const bool debt = denial.reason() == v1::Denial::REASON_DEBT;
  return who + (debt ? " uses more than its limit of " : " would pass its limit of ") +
         size_text(denial.limiting_limit()) + ": " + size_text(denial.limiting_charged()) +
         " are charged already" + and_so(denial.limiting_contexts(), "of them for contexts of its programs") +
         kept_words(denial);
}

std::string holder_words(const v1::Holder& holder) {
  std::string words =
      holder.session() == 0 ? "tenant " + holder.tenant() : "session " + std::to_string(holder.session());
  if (holder.pid() != 0) words += " (pid " + std::to_string(holder.pid()) + ", " + holder.command() + ")";
  return words + " " + size_text(holder.charged());
}

template <class Holders>
std::string holders_line(const std::string& title, const Holders& holders) {
  std::string words;
  for (const v1::Holder& holder : holders) words += (words.empty() ? "" : ", ") + holder_words(holder);
  return words.empty() ? "" : "    " + title + words + "\n";
}

std::string available_line(const v1::Standing& standing, bool lends) {
  std::string line = lends ? "  could be granted now: " : "  could be granted when the broker lends again: ";
  line += size_text(standing.available());
  if (standing.waiting() != 0 && standing.available() != 0)
    line += ", unless it is the turn of what waits already: " + counted(standing.waiting(), "request");
  return line + "\n";
}

// Of a user who has no session.
std::string newcomers_text(const v1::Standing& standing, bool lends, const Layout& layout) {
  return layout.device(standing.device()) + "\n  would have at most " + size_text(standing.limit()) +
         "; guarantee " + size_text(standing.guarantee()) + ", weight " + std::to_string(standing.weight()) +
         ", priority " + std::to_string(standing.priority()) + "\n" + available_line(standing, lends);
}

std::string troubles_text(const std::string& tenant, const std::vector<v1::Event>& troubles, WallTime now,
                          const Layout& layout) {
  if (troubles.empty()) return "";
  std::string text;
  for (const v1::Event& event : troubles) {
    const char* const signal = signal_in(event);
    text += signal == nullptr ? "denied "
                              : std::string(signal) + " sent to pid " + std::to_string(event.pid()) + " ";
    text += age_text(event.time(), now) + " ago: ";
    text += event.words().empty() ? size_text(event.bytes()) + " on " + layout.device(event.device())
                                  : with_device_names(event.words(), layout.devices);
    text += "\n";
  }
  const bool is_plain = tenant.find_first_of(" '\"\\$`;&|<>()*?~#") == std::string::npos;
  const std::string word = is_plain ? tenant : "'" + tenant + "'";
  return text + "  see `gpumem events --no-follow --tenant " + word + "`\n";
}

std::string standing_text(const v1::Standing& standing, bool lends, const Layout& layout) {
  std::string text = layout.device(standing.device()) + "\n  charged " + size_text(standing.charged()) +
                     " of at most " + size_text(standing.limit()) + "; guarantee " +
                     size_text(standing.guarantee()) + ", weight " + std::to_string(standing.weight()) +
                     ", priority " + std::to_string(standing.priority()) + "\n";
  if (standing.declared() != 0 || standing.overhead() != 0) {
    text += "  of that, besides the broker's memory: declared " + size_text(standing.declared()) +
            ", contexts " + size_text(standing.overhead()) + "\n";
  }
  if (standing.past_broker() != 0) {
    text += "  of that, taken past the broker without a word: " + size_text(standing.past_broker()) +
            "; `gpumem reconcile` names the processes\n";
  }
  text += available_line(standing, lends);
  if (standing.regions() != 0) {
    text += "  published: " + size_text(standing.region_bytes()) + " in " +
            counted(standing.regions(), "region") + ", which come back with those who have mapped them" +
            (standing.kept_bytes() == 0 ? "" : "; kept beyond them: " + size_text(standing.kept_bytes())) +
            "\n";
  }
  if (standing.burst() != 0) text += "  beyond what is promised: " + size_text(standing.burst()) + "\n";
  if (standing.debt() != 0) text += "  beyond the limit: " + size_text(standing.debt()) + "\n";
  if (standing.asked_back() != 0) {
    text += "  asked to give back " + size_text(standing.asked_back()) + " within " +
            span(standing.asked_back_within_ms()) + "\n";
  }
  return text;
}

std::string soonest_words(const v1::Soonest& soonest) {
  const std::string when = soonest.known() ? "within " + span(soonest.within_ms()) : "not known";
  return soonest.why().empty() ? when : when + ": " + soonest.why();
}

std::string waiting_text(const v1::Denial& denial, const Layout& layout) {
  std::string text = "request " + std::to_string(denial.request()) + " of session " +
                     std::to_string(denial.session()) + " waits for " + size_text(denial.asked());
  if (denial.asked_min() != 0 && denial.asked_min() != denial.asked())
    text += " (at least " + size_text(denial.asked_min()) + ")";
  if (denial.context() != 0)
    text += " that the driver lacks for a context of about " + size_text(denial.context());
  text += " on " + layout.device(denial.device()) + "\n  for " + span(denial.waited_ms());
  if (denial.wait_limit_ms() != 0) text += " of " + span(denial.wait_limit_ms());
  text += denial.waiters_ahead() == 0 ? ", first in the line\n"
                                      : ", ahead of it: " + std::to_string(denial.waiters_ahead()) + "\n";
  text += "  why: " + obstacle_words(denial) + "\n";
  text += "  soonest: " + soonest_words(denial.soonest()) + "\n";
  return text + holders_line("held by the tenant: ", denial.holders()) +
         holders_line("held by others: ", denial.other_tenants());
}

Json holders_json(const google::protobuf::RepeatedPtrField<v1::Holder>& holders) {
  Json list = Json::array();
  for (const v1::Holder& holder : holders) {
    list.push_back({{"tenant", holder.tenant()},
                    {"session", holder.session() == 0 ? Json() : Json(holder.session())},
                    {"pid", holder.pid() == 0 ? Json() : Json(holder.pid())},
                    {"command", holder.command()},
                    {"charged", holder.charged()}});
  }
  return list;
}

// REASON_NO_MEMORY as `no-memory`.
std::string reason_name(v1::Denial::Reason reason) {
  std::string name = v1::Denial::Reason_Name(reason);
  name.erase(0, std::string("REASON_").size());
  for (char& letter : name) letter = letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
  return name;
}

Json standing_json(const v1::Standing& standing) {
  return {
      {"device", standing.device()},
      {"guarantee", standing.guarantee()},
      {"limit", standing.limit()},
      {"weight", standing.weight()},
      {"priority", standing.priority()},
      {"charged", standing.charged()},
      {"declared", standing.declared()},
      {"overhead", standing.overhead()},
      {"past_broker", standing.past_broker()},
      {"available", standing.available()},
      {"waiting", standing.waiting()},
      {"burst", standing.burst()},
      {"debt", standing.debt()},
      {"asked_back", standing.asked_back()},
      {"regions", standing.regions()},
      {"region_bytes", standing.region_bytes()},
      {"kept_bytes", standing.kept_bytes()},
      {"asked_back_within_ms", standing.asked_back() == 0 ? Json() : Json(standing.asked_back_within_ms())}};
}

Json waiting_json(const v1::Denial& denial) {
  const v1::Soonest& soonest = denial.soonest();
  return {{"request", denial.request()},
          {"session", denial.session()},
          {"tenant", denial.tenant()},
          {"device", denial.device()},
          {"reason", reason_name(denial.reason())},
          {"words", obstacle_words(denial)},
          {"asked", denial.asked()},
          {"asked_min", denial.asked_min()},
          {"waited_ms", denial.waited_ms()},
          {"wait_limit_ms", denial.wait_limit_ms()},
          {"waiters_ahead", denial.waiters_ahead()},
          {"soonest_ms", soonest.known() ? Json(soonest.within_ms()) : Json()},
          {"soonest_why", soonest.why()},
          {"pool", denial.pool()},
          {"free", denial.free()},
          {"kept_for_others", denial.kept_for_others()},
          {"charged_to_others", denial.charged_to_others()},
          {"missing", denial.missing()},
          {"contexts", denial.contexts()},
          {"context", denial.context()},
          {"returning", denial.returning()},
          {"asked_back", denial.asked_back()},
          {"limiting_contexts", denial.limiting_contexts()},
          {"limiting_tenant", denial.limiting_tenant().empty() ? Json() : Json(denial.limiting_tenant())},
          {"holders", holders_json(denial.holders())},
          {"other_tenants", holders_json(denial.other_tenants())}};
}

Json trouble_json(const v1::Event& event) {
  Json json{{"time", event.time()},
            {"session", event.session()},
            {"device", event.device()},
            {"bytes", event.bytes()},
            {"words", event.words().empty() ? Json() : Json(event.words())}};
  if (const char* const signal = signal_in(event)) {
    json["signal"] = signal;
    json["pid"] = event.pid();
  }
  return json;
}

}  // namespace

int run_why(const WhyOptions& options) {
  const Interrupt interrupt;
  std::optional<v1::ExplainRequest> request;
  Layout layout;
  const auto text_of = [&](const Monitor& monitor) -> Result<std::string> {
    if (!request) {
      request = request_about(monitor, options.subject);
      layout = layout_for(monitor, options.flags.is_long);
    }
    auto explained = monitor.explain(*request);
    if (!explained) return explained.error();
    const WallTime now = std::chrono::system_clock::now();
    const auto troubles = explained->waiting().empty()
                              ? last_troubles(monitor, explained->tenant(), now, interrupt.token())
                              : std::vector<v1::Event>();
    return options.flags.json ? json_text(why_json(*explained, troubles))
                              : why_text(*explained, troubles, now, layout);
  };
  return show({options.runtime_folder, options.watch_seconds, &interrupt}, text_of);
}

// The broker tells of so many.
constexpr std::uint64_t kMostExplained = 64;

std::string obstacle_words(const v1::Denial& denial) {
  switch (denial.reason()) {
    case v1::Denial::REASON_SLICE_LIMIT: return "the slice would pass its own limit";
    case v1::Denial::REASON_TENANT_LIMIT:
    case v1::Denial::REASON_DEBT: return limit_words(denial);
    case v1::Denial::REASON_POOL_SIZE:
      if (denial.limiting_kept() != 0)
        return "the limit of tenant " + denial.limiting_tenant() + ", " + size_text(denial.limiting_limit()) +
               ", does not hold so much besides the " + size_text(denial.limiting_kept()) +
               " that are guaranteed to others below it";
      return "the pool of " + size_text(denial.pool()) +
             " does not hold so much besides what is promised to others";
    case v1::Denial::REASON_NO_MEMORY: return shortage_words(denial);
    case v1::Denial::REASON_TURN:
      return "there is memory (" + size_text(denial.free()) + " free), but other requests are first";
    default: return "for a reason that this version does not know";
  }
}

std::string why_text(const v1::ExplainResponse& explained, const std::vector<v1::Event>& troubles,
                     WallTime now, const Layout& layout) {
  const bool is_newcomer = explained.newcomer();
  std::string text = "tenant " + tenant_text(explained.tenant()) +
                     (is_newcomer ? " has no session now; what [default] says would hold\n" : "\n");
  const bool lends = explained.not_lending().empty();
  if (!lends) text += explained.not_lending() + "\n";
  for (const v1::Standing& standing : explained.devices())
    text += "\n" +
            (is_newcomer ? newcomers_text(standing, lends, layout) : standing_text(standing, lends, layout));
  if (explained.waiting().empty())
    text += "\nno request waits\n" + troubles_text(explained.tenant(), troubles, now, layout);
  for (const v1::Denial& denial : explained.waiting()) text += "\n" + waiting_text(denial, layout);
  if (explained.requests() > kMostExplained && !explained.waiting().empty())
    text += "\n" + std::to_string(explained.requests()) + " requests wait in all; these came first\n";
  return printable_lines(text);
}

Json why_json(const v1::ExplainResponse& explained, const std::vector<v1::Event>& troubles) {
  Json json{{"tenant", explained.tenant()}, {"newcomer", explained.newcomer()}, {"devices", Json::array()},
            {"waiting", Json::array()},     {"requests", explained.requests()}, {"denials", Json::array()},
            {"signals", Json::array()}};
  json["not_lending"] = explained.not_lending().empty() ? Json() : Json(explained.not_lending());
  for (const v1::Standing& standing : explained.devices()) json["devices"].push_back(standing_json(standing));
  for (const v1::Denial& denial : explained.waiting()) json["waiting"].push_back(waiting_json(denial));
  for (const v1::Event& event : troubles)
    json[signal_in(event) == nullptr ? "denials" : "signals"].push_back(trouble_json(event));
  return json;
}

}  // namespace gpumem::cli
