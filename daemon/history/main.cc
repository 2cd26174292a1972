#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/mutex.h"
#include "base/program.h"
#include "base/system/subordinate_ids.h"
#include "base/system/unix_socket.h"
#include "base/thread_guards.h"
#include "daemon/history/broker_reader.h"
#include "daemon/history/recorder.h"
#include "daemon/history/requests.h"

namespace gpumem::history {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// The command line of gpumem-history.
struct Options {
  std::string runtime_folder = "/run/gpumemd";
  std::filesystem::path state_folder = "/var/lib/gpumem-history";
  std::filesystem::path socket = "/run/gpumem-history/history.sock";
  std::uint64_t size_mib = 512;
  std::filesystem::path subuid_file = "/etc/subuid";  ///< tests have their own
  LogOptions log;
};

// Ends the process for --help, --version and usage errors (status 2).
Options parse_command_line(int argc, char** argv) {
  Options options;
  CLI::App app{"gpumem-history keeps what tenants of gpumemd have used of the GPUs, by day and for months."};
  app.set_version_flag("--version", "gpumem-history " GPUMEM_VERSION);
  app.add_option("--runtime-dir", options.runtime_folder, "Folder of the broker's sockets")
      ->capture_default_str();
  app.add_option("--state-dir", options.state_folder, "Folder of the history")->capture_default_str();
  app.add_option("--socket", options.socket, "Where gpumem account asks")->capture_default_str();
  app.add_option("--size", options.size_mib, "Size of the history in MiB; day totals are never dropped")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--subuid-file", options.subuid_file)->group("");
  add_log_options(app, options.log);
  app.footer("It runs until SIGTERM or SIGINT. Exit status: 0 stopped, 1 cannot run, 2 wrong usage.");
  parse_or_exit(app, argc, argv);
  return options;
}

// systemd makes the folders of the service.
Result<void> check_folder(const std::filesystem::path& folder, const char* option) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return {};
  return Error{Code::kNotFound,
               "there is no folder " + folder.string() + ": make it, or name another by " + option};
}

Error another(const std::string& what, const char* option) {
  return {Code::kAlreadyExists, "another gpumem-history " + what +
                                    ": end it first (systemctl stop gpumem-history), or name another by " +
                                    option};
}

/// The lock of a history, which one process writes.
Result<UniqueFd> lock(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "history.lock";
  UniqueFd locked(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!locked.valid()) return errno_error(errno, "cannot open " + file.string());
  if (::flock(locked.get(), LOCK_EX | LOCK_NB) == 0) return locked;
  return another("keeps its history in " + folder.string(), "--state-dir");
}

// The group of the socket is this process's.
Result<UniqueFd> listen(const std::filesystem::path& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (client.valid() && connect_unix(client.get(), path) == 0)
    return another("answers at " + path.string(), "--socket");
  ::unlink(path.c_str());
  if (!socket.valid() || bind_unix(socket.get(), path) != 0 || ::chmod(path.c_str(), 0660) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    return errno_error(errno, "cannot listen on " + path.string());
  return socket;
}

/// Says a failure once, and when it is over. Threads  any.
class SaidOnce {
 public:
  void failed(const Error& error) {
    const MutexLock lock(mutex_);
    if (std::exchange(words_, error.message) != error.message)
      spdlog::warn("nothing is read: {}", error.message);
  }
  void succeeded() {
    const MutexLock lock(mutex_);
    if (!std::exchange(words_, "").empty()) spdlog::info("the broker is read again");
  }
  /// The failure. Empty: it is over.
  std::string words() const {
    const MutexLock lock(mutex_);
    return words_;
  }

 private:
  mutable Mutex mutex_;
  std::string words_ GPUMEM_GUARDED_BY(mutex_);
};

/// Looks at the broker once a second, on a thread of its own.
class Reading {
 public:
  Reading(BrokerReader& broker, Recorder& recorder, SubordinateIds& subordinates, SaidOnce& said)
      : broker_(broker),
        recorder_(recorder),
        subordinates_(subordinates),
        said_(said),
        thread_([this](const std::stop_token& stop) { work(stop); }) {}

 private:
  void work(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    auto next = std::chrono::steady_clock::now();
    while (!stop.stop_requested()) {
      look();
      next = std::max(next + std::chrono::seconds(1), std::chrono::steady_clock::now());
      stopped.wait_until(lock, stop, next, [] { return false; });
    }
    broker_.events().stop();
  }

  void look() {
    constexpr unsigned kMinute = 60;  // looks
    using Again = SubordinateIds::Again;
    subordinates_.read(++looks_ % kMinute == 0 ? Again::kMissing : Again::kNone);
    auto sample = broker_.look();
    if (!sample) return said_.failed(sample.error());
    said_.succeeded();
    if (const auto position = recorder_.open(sample->steady, sample->time)) broker_.events().start(*position);
    broker_.events().take(*sample);
    // Events that were not written are read again.
    if (!recorder_.record(*sample)) broker_.events().stop();
  }

  BrokerReader& broker_;
  Recorder& recorder_;
  SubordinateIds& subordinates_;
  SaidOnce& said_;
  unsigned looks_ = 0;
  std::jthread thread_;
};

Result<void> serve(const Options& options) {
  const std::filesystem::path file = options.state_folder / "history.db";
  boost::asio::io_context loop;
  boost::asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) { loop.stop(); });
  if (auto there = check_folder(options.state_folder, "--state-dir"); !there) return there;
  if (auto there = check_folder(options.socket.parent_path(), "--socket"); !there) return there;
  const auto locked = lock(options.state_folder.empty() ? "." : options.state_folder);
  if (!locked) return locked.error();
  auto socket = listen(options.socket);
  if (!socket) return socket.error();
  BrokerReader broker(std::filesystem::path(options.runtime_folder) / "api.sock");
  Recorder recorder(file, options.size_mib * kMiB);
  SaidOnce said;
  const Requests requests({.file = file,
                           .rights = [&] { return broker.rights(); },
                           .problem =
                               [&] {
                                 const std::string problem = recorder.problem();
                                 return problem.empty() ? said.words() : problem;
                               },
                           .now = [] { return now_of_machine().time; },
                           .damaged = [&] { recorder.doubt(); }});
  SubordinateIds subordinates(options.subuid_file);
  subordinates.read();
  HistoryServer server(
      std::move(*socket),
      [&](std::uint32_t uid) {
        const auto owner = subordinates.owner_of(uid);
        return owner ? owner->uid : uid;
      },
      [&](const Peer& peer, const std::string& method, const std::string& target) {
        return requests.answer(peer, method, target);
      });
  std::optional<Reading> reading;
  {
    const SignalsBlocked blocked;
    reading.emplace(broker, recorder, subordinates, said);
  }
  spdlog::info("keeping what tenants of the broker in {} use: in {}", options.runtime_folder, file.string());
  server.start();
  loop.run();
  server.stop();
  ::unlink(options.socket.c_str());
  return {};
}

}  // namespace
}  // namespace gpumem::history

int main(int argc, char** argv) {
  const gpumem::history::Options options = gpumem::history::parse_command_line(argc, argv);
  if (auto started = gpumem::start_log(options.log.format, options.log.level); !started)
    return gpumem::fail(started.error());
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  if (auto served = gpumem::history::serve(options); !served) return gpumem::fail(served.error());
  return 0;
}
