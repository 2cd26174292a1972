#include "client/cli/check/check.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/system/process_stat.h"
#include "base/system/system_mode.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

using State = Finding::State;

// What the process was started with. It may have changed its variables since.
using Variables = std::map<std::string, std::string>;

Variables variables_in(const std::string& environ) {
  Variables variables;
  for (std::size_t begin = 0; begin < environ.size();) {
    const std::size_t end = std::min(environ.find('\0', begin), environ.size());
    const std::string entry = environ.substr(begin, end - begin);
    if (const auto sign = entry.find('='); sign != std::string::npos)
      variables[entry.substr(0, sign)] = entry.substr(sign + 1);
    begin = end + 1;
  }
  return variables;
}

/// The parts of a look at one process, each of which adds its finding.
class ProgramLook {
 public:
  explicit ProgramLook(ProgramReport& report) : report_(report) {}

  /// False: nothing can be known of the process.
  bool process();
  void environment();
  void drivers();
  void broker(const std::filesystem::path& runtime_folder);

 private:
  void add(const char* name, State state, std::string found, std::string mend = {}) {
    report_.findings.push_back({name, state, std::move(found), std::move(mend)});
  }
  void driver(const MappedDriver& drop_in, const std::vector<MappedDriver>& real);
  void bypass(const std::vector<MappedDriver>& real);
  void borrows_by_library();
  void copies();
  void sessions(const Monitor& monitor, const std::filesystem::path& runtime_folder);
  std::string why_left(const std::filesystem::path& runtime_folder) const;
  void past_broker(const Monitor& monitor);

  ProgramReport& report_;
  Variables variables_;
  bool bypasses_ = false;  ///< real drivers alone are mapped
};

bool ProgramLook::process() {
  auto name = read_proc_file(report_.pid, "comm");
  if (!name) {
    add("process", State::kFail, name.error().message);
    return false;
  }
  if (name->ends_with('\n')) name->pop_back();
  // Its memory is gone, and its number is not another's yet.
  if (const auto stat = stat_of(report_.pid); stat && stat->state == 'Z') {
    add("process", State::kFail,
        std::to_string(report_.pid) + ", " + printable(*name) +
            ", has ended; its parent has not noticed yet");
    return false;
  }
  add("process", State::kOk, std::to_string(report_.pid) + ", " + printable(*name));
  return true;
}

void ProgramLook::environment() {
  const auto environ = read_proc_file(report_.pid, "environ");
  if (!environ) return add("environment", State::kWarn, environ.error().message);
  variables_ = variables_in(*environ);
  std::string text;
  for (const auto& [name, value] : variables_) {
    const bool matters = name.starts_with("GPUMEM_") || name == "CUDA_VISIBLE_DEVICES" ||
                         name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD";
    if (matters) text += (text.empty() ? "" : " ") + name + "=" + value;
  }
  add("environment", State::kOk, text.empty() ? "nothing of gpumem's" : printable(text));
}

// ---- What is mapped ----

std::string paths_of(const std::vector<MappedDriver>& drivers) {
  std::string paths;
  for (const MappedDriver& one : drivers) paths += (paths.empty() ? "" : ", ") + printable(one.path);
  return paths;
}

void ProgramLook::drivers() {
  auto mapped = mapped_drivers(report_.pid);
  if (!mapped) return add("drop_in_driver", State::kFail, mapped.error().message);
  report_.drivers = std::move(*mapped);
  std::vector<MappedDriver> real;
  const MappedDriver* drop_in = nullptr;
  for (const MappedDriver& one : report_.drivers) {
    if (one.is_management) continue;
    if (!one.is_drop_in) {
      const bool is_root = ::geteuid() == 0;
      return add("drop_in_driver", State::kFail,
                 "the file " + printable(one.path) +
                     " is mapped, and cannot be read: it was replaced or removed since" +
                     (is_root ? "" : ", or you may not"),
                 is_root ? "start the program again" : "start the program again, or ask as root");
    }
    if (*one.is_drop_in)
      drop_in = &one;
    else
      real.push_back(one);
  }
  if (drop_in != nullptr) {
    driver(*drop_in, real);
  } else if (!real.empty()) {
    bypass(real);
  } else {
    add("drop_in_driver", State::kWarn,
        "no libcuda.so is mapped: the program has not used CUDA yet, or is linked with the driver "
        "statically, "
        "which cannot be seen");
  }
  copies();
}

void ProgramLook::driver(const MappedDriver& drop_in, const std::vector<MappedDriver>& real) {
  add("drop_in_driver", State::kOk,
      printable(drop_in.path) + (real.empty() ? ", which has not opened the real one"
                                              : ", which passes calls on to " + paths_of(real)));
  if (real.size() > 1) {
    add("second_driver", State::kFail,
        "several real drivers are mapped: calls to one of them bypass the broker",
        "find out who opens which: LD_DEBUG=files");
  }
}

void ProgramLook::bypass(const std::vector<MappedDriver>& real) {
  const bool was_led = variables_["LD_LIBRARY_PATH"].find("gpumem/shim") != std::string::npos ||
                       variables_.contains("GPUMEM_JOB");
  bypasses_ = true;
  add("drop_in_driver", State::kFail, "not mapped; the program uses " + paths_of(real) + " past the broker",
      was_led ? "it has a library path of its own: gpumem run --preload; or it opens the driver by an "
                "absolute path: gpumem reserve"
              : "start it by gpumem run");
}

// A process with a session and without the drop-in driver is a client of the library.
void ProgramLook::borrows_by_library() {
  const auto found = std::ranges::find(report_.findings, "drop_in_driver", &Finding::name);
  if (!bypasses_ || found == report_.findings.end()) return;
  found->state = State::kOk;
  found->found =
      "not needed: the program borrows by the library; what it allocates by the driver itself bypasses the "
      "broker";
  found->mend.clear();
}

// One file that is loaded twice is in two namespaces: what is opened in the second is not led to the drop-in.
void ProgramLook::copies() {
  for (const MappedDriver& one : report_.drivers) {
    if (one.copies < 2 || one.is_management) continue;
    add("second_driver", one.is_drop_in == true ? State::kWarn : State::kFail,
        printable(one.path) + " is loaded " + std::to_string(one.copies) +
            " times: dlmopen has made a namespace with a driver of its own" +
            (one.is_drop_in == true ? "" : ", whose calls bypass the broker"));
  }
}

// ---- What the broker knows ----

void ProgramLook::broker(const std::filesystem::path& runtime_folder) {
  const auto monitor = Monitor::connect(runtime_folder);
  if (!monitor) return add("broker", State::kFail, monitor.error().message);
  sessions(*monitor, runtime_folder);
  past_broker(*monitor);
}

/// Why system mode leaves the process to the driver, as far as can be seen. Empty: it does not.
std::string ProgramLook::why_left(const std::filesystem::path& runtime_folder) const {
  const auto is_of_system = [](const MappedDriver& one) {
    return one.is_drop_in == true &&
           system_mode::is_system_folder(std::filesystem::path(one.path).parent_path());
  };
  if (variables_.contains("GPUMEM_JOB") || std::ranges::none_of(report_.drivers, is_of_system)) return {};
  if (::access(system_mode::kOff, F_OK) == 0) return std::string("there is a file ") + system_mode::kOff;
  const auto status = read_proc_file(report_.pid, "status");
  const auto facts = status ? system_mode::ProcessFacts::in(*status) : std::nullopt;
  const char* const why = facts ? system_mode::Rules::read(runtime_folder).why_left(*facts) : nullptr;
  return why != nullptr ? why : std::string();
}

// The process did not come back to the broker in time, for example since it was stopped.
std::string ended_text(const v1::SessionInfo& session) {
  std::uint64_t charged = 0;
  for (const v1::SliceInfo& slice : session.slices()) charged += slice.charged();
  return "session " + std::to_string(session.id()) + " has ended, and " + size_text(charged) +
         " are still charged for it";
}

void ProgramLook::sessions(const Monitor& monitor, const std::filesystem::path& runtime_folder) {
  const auto all = monitor.sessions();
  if (!all) return add("session", State::kFail, all.error().message);
  std::string text, ended;
  for (const v1::SessionInfo& one : all->sessions()) {
    if (one.pid() != report_.pid) continue;
    if (one.ended()) {
      ended += (ended.empty() ? "" : "; ") + ended_text(one);
      continue;
    }
    std::uint64_t lent = 0;
    std::uint64_t declared = 0;
    for (const v1::SliceInfo& slice : one.slices()) lent += slice.charged();
    for (const v1::SharedMemory& shared : one.shared()) {
      lent += shared.charged();
      declared += shared.declared();
    }
    report_.sessions.push_back(one.id());
    report_.charged += lent;
    report_.declared += declared;
    text += (text.empty() ? "" : "; ") + std::string("session ") + std::to_string(one.id()) + " of tenant " +
            printable(one.tenant()) + ", " + counted(static_cast<std::size_t>(one.slices_size()), "slice") +
            ", " + size_text(lent) + " lent, " + size_text(declared) + " charged besides";
  }
  if (!text.empty()) borrows_by_library();
  if (!text.empty() && ended.empty()) return add("session", State::kOk, text);
  if (!ended.empty())
    return add("session", State::kWarn, (text.empty() ? "" : text + "; ") + ended,
               "start the program again: the memory is charged until the driver proves it free");
  if (const std::string why = why_left(runtime_folder); !why.empty())
    return add("session", State::kWarn,
               "the broker has none of this process: system mode leaves it to the driver, because " + why);
  add("session", State::kWarn,
      "the broker has none of this process: it has borrowed nothing yet, its child does, or it bypasses the "
      "broker");
}

void ProgramLook::past_broker(const Monitor& monitor) {
  const auto seen = monitor.reconcile(true);
  if (!seen) return add("past_broker", State::kFail, seen.error().message);
  std::string problems;
  std::string tenant;
  std::uint64_t most = 0;  // of one device
  for (const v1::Reconciliation& device : seen->devices()) {
    if (!device.problem().empty()) problems += (problems.empty() ? "" : "; ") + printable(device.problem());
    for (const v1::ForeignProcess& process : device.processes()) {
      if (process.pid() != report_.pid) continue;
      report_.past_broker += process.bytes();
      most = std::max(most, process.bytes());
      tenant = process.tenant();
    }
  }
  // Of a process with a session, the broker tells only what is beyond the allowance.
  const std::uint64_t allowance = report_.sessions.empty() ? seen->past_broker_allowance() : 0;
  if (report_.past_broker != 0 && most <= allowance) {
    return add("past_broker", State::kOk,
               size_text(report_.past_broker) + " are held past the broker, which allows " +
                   size_text(allowance) + " for a context");
  }
  if (report_.past_broker != 0) {
    return add("past_broker", State::kFail,
               size_text(report_.past_broker) + " are held past the broker" +
                   (tenant.empty() ? ", charged to nobody" : ", charged to tenant " + printable(tenant)),
               "start it by gpumem run, or declare it: gpumem reserve");
  }
  if (!problems.empty()) return add("past_broker", State::kWarn, "not known: " + problems);
  add("past_broker", State::kOk, "the driver sees nothing that is not lent, declared, or its context");
}

}  // namespace

ProgramReport check_program(pid_t pid, const std::filesystem::path& runtime_folder) {
  ProgramReport report;
  report.pid = pid;
  ProgramLook look(report);
  if (!look.process()) return report;
  look.environment();
  look.drivers();
  look.broker(runtime_folder);
  return report;
}

Json program_json(const ProgramReport& report) {
  Json json = findings_json(report.findings);
  Json drivers = Json::array();
  for (const MappedDriver& one : report.drivers) {
    drivers.push_back({{"path", one.path},
                       {"copies", one.copies},
                       {"management", one.is_management},
                       {"drop_in", one.is_drop_in ? Json(*one.is_drop_in) : Json()}});
  }
  json["pid"] = report.pid;
  json["drivers"] = std::move(drivers);
  json["sessions"] = report.sessions;
  json["charged"] = report.charged;
  json["declared"] = report.declared;
  json["past_broker"] = report.past_broker;
  return json;
}

}  // namespace gpumem::cli
