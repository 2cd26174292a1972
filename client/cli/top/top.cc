#include "client/cli/top/top.h"

#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <clocale>
#include <memory>

#include "client/cli/commands/usage.h"
#include "client/cli/top/hosts.h"
#include "client/cli/top/session.h"
#include "client/cli/views/table.h"
#include "client/process/runtime_folder.h"

namespace gpumem::cli {
namespace {

struct TopArguments {
  bool is_once = false;
  bool is_plain = false;
  std::string sort;
  std::vector<std::string> hosts;
};

bool shows_unicode() {
  return std::setlocale(LC_ALL, "") != nullptr && std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
}

int run_top(const TopArguments& arguments, const std::string& runtime_dir) {
  constexpr std::size_t kWidth = 120;  // of output that is no terminal
  constexpr std::size_t kMostWidth = 400;
  const bool is_unicode = shows_unicode();
  const Layout layout = Layout::of_output(false);
  const std::size_t width =
      layout.columns == Layout::kUnbounded ? kWidth : std::min(layout.columns, kMostWidth);
  if (!arguments.hosts.empty()) return top::run_hosts(arguments.hosts, width, arguments.is_once);
  top::Options options{.runtime_folder = client::runtime_folder(runtime_dir),
                       .is_once = arguments.is_once,
                       .has_colour = layout.has_colour && !arguments.is_plain};
  options.view.width = width;
  options.view.is_ascii = arguments.is_plain || !is_unicode;
  const auto sort = std::ranges::find(top::kSortNames, arguments.sort);
  if (sort != top::kSortNames.end())
    options.view.choice.sort = static_cast<top::Sort>(sort - top::kSortNames.begin());
  return top::run(options);
}

}  // namespace

void add_top_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* command = app.add_subcommand("top", "Show devices, tenants and processes, again every second");
  const auto arguments = std::make_shared<TopArguments>();
  command->add_flag("--once", arguments->is_once, "Print one screen with all rows, and end");
  command->add_flag("--plain", arguments->is_plain, "ASCII alone, and no colour");
  command->add_option("--sort", arguments->sort, "The largest first, or by name [charged]")
      ->check(CLI::IsMember(std::vector<std::string>(top::kSortNames.begin(), top::kSortNames.end())))
      ->type_name("KEY");
  command
      ->add_option_function<std::string>(
          "--hosts",
          [arguments](const std::string& text) {
            const std::string wrong = top::hosts_of(text, arguments->hosts);
            if (!wrong.empty()) throw CLI::ValidationError("--hosts", wrong);
          },
          "Show a screen of each of these machines instead, by ssh: a,b,c")
      ->check(refuse_unprintable)
      ->type_name("HOSTS");
  command->callback([&, arguments] { status = run_top(*arguments, runtime_dir); });
}

}  // namespace gpumem::cli
