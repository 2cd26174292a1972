#include "client/cli/regions/region_options.h"

#include "base/time_format.h"
#include "client/cli/option_checks.h"

namespace gpumem::cli {
namespace {

// Zero is what a region that is kept for ever has, by the lane and by gRPC; in Python it is the shortest
// time.
void add_linger(CLI::App& command, std::chrono::milliseconds& linger) {
  add_time(command, "--linger", linger,
           "With --keep: end it so long after the last process has left it [never]");
  command.get_option("--linger")->check([](const std::string& text) {
    const auto read = parse_duration(text);
    if (!read || *read > read->zero()) return std::string();
    return std::string(
        "0 would keep it no longer than this program runs: 1ms at least; "
        "to keep it for ever, leave --linger out");
  });
}

}  // namespace

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON: stable keys, sizes in bytes");
}

void add_version(CLI::App& command, RegionName& region) {
  command.add_option("--version", region.version, "This version of it [the newest]")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
}

void add_wait(CLI::App& command, RegionName& region) {
  add_time(command, "--wait", region.wait, "Wait for it to be published, so long at most [not at all]");
  command.add_option("--newer-than", region.newer_than, "Its newest version, if it is newer than this one")
      ->check(CLI::NonNegativeNumber)
      ->excludes("--version")
      ->type_name("N");
}

void add_owner(CLI::App& command, RegionName& region) {
  command.add_option("--owner", region.owner, "The tenant that has published it [one's own]")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
}

void add_region_name(CLI::App& command, RegionName& region) {
  command.add_option("name", region.name, "Its name")
      ->required()
      ->check(refuse_unprintable)
      ->type_name("NAME");
}

void add_time(CLI::App& command, const char* option, std::chrono::milliseconds& time, const char* about) {
  command
      .add_option_function<std::string>(
          option,
          [&time, option](const std::string& text) {
            const auto read = parse_duration(text);
            if (!read) throw CLI::ValidationError(option, read.error().message);
            time = *read;
          },
          about)
      ->type_name("TIME");
}

void add_publication(CLI::App& command, PublicationOptions& options) {
  command
      .add_option("--sharing", options.sharing,
                  "Who else may map it: private, group, public, or tenants (ann,bob) [private]")
      ->type_name("WHO");
  command
      .add_option("--device", options.device,
                  "Of this device: UUID, or its place in `gpumem status` [the first]")
      ->type_name("DEVICE");
  add_time(command, "--life", options.life, "End it after this time");
  command.add_flag("--keep", options.keep,
                   "Leave it behind: it outlives this program, at the tenant's expense");
  add_linger(command, options.linger);
  command.add_flag("--seal", options.seal, "Nobody writes to it from now on: it is mapped for reading alone");
  add_time(command, "--wait", options.wait,
           "Wait for memory, so long at most: 500ms, 90s, 10m; a number is seconds [not at all]");
}

}  // namespace gpumem::cli
