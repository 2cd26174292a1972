#include "client/cli/top/session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "client/cli/commands/commands.h"
#include "client/cli/top/controller.h"
#include "client/cli/top/follower.h"
#include "client/cli/top/process_end.h"
#include "client/cli/top/terminal.h"

namespace gpumem::cli::top {
namespace {

constexpr int kInterrupted = 130;
// Samples come each second. Where none has come for so long the broker is said to be silent.
constexpr std::chrono::seconds kSilence{4};

Moment moment() { return {Picture::Clock::now(), std::chrono::system_clock::now()}; }

void print(const Picture& picture, const View& view, bool has_colour) {
  const Moment now = moment();
  for (const Line& line : draw(picture, rows_of(picture, view.choice, now), view, now))
    std::cout << (has_colour ? coloured_text_of(line) : text_of(line)) << "\n";
  std::cout << std::flush;
}

int show_once(const Monitor& monitor, const Options& options, const Interrupt& interrupt) {
  Picture picture;
  const auto watched = monitor.watch(
      [&](v1::Sample sample) {
        picture.apply(sample, Picture::Clock::now());
        return false;
      },
      interrupt.token(), Monitor::Watched::kFirst);
  if (interrupt.happened()) return kInterrupted;
  if (!watched) return report(watched.error());
  print(picture, options.view, options.has_colour);
  return std::cout ? 0 : 1;
}

// For a terminal that cannot be drawn on: one screen below the other, also those of the next broker.
int show_again(const Options& options, const Interrupt& interrupt) {
  constexpr std::uint64_t kEvery = 2;  // samples
  Picture picture;
  Result<void> last;
  bool is_away = false;
  const auto show = [&](const v1::Sample& sample) {
    is_away = false;
    const bool is_due = sample.whole() || sample.number() % kEvery == 0;
    picture.apply(sample, Picture::Clock::now());
    if (is_due) print(picture, options.view, options.has_colour);
    return static_cast<bool>(std::cout);
  };
  const auto watch = [&](const Monitor& monitor) { return monitor.watch(show, interrupt.token()); };
  keep_watching(options.runtime_folder, interrupt.token(), watch, [&](const Result<void>& watched) {
    last = watched;
    if (!std::cout || (!watched && !may_pass(watched.error()))) return false;
    if (!std::exchange(is_away, true))
      std::cerr << "gpumem: waiting for the broker" << (watched ? "" : ": " + watched.error().message)
                << "\n";
    return true;
  });
  if (interrupt.happened()) return 0;
  return last ? 1 : report(last.error());
}

/// The program on a terminal: keys and samples in, screens out.
class Interactive {
 public:
  Interactive(const Options& options, std::unique_ptr<Terminal> terminal, const Interrupt& interrupt)
      : terminal_(std::move(terminal)),
        follower_(options.runtime_folder),
        controller_(options.view),
        interrupted_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        on_stop_(interrupt.token(), [this] { ::eventfd_write(interrupted_.get(), 1); }) {}

  void run() {
    do show();
    while (await() && take_keys());
  }

 private:
  void show() {
    now_ = moment();
    View& view = controller_.view();
    view.width = terminal_->width();
    view.height = terminal_->height();
    rows_ = rows_of(picture_, view.choice, now_);
    room_ = room_for_rows(picture_, view, now_);
    controller_.update(rows_, room_);
    terminal_->show(draw(picture_, rows_, view, now_));
  }

  // False: interrupted.
  bool await() {
    std::array<pollfd, 3> polled{
        {{STDIN_FILENO, POLLIN, 0}, {follower_.descriptor(), POLLIN, 0}, {interrupted_.get(), POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), kSilence / std::chrono::milliseconds(1));
    if (ready < 0) return errno == EINTR;  // another size of the terminal
    const bool is_gone = (polled[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    if (polled[1].revents != 0) take_news();
    look_for_silence();
    return polled[2].revents == 0 && !is_gone;
  }

  void take_news() {
    Follower::News news = follower_.take();
    for (const v1::Sample& sample : news.samples) picture_.apply(sample, Picture::Clock::now());
    if (!news.samples.empty()) heard_ = Picture::Clock::now();
    if (!news.problem.empty())
      controller_.say("trying again: " + printable(news.problem));
    else if (had_problem_)
      controller_.say("");
    had_problem_ = !news.problem.empty();
  }

  void look_for_silence() {
    if (had_problem_ || Picture::Clock::now() - heard_ < kSilence) return;
    controller_.say("the broker is silent: what is shown is old");
    had_problem_ = true;
  }

  // False: the user quits.
  bool take_keys() {
    while (const auto input = terminal_->read()) {
      const Action action = controller_.handle(*input, rows_, room_);
      if (action == Action::kQuit) return false;
      if (action == Action::kAskToEnd) ask_to_end();
      if (action == Action::kEnd) end();
      show();
    }
    return true;
  }

  void ask_to_end() {
    if (had_problem_) return controller_.say("no samples come at present; the process may be another one");
    auto prepared = ProcessEnd::prepare(*controller_.selected(rows_));
    if (!prepared) return controller_.say(prepared.error().message);
    end_ = std::move(*prepared);
    controller_.ask(end_->question());
  }

  void end() {
    if (!end_) return;
    const auto ended = end_->carry_out();
    controller_.say(ended ? *ended : ended.error().message);
    end_.reset();
  }

  std::unique_ptr<Terminal> terminal_;
  Follower follower_;
  Controller controller_;
  UniqueFd interrupted_;
  std::stop_callback<std::function<void()>> on_stop_;
  Picture picture_;
  Moment now_{};
  std::vector<Row> rows_;
  std::size_t room_ = 0;
  std::optional<ProcessEnd> end_;
  Picture::Clock::time_point heard_ = Picture::Clock::now();  ///< when the latest sample came
  bool had_problem_ = false;
};

bool is_drawable() {
  const char* const type = std::getenv("TERM");
  return type != nullptr && std::string_view(type) != "dumb" && ::isatty(STDIN_FILENO) == 1;
}

}  // namespace

int run(const Options& options) {
  const Interrupt interrupt;
  auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return report(monitor.error());
  if (options.is_once || ::isatty(STDOUT_FILENO) != 1) return show_once(*monitor, options, interrupt);
  auto terminal = is_drawable() ? Terminal::open(options.has_colour) : nullptr;
  if (!terminal) return show_again(options, interrupt);
  Interactive(options, std::move(terminal), interrupt).run();
  return 0;
}

}  // namespace gpumem::cli::top
