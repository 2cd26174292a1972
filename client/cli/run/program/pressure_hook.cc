#include "client/cli/run/program/pressure_hook.h"

#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/none.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"
#include "base/text/exec_words.h"
#include "base/text/number.h"
#include "client/cli/run/program/command.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr std::string_view kScheme = "http://";
constexpr std::uint32_t kLongestHead = 16 * 1024;
constexpr int kMostInterim = 16;  ///< answers before the final one

/// One exchange: host to addresses, connection, request, head of the answer.
class Post {
 public:
  using Clock = std::chrono::steady_clock;

  Post(HttpUrl url, const std::string& json)
      : url_(std::move(url)), request_(http::verb::post, url_.path, 11) {
    const bool is_ipv6 = url_.host.find(':') != std::string::npos;
    request_.set(http::field::host, (is_ipv6 ? "[" + url_.host + "]" : url_.host) + ":" + url_.port);
    request_.set(http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.body() = json;
    request_.prepare_payload();
  }

  /// Once.
  Result<void> run(Clock::time_point deadline) {
    stream_.expires_at(deadline);  // of every step: one that trickles in gets no more
    resolver_.async_resolve(url_.host, url_.port,
                            [this](beast::error_code error, const tcp::resolver::results_type& found) {
                              is_resolved_ = true;
                              if (goes_on(error, "no address")) connect(found);
                            });
    context_.run_until(deadline);
    if (!failure_.empty()) return unavailable(failure_);
    if (!is_answered_) return unavailable("no answer in time");
    const auto& head = answer_->get();
    if (http::to_status_class(head.result_int()) == http::status_class::successful) return {};
    return unavailable("answered " + std::to_string(head.result_int()) + " " + std::string(head.reason()));
  }
  /// Until then a thread of the resolver, which cannot be called off, is waited for by the destructor.
  bool is_resolved() const { return is_resolved_; }

 private:
  void connect(const tcp::resolver::results_type& found) {
    stream_.async_connect(found, [this](beast::error_code error, const tcp::endpoint&) {
      if (goes_on(error, "cannot connect")) write();
    });
  }
  void write() {
    http::async_write(stream_, request_, [this](beast::error_code error, std::size_t) {
      if (goes_on(error, "cannot send")) read();
    });
  }
  void read() {
    answer_.emplace();
    answer_->header_limit(kLongestHead);
    answer_->body_limit(boost::none);  // the body is not read
    http::async_read_header(stream_, buffer_, *answer_, [this](beast::error_code error, std::size_t) {
      if (!goes_on(error, "no answer")) return;
      if (is_interim() && ++interim_ <= kMostInterim) return read();
      is_answered_ = true;
    });
  }
  // Such as 103 Early Hints: the final answer follows. After 101 another protocol would.
  bool is_interim() const {
    const auto& head = answer_->get();
    return http::to_status_class(head.result_int()) == http::status_class::informational &&
           head.result() != http::status::switching_protocols;
  }

  bool goes_on(beast::error_code error, const char* what) {
    if (error == beast::error::timeout) return false;
    if (error) failure_ = std::string(what) + ": " + error.message();
    return !error;
  }
  Error unavailable(const std::string& words) const {
    return {Code::kUnavailable, "POST to http://" + url_.host + ":" + url_.port + url_.path + ": " + words};
  }

  const HttpUrl url_;
  asio::io_context context_{1};
  tcp::resolver resolver_{context_};
  beast::tcp_stream stream_{context_};
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_{kLongestHead};
  std::optional<http::response_parser<http::empty_body>> answer_;  ///< the latest
  int interim_ = 0;
  std::string failure_;
  bool is_resolved_ = false;
  bool is_answered_ = false;
};

constexpr std::chrono::milliseconds kLeast{1000};

std::string seconds_text(std::chrono::milliseconds span) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(span).count());
}

std::string json_of(const PressureAsked& asked) {
  Json json{{"asked_bytes", asked.bytes.count},
            {"deadline_seconds", std::chrono::ceil<std::chrono::seconds>(asked.within).count()},
            {"device", asked.device},
            {"name", asked.name}};
  if (asked.pid > 0) json["command_pid"] = asked.pid;
  return json_text(json);
}

std::vector<std::string> environment_of(const PressureAsked& asked) {
  Environment environment = own_environment();
  environment["GPUMEM_ASKED_BYTES"] = std::to_string(asked.bytes.count);
  environment["GPUMEM_DEADLINE_SECONDS"] = seconds_text(asked.within);
  environment["GPUMEM_DEVICE"] = asked.device;
  if (asked.pid > 0) environment["GPUMEM_COMMAND_PID"] = std::to_string(asked.pid);
  return assignments(environment);
}

// A command of the shell, with no signal blocked.
Result<pid_t> spawn_shell(std::string command, std::vector<std::string> environment) {
  posix_spawnattr_t attributes{};
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh";
  std::string option = "-c";
  const std::array<char*, 4> words{shell.data(), option.data(), command.data(), nullptr};
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, "/bin/sh", nullptr, &attributes, words.data(), exec_words(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return errno_error(failed, "cannot run /bin/sh");
  return pid;
}

std::string ending_words(int status) {
  return WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

}  // namespace

Result<HttpUrl> parse_url(const std::string& url) {
  const Error wrong{
      Code::kInvalidArgument,
      "'" + url + "' is not http://HOST[:PORT][/PATH]; for others, name a command such as curl"};
  if (!url.starts_with(kScheme)) return wrong;
  const std::string rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string authority = rest.substr(0, slash);
  const std::size_t bracket = authority.find(']');  // the end of an address of IPv6
  const std::size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  HttpUrl parsed{authority.substr(0, colon), colon == std::string::npos ? "80" : authority.substr(colon + 1),
                 slash == rest.size() ? "/" : rest.substr(slash)};
  if (parsed.host.starts_with('[') && parsed.host.ends_with(']'))
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  const bool has_control = url.find_first_of(" \t\r\n") != std::string::npos;
  if (parsed.host.empty() || parsed.host.find_first_of("[]") != std::string::npos || has_control)
    return wrong;
  if (whole_number<std::uint16_t>(parsed.port).value_or(0) == 0) return wrong;
  return parsed;
}

Result<void> post_json(const HttpUrl& url, const std::string& json, std::chrono::milliseconds patience) {
  auto post = std::make_unique<Post>(url, json);
  auto done = post->run(Post::Clock::now() + patience);
  // A name server that does not answer is not waited for.
  if (!post->is_resolved()) std::thread([late = std::move(post)] {}).detach();
  return done;
}

Result<PressureHook> PressureHook::parse(const std::string& text) {
  PressureHook hook;
  const bool is_url = text.starts_with("http://") || text.starts_with("https://");
  if (!is_url) {
    hook.command_ = text;
    return hook;
  }
  auto url = parse_url(text);
  if (!url) return url.error();
  hook.url_ = std::move(*url);
  return hook;
}

Result<void> PressureHook::ask(const PressureAsked& asked) {
  if (url_) return post_json(*url_, json_of(asked), std::max(asked.within, kLeast));
  return run(asked);
}

Result<void> PressureHook::run(const PressureAsked& asked) {
  std::unique_lock lock(mutex_);
  end_overdue();
  is_running_ = true;  // before the command can have ended
  ended_.clear();
  auto pid = spawn_shell(command_, environment_of(asked));
  is_running_ = pid.has_value();
  if (!pid) return pid.error();
  const bool in_time = changed_.wait_for(lock, std::max(asked.within, kLeast),
                                         [&] { return is_stopped_ || ended_.contains(*pid); });
  is_running_ = false;
  const auto ended = ended_.find(*pid);
  if (ended == ended_.end()) {
    ::kill(-*pid, SIGTERM);  // with what it has started
    overdue_ = *pid;
    if (!in_time) return Error{Code::kDeadlineExceeded, "the command of --on-pressure did not end in time"};
    await_overdue();
    return Error{Code::kCancelled, "the command of --on-pressure was ended"};
  }
  if (ended->second == 0) return {};
  return Error{Code::kAborted, "the command of --on-pressure has ended with " + ending_words(ended->second)};
}

void PressureHook::child_ended(pid_t pid, int status) {
  const std::scoped_lock lock(mutex_);
  if (pid == overdue_) end_overdue();  // its group: when it is waited for, the number may be another's
  if (!is_running_) return;
  ended_[pid] = status;
  changed_.notify_all();
}

void PressureHook::end_overdue() {
  if (overdue_ != 0) ::kill(-overdue_, SIGKILL);
  overdue_ = 0;
}

// Nobody else reaps any more. The group is ended before its first process is waited for.
void PressureHook::await_overdue() {
  const pid_t pid = overdue_;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd polled{process.get(), POLLIN, 0};
  ::poll(&polled, 1, static_cast<int>(kLeast.count()));
  end_overdue();
  ::waitpid(pid, nullptr, WNOHANG);
}

void PressureHook::stop() {
  const std::scoped_lock lock(mutex_);
  is_stopped_ = true;
  end_overdue();
  changed_.notify_all();
}

}  // namespace gpumem::cli
