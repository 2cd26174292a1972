// A client for the scenarios: does what it is told, and says as lines of JSON what it did and when.
// `at` is CLOCK_MONOTONIC in nanoseconds. Commands, one a line, each answered by one line with `ok`:
//   start                     connect and open a slice (says `connected` on the way)
//   grow BYTES WAIT_MS [LEAST]  by so much; content with LEAST
//   shrink BYTES              by so much
//   in_use BYTES              what it cannot do without: it gives back no more than the rest
//   stubborn on|off           on: it does not answer the broker's asking; off: it does, and catches up
//   quit
// Besides, it says `asked` when the broker asks it for memory, and `gave` when it has answered.
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "gpumem/session.h"

namespace {

using gpumem::Bytes;
using nlohmann::json;

/// Lines of several threads, each whole and with its time.
void say(const char* did, json line) {
  static std::mutex mutex;
  line["did"] = did;
  const std::scoped_lock lock(mutex);
  line["at"] = std::chrono::steady_clock::now().time_since_epoch().count();
  std::cout << line.dump() << std::endl;
}

json failed(const gpumem::Error& error) {
  return {{"ok", false}, {"code", code_name(error.code)}, {"error", error.message}};
}

class Actor {
 public:
  Actor(std::string label, bool trims) : label_(std::move(label)), trims_(trims) {}
  ~Actor() { be_stubborn(false); }  // or the session's end waits for the handler for ever

  json start() {
    auto session = gpumem::Session::connect({.label = label_, .timeout = kPatience});
    if (!session) return failed(session.error());
    say("connected", {{"session", session->id()}});
    auto slice = session->open_slice({.label = label_, .trim_on_pressure = trims_});
    if (!slice) return failed(slice.error());
    slice_.emplace(std::move(*slice));
    session_.emplace(std::move(*session));
    if (trims_) return started();
    auto heard = session_->on_pressure([this](const gpumem::Pressure& pressure) { return answer(pressure); });
    return heard ? started() : failed(heard.error());
  }

  json grow(Bytes by, std::chrono::milliseconds wait, Bytes least) {
    const Bytes now = slice_->committed();
    auto grown = slice_->grow(now + by, {.wait = wait, .least = least.is_zero() ? Bytes{} : now + least});
    if (!grown) return failed(grown.error());
    return {{"ok", true}, {"committed", grown->count}};
  }

  json shrink(Bytes by) {
    auto left = slice_->shrink(without(by));
    if (!left) return failed(left.error());
    return {{"ok", true}, {"committed", left->count}};
  }

  json in_use(Bytes bytes) {
    in_use_ = bytes.count;
    return {{"ok", true}, {"all_there", slice_->set_in_use(bytes)}};
  }

  json be_stubborn(bool stubborn) {
    const std::scoped_lock lock(mutex_);
    stubborn_ = stubborn;
    changed_.notify_all();
    return {{"ok", true}};
  }

  bool ready() const { return session_.has_value(); }

 private:
  static constexpr std::chrono::minutes kPatience{2};  // many start at once on few processors

  json started() const { return {{"ok", true}, {"session", session_->id()}, {"tenant", session_->tenant()}}; }

  Bytes without(Bytes by) const {
    const Bytes now = slice_->committed();
    return now < by ? Bytes{} : now - by;
  }

  /// While it is stubborn, the broker hears nothing: an answer of nothing would have it ask others.
  Bytes answer(const gpumem::Pressure& pressure) {
    say("asked", {{"bytes", pressure.bytes.count}});
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !stubborn_; });
    }
    const Bytes before = slice_->committed();
    auto left = slice_->shrink(std::max(without(pressure.bytes), Bytes{in_use_.load()}));
    const Bytes gave = left ? before - *left : Bytes{};
    say("gave", {{"bytes", gave.count}});
    return gave;
  }

  std::string label_;
  bool trims_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stubborn_ = false;
  std::atomic<std::uint64_t> in_use_{0};
  std::optional<gpumem::Slice> slice_;
  std::optional<gpumem::Session> session_;  // ends first, and with it the handler
};

json obey(Actor& actor, const std::string& command, std::istream& words) {
  if (command == "start") return actor.start();
  if (!actor.ready()) return {{"ok", false}, {"error", "tell it to start first"}};
  if (command == "stubborn") {
    std::string how;
    words >> how;
    return actor.be_stubborn(how == "on");
  }
  std::uint64_t bytes = 0;
  std::int64_t wait = 0;
  std::uint64_t least = 0;
  words >> bytes >> wait >> least;
  if (command == "grow") return actor.grow({bytes}, std::chrono::milliseconds(wait), {least});
  if (command == "shrink") return actor.shrink({bytes});
  if (command == "in_use") return actor.in_use({bytes});
  return {{"ok", false}, {"error", "unknown command: " + command}};
}

}  // namespace

// gpumem-scenario-actor LABEL [--trim] [--ignore-term]
int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto has = [&](const char* option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  if (has("--ignore-term")) std::signal(SIGTERM, SIG_IGN);
  Actor actor(arguments.empty() ? "actor" : arguments.front(), has("--trim"));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "quit") break;
    say(command.c_str(), obey(actor, command, words));
  }
  return 0;
}
