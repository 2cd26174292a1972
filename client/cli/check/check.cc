#include "client/cli/check/check.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

#include "client/cli/monitor/monitor.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"
#include "proto/lane.h"
#include "proto/lane/frames.h"

namespace gpumem::cli {
namespace {

/// A grant arrives in messages of 128 descriptors; the rest is for the program itself.
constexpr rlim_t kOpenFiles = 1024;
/// A driver may use so much of a device that it books on no process.
constexpr std::uint64_t kDriversOwn = 512ULL << 20;

const char* state_word(Finding::State state) {
  switch (state) {
    case Finding::State::kOk: return "ok";
    case Finding::State::kWarn: return "warn";
    case Finding::State::kFail: break;
  }
  return "FAIL";
}

using State = Finding::State;
using Findings = std::vector<Finding>;

/// Adds the outcome of `result`; answers whether it was good.
template <class T>
bool add(Findings& findings, const char* name, const Result<T>& result, const std::string& good) {
  findings.push_back(result ? Finding{name, State::kOk, good, ""}
                            : Finding{name, State::kFail, result.error().message, ""});
  return result.has_value();
}

bool check_folder(const std::filesystem::path& folder, Findings& findings) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    findings.push_back({"runtime_folder", State::kOk, folder.string(), ""});
    return true;
  }
  findings.push_back(
      {"runtime_folder", State::kFail, "there is no folder " + folder.string(),
       "start the broker (systemctl enable --now gpumemd), or name its folder by --runtime-dir or "
       "GPUMEM_RUNTIME_DIR"});
  return false;
}

/// A socket is there and this user may write to it, which is what connecting takes.
bool check_socket(const char* name, const std::filesystem::path& socket, Findings& findings) {
  struct stat info {};
  Result<void> usable;
  if (::stat(socket.c_str(), &info) != 0 || ::access(socket.c_str(), W_OK) != 0) {
    usable = client::connect_error(socket, errno);
  } else if (!S_ISSOCK(info.st_mode)) {
    usable = Error{Code::kFailedPrecondition, socket.string() + " is not a socket"};
  }
  return add(findings, name, usable, socket.string());
}

bool check_answers(const std::filesystem::path& folder, Findings& findings) {
  auto monitor = Monitor::connect(folder);
  if (!monitor) return add(findings, "broker", monitor, "");
  auto status = monitor->status();
  if (!status) return add(findings, "broker", status, "");
  const bool same = status->version() == GPUMEM_VERSION;
  findings.push_back(
      {"broker", same ? State::kOk : State::kWarn, "gpumemd " + status->version() + " answers",
       same ? "" : "this is gpumem " GPUMEM_VERSION ": install the same version on both sides"});
  for (const v1::DeviceStatus& device : status->devices()) {
    if (device.unexplained() <= kDriversOwn) continue;
    findings.push_back(
        {"unexplained", State::kWarn,
         device_name(device.uuid(), uuids_of(*status)) + ": " + to_string(Bytes{device.unexplained()}) +
             " are in use by nobody that the broker knows, and may be missing for contexts",
         "end what a program has left behind, such as workers that inherited a descriptor of its "
         "memory; see gpumem reconcile --now"});
  }
  check_missing(*monitor, *status, findings);
  return true;
}

void check_usage(const Session& session, Findings& findings) {
  auto usage = session.usage();
  if (!usage) {
    add(findings, "shared_page", usage, "");
    return;
  }
  for (std::size_t place = 0; place < usage->size(); ++place) {
    const DeviceUsage& device = (*usage)[place];
    const bool some = !device.limit.is_zero();
    findings.push_back({"quota", some ? State::kOk : State::kWarn,
                        device_name(place) + ": guarantee " + to_string(device.guarantee) + ", limit " +
                            to_string(device.limit) + ", charged " + to_string(device.charged) +
                            ", available now " + to_string(device.available),
                        some ? "" : "ask the administrator for a limit for tenant " + session.tenant()});
  }
}

void check_loan(Session& session, Findings& findings) {
  auto slice = session.open_slice({{}, {}, "gpumem check"});
  if (!add(findings, "slice", slice,
           slice ? "opened on " + device_name(slice->device(), lent_to(session)) : ""))
    return;
  const auto grown = slice->grow(slice->granularity(), {std::chrono::seconds(5)});
  if (!grown) {
    const bool full = grown.error().denial.has_value();  // the broker works; the memory is lent
    findings.push_back({"loan", full ? State::kWarn : State::kFail, grown.error().message,
                        full ? "gpumem top shows who holds the memory" : ""});
    return;
  }
  add(findings, "loan", slice->shrink({}), to_string(*grown) + " borrowed, mapped and given back");
}

}  // namespace

Finding check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  if (limit.rlim_cur >= kOpenFiles) return {"open_files", Finding::State::kOk, found, ""};
  return {"open_files", Finding::State::kWarn, found + " open files at most: a large growth may fail",
          "ulimit -n " + std::to_string(kOpenFiles)};
}

std::vector<Finding> run_checks(const CheckOptions& options) {
  std::vector<Finding> findings{check_open_files()};
  std::vector<Finding> of_broker;
  const auto folder = check_broker(options, of_broker);
  if (folder) check_driver(*folder, findings);
  findings.insert(findings.end(), of_broker.begin(), of_broker.end());
  if (folder) return findings;
  for (const char* name : {"device_nodes", "driver"})
    findings.push_back({name, State::kWarn, "not known until the broker answers", ""});
  return findings;
}

bool all_well(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.state == Finding::State::kFail; });
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string state = state_word(finding.state);
    std::string name = finding.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    state.resize(6, ' ');
    name.resize(width + 2, ' ');
    text += state + name + finding.found + "\n";
    if (!finding.mend.empty())
      text += std::string(state.size() + name.size(), ' ') + "to mend: " + finding.mend + "\n";
  }
  return text;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    std::string state = state_word(finding.state);
    std::transform(state.begin(), state.end(), state.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    list.push_back(
        {{"name", finding.name}, {"state", state}, {"found", finding.found}, {"mend", finding.mend}});
  }
  return {{"ok", all_well(findings)}, {"checks", std::move(list)}};
}

std::optional<std::string> check_broker(const CheckOptions& options, Findings& findings) {
  std::optional<std::string> unknown;
  if (const std::string named = client::driver_folder("").string(); !named.empty()) unknown = named;
  const std::filesystem::path& folder = options.runtime_folder;
  if (!check_folder(folder, findings)) return unknown;
  const bool lane = check_socket("lane_socket", folder / kLaneSocketName, findings);
  const bool api = check_socket("api_socket", folder / kApiSocketName, findings);
  if (!lane || !api || !check_answers(folder, findings)) return unknown;
  auto session = Session::connect({folder.string(), "gpumem check"});
  const std::string opened = "opened, protocol " + std::to_string(lane::kVersion) + ", tenant ";
  const std::string good = session ? opened + session->tenant() : "";
  if (!add(findings, "session", session, good)) return unknown;
  check_usage(*session, findings);
  if (options.allocate) check_loan(*session, findings);
  return session->driver_folder();
}

}  // namespace gpumem::cli
