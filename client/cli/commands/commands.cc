#include "client/cli/commands/commands.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <thread>

#include "client/cli/check/check.h"

namespace gpumem::cli {
namespace {

WallTime now() { return std::chrono::system_clock::now(); }

Result<std::string> show_status(const Monitor& monitor, const Style& style) {
  auto status = monitor.status();
  if (!status) return status.error();
  const auto regions = monitor.regions("");
  if (!regions) return regions.error();
  if (!style.json)
    return status_text(*status, now(), layout_for(*status, style.is_long)) + regions_summary(*regions);
  Json json = status_json(*status, now());
  json["regions"] = regions_summary_json(*regions);
  return json_text(json);
}

// Of the processes that this one can see.
HostMemories host_memories_of(const v1::ListSessionsResponse& sessions) {
  HostMemories host;
  for (const v1::SessionInfo& session : sessions.sessions()) {
    const auto status = session.pid() == 0 ? Result<std::string>(std::string())
                                           : read_proc_file(static_cast<pid_t>(session.pid()), "status");
    const auto memory =
        status ? host_memory_in(*status, session.command(), session.uid()) : std::optional<HostMemory>();
    if (memory) host.emplace(session.id(), *memory);
  }
  return host;
}

Result<std::string> show_sessions(const Monitor& monitor, const Style& style) {
  auto sessions = monitor.sessions();
  if (!sessions) return sessions.error();
  const v1::ListRegionsResponse regions = monitor.regions("").value_or(v1::ListRegionsResponse{});
  choose(*sessions, style.sessions);
  const bool total = style.sessions.total;
  const HostMemories host = host_memories_of(*sessions);
  return style.json
             ? json_text(sessions_json(*sessions, regions, total, host))
             : sessions_text(*sessions, now(), regions, layout_for(monitor, style.is_long), total, host);
}

Result<std::string> show_tenants(const Monitor& monitor, const Style& style) {
  auto tenants = monitor.tenants();
  if (!tenants) return tenants.error();
  auto jobs = monitor.jobs();
  if (!jobs) return jobs.error();
  bound_limits(*jobs, *tenants);
  return style.json ? json_text(tenants_json(*tenants, *jobs))
                    : tenants_text(*tenants, layout_for(monitor, style.is_long), *jobs);
}

Result<std::string> show_reconciliation(const Monitor& monitor, const Style& style) {
  auto reconciled = monitor.reconcile(style.now);
  if (!reconciled) return reconciled.error();
  return style.json ? json_text(reconcile_json(*reconciled))
                    : reconcile_text(*reconciled, now(), layout_for(monitor, style.is_long));
}

Result<std::string> show_accounts(const Monitor& monitor, const Style& style) {
  auto accounts = monitor.accounts();
  if (!accounts) return accounts.error();
  if (style.csv) return accounts_csv(*accounts);
  return style.json ? json_text(accounts_json(*accounts))
                    : accounts_text(*accounts, now(), layout_for(monitor, style.is_long));
}

constexpr std::array<Listing, 5> kListings{{
    {"status", "Show the broker and the memory of its devices", true, show_status},
    {"ps", "List sessions: who holds how much memory", true, show_sessions, false, true},
    {"tenants", "List tenants: guarantees, limits and what is charged to them", true, show_tenants},
    {"account", "Show how much memory tenants have used, and for how long", false, show_accounts, false,
     false, true, true},
    {"reconcile", "Hold what the driver says is used against what is charged", true, show_reconciliation,
     true},
}};

constexpr double kRetrySeconds = 1;  // at most, while the broker does not answer

void await_next(const ShowOptions& options, std::chrono::duration<double> time) {
  if (options.interrupt != nullptr)
    static_cast<void>(options.interrupt->wait(time));
  else
    std::this_thread::sleep_for(time);
}

}  // namespace

Layout layout_for(const v1::GetStatusResponse& status, bool is_long) {
  Layout layout = Layout::of_output(is_long);
  layout.devices = uuids_of(status);
  return layout;
}

Layout layout_for(const Monitor& monitor, bool is_long) {
  return layout_for(is_long ? v1::GetStatusResponse{} : monitor.status().value_or(v1::GetStatusResponse{}),
                    is_long);
}

std::string find_tenant(const Monitor& monitor, const std::string& text) {
  if (text.empty() || unknown_tenants(monitor, {text}).empty()) return text;
  const auto user = find_user(text);
  std::string own = tenant_of_user(text);
  if (!user || own == text || unknown_tenants(monitor, {own}).empty()) return own;
  const auto sessions = monitor.sessions();
  if (!sessions) return own;
  for (const v1::SessionInfo& session : sessions->sessions())
    if (session.uid() == *user) return session.tenant();
  return own;
}

std::string find_tenant(const std::filesystem::path& runtime_folder, const std::string& text) {
  const auto monitor = text.empty() ? Error{} : Monitor::connect(runtime_folder);
  return monitor ? find_tenant(*monitor, text) : text;
}

void clear_screen() {
  if (::isatty(STDOUT_FILENO) == 1) std::cout << "\033[H\033[2J";
}

std::span<const Listing> listings() { return kListings; }

int run_listing(const Listing& listing, const ListingOptions& options) {
  std::optional<Interrupt> interrupt;
  if (options.watch_seconds) interrupt.emplace();
  return show({options.runtime_folder, options.watch_seconds, interrupt ? &*interrupt : nullptr},
              [&](const Monitor& monitor) { return listing.show(monitor, options.style); });
}

int show(const ShowOptions& options, const std::function<Result<std::string>(const Monitor&)>& text_of) {
  const auto is_over = [&] { return options.interrupt != nullptr && options.interrupt->happened(); };
  auto monitor = Monitor::connect(options.runtime_folder);
  bool has_shown = false, is_away = false;
  for (;;) {
    if (is_away) monitor = Monitor::connect(options.runtime_folder);
    const Result<std::string> text = monitor ? text_of(*monitor) : monitor.error();
    if (is_over()) return 0;
    if (!text && (!has_shown || !may_pass(text.error()))) return report(text.error());
    if (!text && !is_away) std::cerr << "gpumem: waiting for the broker: " << text.error().message << "\n";
    is_away = !text;
    has_shown = true;
    if (text) {
      if (options.watch_seconds) clear_screen();
      std::cout << *text << std::flush;
    }
    if (!options.watch_seconds || !std::cout) return std::cout ? 0 : 1;
    const double seconds = is_away ? std::min(*options.watch_seconds, kRetrySeconds) : *options.watch_seconds;
    await_next(options, std::chrono::duration<double>(seconds));
  }
}

int report(const Error& error) {
  std::cerr << "gpumem: " << error.message << "\n";
  return error.code == Code::kUnavailable ? 3 : 1;
}

int report(const Error& error, const std::filesystem::path& runtime_folder) {
  const int status = report(error);
  return status == 3 && probe(runtime_folder / kApiSocketName) ? 1 : status;
}

int print(const Result<std::string>& text) {
  if (!text) return report(text.error());
  std::cout << *text << std::flush;
  return std::cout ? 0 : 1;
}

Interrupt::Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  over_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([this] { await(); });
}

void Interrupt::await() {
  std::array<pollfd, 2> polled{{{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}}};
  while (::poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR) {
  }
  if (polled[0].revents != 0) stop_.request_stop();
}

Interrupt::~Interrupt() {
  ::eventfd_write(over_.get(), 1);
  thread_.join();
  signalfd_siginfo taken{};  // or it would end the program as soon as it is let through
  while (::read(signals_.get(), &taken, sizeof taken) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Interrupt::wait(std::chrono::duration<double> time) const {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  return !never.wait_for(lock, token(), time, [this] { return happened(); });
}

}  // namespace gpumem::cli
