#include "client/cli/web/web.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "base/http/tcp_port.h"
#include "base/system/absolute_path.h"
#include "base/system/unix_socket.h"
#include "client/cli/commands/commands.h"
#include "client/cli/views/names.h"
#include "client/cli/web/site.h"
#include "client/process/runtime_folder.h"

namespace gpumem::cli {
namespace {

struct WebArguments {
  std::string socket;
  std::string listen;
  bool as_administrator = false;
};

/// Where the page is served.
struct Place {
  UniqueFd listening;
  std::string socket;       ///< a path; empty: a port
  std::string port;         ///< 127.0.0.1:8080
  struct ::stat file = {};  ///< the socket's
};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "HOST";
}

// A socket that nobody listens at any more is removed.
Result<void> make_way(const std::string& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode))
    return Error{Code::kAlreadyExists, path + " is there, and is no socket: give another --socket"};
  const UniqueFd probed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect_unix(probed.get(), path) == 0 || errno != ECONNREFUSED)
    return Error{Code::kAlreadyExists,
                 path + " is in use, perhaps by another gpumem web: end that, or give another --socket"};
  if (::unlink(path.c_str()) != 0) return errno_error(errno, "cannot remove " + path);
  return {};
}

Result<Place> listen_on_socket(const std::string& path) {
  if (auto made = make_way(path); !made) return made.error();
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr mode_t kOthers = 0177;
  const mode_t before = ::umask(kOthers);  // never open to others, not even for a moment
  const bool is_bound = bind_unix(socket.get(), path) == 0;
  const int failed = errno;
  ::umask(before);
  if (!is_bound) return errno_error(failed, "cannot listen at " + path);
  constexpr int kBacklog = 128;
  if (::listen(socket.get(), kBacklog) != 0) return errno_error(errno, "cannot listen at " + path);
  struct ::stat file = {};
  if (::lstat(path.c_str(), &file) != 0) return errno_error(errno, "cannot listen at " + path);
  return Place{std::move(socket), path, {}, file};
}

Result<Place> place_of(const WebArguments& arguments) {
  if (arguments.listen.empty()) {
    if (!arguments.socket.empty()) return listen_on_socket(arguments.socket);
    const char* folder = std::getenv("XDG_RUNTIME_DIR");
    if (folder == nullptr || *folder == '\0')
      return Error{Code::kInvalidArgument,
                   "XDG_RUNTIME_DIR is not set: give --socket PATH, or --listen 127.0.0.1:0"};
    return listen_on_socket(std::string(folder) + "/gpumem-web.sock");
  }
  auto port = http::listen_on_tcp(arguments.listen);
  if (!port) return Error{port.error().code, port.error().message + "; port 0 stands for any free one"};
  return Place{std::move(port->fd), {}, port->where, {}};
}

std::string refuse_address(const std::string& text) {
  if (auto parsed = http::parse_tcp_address(text); !parsed) return parsed.error().message;
  if (text.starts_with("127.0.0.1:") || text.starts_with("[::1]:")) return {};
  return "'" + text +
         "' is not this machine alone: give 127.0.0.1:PORT or [::1]:PORT, and reach it by ssh -L";
}

// The page has no users of its own.
std::string rights_text(const std::string& user) {
  return "Everybody who reaches the page sees what " + user + " may see. That holds behind a proxy, too.";
}

void tell(const Place& place, const std::string& token, const std::string& user) {
  if (place.socket.empty())
    std::cout << "http://" << place.port << "/#token=" << token
              << "\nThe address has the only key to the page: keep it to yourself.\n";
  else
    std::cout << "The page is at " << place.socket
              << ". From your own machine:\n  ssh -N -L 8080:" << absolute_or_same(place.socket).string()
              << " " << host_name()
              << "\n  http://localhost:8080/\nFor a browser on this machine: gpumem web --listen 127.0.0.1:0"
              << (::geteuid() == 0 ? " --as-administrator\n" : "\n");
  std::cout << rights_text(user) << " Ctrl-C ends it.\n" << std::flush;
}

int serve(Place place, const std::string& runtime_dir, const Interrupt& interrupt) {
  auto charts = web::read_charts();
  if (!charts) std::cerr << "gpumem: " << charts.error().message << "\n";
  const std::string token = place.socket.empty() ? web::random_token() : std::string();
  const std::string user = user_name(::geteuid());
  const web::Site site({.socket = std::move(place.listening),
                        .token = token,
                        .runtime_folder = client::runtime_folder(runtime_dir),
                        .page = web::make_page(std::move(charts).value_or("")),
                        .hello = {{"host", host_name()}, {"rights", rights_text(user)}}});
  tell(place, token, user);
  while (interrupt.wait(std::chrono::hours(1))) {
  }
  return 0;
}

int run_web(const WebArguments& arguments, const std::string& runtime_dir) {
  if (::geteuid() == 0 && !arguments.as_administrator)
    return report(Error{Code::kPermissionDenied,
                        "everybody who reaches the page would see what root may see: start it as a user, or "
                        "add --as-administrator"});
  const Interrupt interrupt;
  auto place = place_of(arguments);
  if (!place) return report(place.error());
  const std::string socket = place->socket;
  const struct ::stat file = place->file;
  const int status = serve(std::move(*place), runtime_dir, interrupt);
  struct ::stat found = {};
  const bool is_there = !socket.empty() && ::lstat(socket.c_str(), &found) == 0;
  if (is_there && found.st_dev == file.st_dev && found.st_ino == file.st_ino) ::unlink(socket.c_str());
  return status;
}

}  // namespace

void add_web_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* command = app.add_subcommand("web", "Serve a page that shows who has the memory, to this user");
  const auto arguments = std::make_shared<WebArguments>();
  CLI::Option* socket =
      command
          ->add_option("--socket", arguments->socket,
                       "The socket, which this user alone may use [$XDG_RUNTIME_DIR/gpumem-web.sock]")
          ->type_name("PATH");
  command
      ->add_option("--listen", arguments->listen,
                   "Serve on a port instead, to whoever has the token in the printed address: 127.0.0.1:PORT")
      ->check(refuse_address)
      ->type_name("ADDRESS")
      ->excludes(socket);
  command->add_flag("--as-administrator", arguments->as_administrator,
                    "Start it as root: the page shows what root may see");
  command->callback([&, arguments] { status = run_web(*arguments, runtime_dir); });
}

}  // namespace gpumem::cli
