#include "client/cli/monitor/monitor.h"

#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/system/unique_fd.h"
#include "base/system/unix_socket.h"
#include "base/text/device_name.h"
#include "base/text/number.h"
#include "client/process/runtime_folder.h"
#include "client/process/status.h"

namespace gpumem::cli {

namespace {

// The broker may have ended since the last probe.
Error no_answer(const std::filesystem::path& socket) {
  if (auto there = probe(socket); !there) return there.error();
  return {Code::kDeadlineExceeded,
          "the broker at " + socket.string() + " does not answer; see systemctl status gpumemd"};
}

}  // namespace

Error call_error(const grpc::Status& status, const std::filesystem::path& socket) {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED: return no_answer(socket);
    case grpc::StatusCode::UNAVAILABLE:
      // gRPC's own words, after 20 s: the broker has taken the connection and said nothing.
      if (words.starts_with("failed to connect to all addresses")) return no_answer(socket);
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " does not serve (systemctl status gpumemd): " + words};
    case grpc::StatusCode::CANCELLED:  // not by this side, which reports its own cancelling earlier
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " broke the call off: it is stopping: " + words};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal, "the broker does not know this call; it is of another version: " + words};
    default: break;
  }
  const auto number = static_cast<std::uint64_t>(status.error_code());
  return {client::code_of(number), words.empty() ? "the broker gives no reason" : words};
}

constexpr std::chrono::seconds kTimeout{10};

// gRPC alone would only say "failed to connect to all addresses".
Result<void> probe(const std::filesystem::path& socket) {
  if (auto trusted = client::check_owner(socket); !trusted) return trusted;
  const UniqueFd probed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probed.valid()) return errno_error(errno, "cannot make a socket");
  if (connect_unix(probed.get(), socket) == 0) return {};
  return client::connect_error(socket, errno);
}

Result<Monitor> Monitor::connect(const std::filesystem::path& runtime_folder) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  if (auto there = probe(socket); !there) return there.error();
  return Monitor(socket);
}

Monitor::Monitor(std::filesystem::path socket)
    : socket_(std::move(socket)), stub_(v1::Monitor::NewStub(broker_channel(socket_))) {}

template <class Request, class Response>
Result<Response> Monitor::call(Method<Request, Response> method, const Request& request) const {
  return call_stub(*stub_, method, request, kTimeout, socket_);
}

// Many commands of a user at once have more calls under way than the user may have: they take turns.
template <class Request, class Response>
Result<Response> Monitor::list(Method<Request, Response> method, const Request& request) const {
  constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{500};
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto answer = call(method, request);
    if (answer || answer.error().code != Code::kResourceExhausted ||
        std::chrono::steady_clock::now() + pause > end)
      return answer;
    std::this_thread::sleep_for(pause);
  }
}

Result<v1::GetStatusResponse> Monitor::status() const { return list(&v1::Monitor::Stub::GetStatus); }

// All pages as one.
template <class Request, class Response>
Result<Response> Monitor::pages(Method<Request, Response> method, Request request) const {
  Response all;
  do {
    auto page = list(method, request);
    if (!page) return page.error();
    request.set_page_token(page->next_page_token());
    page->clear_next_page_token();
    all.MergeFrom(*page);
  } while (!request.page_token().empty());
  return all;
}

Result<v1::ListTenantsResponse> Monitor::tenants() const { return pages(&v1::Monitor::Stub::ListTenants); }
Result<v1::ListJobsResponse> Monitor::jobs() const { return pages(&v1::Monitor::Stub::ListJobs); }
Result<v1::ListAccountsResponse> Monitor::accounts() const { return pages(&v1::Monitor::Stub::ListAccounts); }
Result<v1::ListSessionsResponse> Monitor::sessions() const { return pages(&v1::Monitor::Stub::ListSessions); }

Result<v1::ListRegionsResponse> Monitor::regions(const std::string& owner) const {
  v1::ListRegionsRequest request;
  request.set_owner(owner);
  return pages(&v1::Monitor::Stub::ListRegions, request);
}

Result<void> Monitor::remove_region(const std::filesystem::path& runtime_folder, const std::string& owner,
                                    const std::string& name, std::uint64_t version) {
  v1::RemoveRegionOfRequest request;
  request.set_owner(owner);
  request.set_name(name);
  request.set_version(version);
  const auto removed =
      call_broker<v1::Admin>(runtime_folder, &v1::Admin::Stub::RemoveRegion, request, kTimeout);
  return removed ? Result<void>() : removed.error();
}

Result<v1::ReconcileResponse> Monitor::reconcile(bool now) const {
  v1::ReconcileRequest request;
  request.set_now(now);
  return call(&v1::Monitor::Stub::Reconcile, request);
}

Result<v1::ExplainResponse> Monitor::explain(const v1::ExplainRequest& request,
                                             const std::stop_token& stop) const {
  return call_stub(*stub_, &v1::Monitor::Stub::Explain, request, kTimeout, socket_, stop);
}

Result<void> Monitor::watch_events(const v1::WatchEventsRequest& request,
                                   const std::function<bool(const v1::Event&)>& show,
                                   std::stop_token stop) const {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  if (!request.follow()) set_timeout(context, kTimeout);
  const auto reader = stub_->WatchEvents(&context, request);
  v1::Event event;
  bool wanted = true;
  while (wanted && reader->Read(&event)) wanted = show(event);
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted || status.ok()) return {};
  if (stop.stop_requested()) return client::called_off();
  return call_error(status, socket_);
}

Result<void> Monitor::watch(const std::function<bool(v1::Sample)>& show, std::stop_token stop,
                            Watched which) const {
  grpc::ClientContext context;
  if (which == Watched::kFirst) set_timeout(context, kTimeout);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = stub_->Watch(&context, {});
  v1::Sample message, sample;
  bool wanted = true;
  while (wanted && reader->Read(&message)) {
    const bool is_last = message.last();
    sample.MergeFrom(message);
    if (is_last) wanted = show(std::exchange(sample, {}));
  }
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted || status.ok()) return {};
  if (stop.stop_requested()) return client::called_off();
  return call_error(status, socket_);
}

Result<v1::TenantUsage> usage_of(const Monitor& monitor, const std::string& tenant,
                                 const std::string& device) {
  auto tenants = monitor.tenants();
  if (!tenants) return tenants.error();
  for (v1::TenantUsage& one : *tenants->mutable_tenants())
    if (one.tenant() == tenant && one.device() == device) return std::move(one);
  return Error{Code::kNotFound, "there is no tenant '" + tenant + "' on " + device};
}

std::vector<std::string> unknown_tenants(const Monitor& monitor, const std::vector<std::string>& names) {
  const auto tenants = monitor.tenants();
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    if (!tenants || std::ranges::count(tenants->tenants(), name, &v1::TenantUsage::tenant) != 0) continue;
    unknown.push_back(name);
  }
  return unknown;
}

Result<std::string> find_device(const v1::GetStatusResponse& status, const std::string& text) {
  std::string all;
  std::string found;
  int matches = 0;
  const auto place = whole_number<int>(
      std::string_view(text).substr(text.starts_with(kDeviceNamePrefix) ? kDeviceNamePrefix.size() : 0));
  for (int i = 0; i < status.devices_size(); ++i) {
    const std::string& uuid = status.devices(i).uuid();
    const std::string& name = status.devices(i).name();
    const bool is_host = uuid == kHostStore;
    all += "\n  " + (is_host ? "" : device_name(static_cast<std::size_t>(i)) + ": ") + uuid +
           (name.empty() ? "" : " " + name);
    if (place ? i != *place || is_host : text.empty() || !uuid.starts_with(text)) continue;
    found = uuid;
    ++matches;
  }
  if (matches == 1) return found;
  if (matches == 0 && text == kHostStore) return Error{Code::kNotFound, kNoHostStore};
  if (matches > 1) return Error{Code::kNotFound, "several devices begin with '" + text + "':" + all};
  return Error{Code::kNotFound, "the broker lends no device '" + text +
                                    (all.empty() ? "', nor any other" : "', but these:" + all)};
}

Result<std::string> first_visible(const v1::GetStatusResponse& status, const std::string& visible) {
  for (std::size_t begin = 0; begin < visible.size();) {
    const std::size_t end = std::min(visible.find(',', begin), visible.size());
    if (auto found = find_device(status, visible.substr(begin, end - begin))) return found;
    begin = end + 1;
  }
  return find_device(status, "0");
}

bool may_pass(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded ||
         error.code == Code::kResourceExhausted;
}

void keep_watching(const std::filesystem::path& runtime_folder, const std::stop_token& stop,
                   const std::function<Result<void>(const Monitor& monitor)>& watch,
                   const std::function<bool(const Result<void>& watched)>& goes_on) {
  constexpr std::chrono::seconds kPause{1};
  std::mutex mutex;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    const auto monitor = Monitor::connect(runtime_folder);
    const Result<void> watched = monitor ? watch(*monitor) : Result<void>(monitor.error());
    if (stop.stop_requested() || !goes_on(watched)) return;
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, kPause, [] { return false; });  // until `stop` at most
  }
}

}  // namespace gpumem::cli
