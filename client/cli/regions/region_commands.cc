#include <CLI/CLI.hpp>
#include <memory>

#include "base/text/time_format.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_content.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

void add_time(CLI::App& command, const char* option, std::chrono::milliseconds& time, const char* about) {
  cli::add_time(
      command, option, [&time](std::chrono::milliseconds given) { time = given; }, about);
}

// As add_time; `why_not_zero`  refuses a time of 0. By the lane and by gRPC, 0 stands for a region that is
// kept for ever; in Python it is the shortest time.
void add_end(CLI::App& command, const char* option, std::chrono::milliseconds& time, const char* about,
             const char* why_not_zero) {
  add_time(command, option, time, about);
  command.get_option(option)->check([why_not_zero](const std::string& text) {
    const auto read = parse_duration(text);
    return read && *read == read->zero() ? std::string(why_not_zero) : std::string();
  });
}

void add_version(CLI::App& command, RegionName& region) {
  add_number(
      command, "--version", [&region](std::uint64_t version) { region.version = version; },
      "This version of it [the newest]");
}

// --wait and --newer-than. After add_version().
void add_wait(CLI::App& command, RegionName& region) {
  add_time(command, "--wait", region.wait, "Wait for it to be published, so long at most [not at all]");
  add_number(
      command, "--newer-than", [&region](std::uint64_t version) { region.newer_than = version; },
      "Its newest version, if it is newer than this one")
      ->excludes("--version");
}

void add_owner(CLI::App& command, RegionName& region) {
  command.add_option("--owner", region.owner, "The tenant or user that has published it [one's own]")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
}

void add_region_name(CLI::App& command, RegionName& region) {
  command.add_option("NAME", region.name, "Its name")->required()->check(refuse_unprintable);
}

void add_publication(CLI::App& command, PublicationOptions& options) {
  command
      .add_option("--sharing", options.sharing,
                  "Who else may map it: private, group, public, or tenants and users (ann,bob) [private]")
      ->type_name("WHO");
  command
      .add_option("--device", options.device,
                  "Of this device: UUID, its place in `gpumem status`, or `host` [the first]")
      ->type_name("DEVICE");
  add_end(command, "--life", options.life, "End it after this time",
          "0 would end it at once: 1ms at least; for no such end, leave --life out");
  command.add_flag("--keep", options.keep,
                   "Leave it behind: it outlives this program, at the tenant's expense");
  add_end(command, "--linger", options.linger,
          "With --keep: end it so long after the last process has left it [never]",
          "0 would keep it no longer than this program runs: 1ms at least; "
          "to keep it for ever, leave --linger out");
  command.get_option("--linger")->needs("--keep");
  command.add_flag("--seal", options.seal, "Nobody writes to it from now on: it is mapped for reading alone");
  add_time(command, "--wait", options.wait,
           "Wait for memory, so long at most: 500ms, 90s, 10m; a number is seconds [not at all]");
}

// `owner`  only of this tenant; empty: of all.
int list_regions(const std::filesystem::path& runtime_folder, const std::string& owner,
                 const TableFlags& flags) {
  auto monitor = Monitor::connect(runtime_folder);
  if (!monitor) return report(monitor.error());
  const auto regions = monitor->regions(find_tenant(*monitor, owner));
  if (!regions) return report(regions.error());
  return print(flags.json ? json_text(regions_json(*regions))
                          : regions_text(*regions, std::chrono::system_clock::now(),
                                         layout_for(*monitor, flags.is_long)));
}

Result<void> remove_own(const std::filesystem::path& runtime_folder, const std::string& name,
                        std::uint64_t version) {
  auto session = Session::connect({runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  return session->remove_region(name, version);
}

// `owner`  its tenant, for administrators; empty: the caller's. `version`  0: the newest.
int remove_region(const std::filesystem::path& runtime_folder, const std::string& owner,
                  const std::string& name, std::uint64_t version) {
  const auto removed = owner.empty() ? remove_own(runtime_folder, name, version)
                                     : Monitor::remove_region(
                                           runtime_folder, find_tenant(runtime_folder, owner), name, version);
  if (!removed) return report(removed.error(), runtime_folder);
  return print(
      printable("removed '" + name + "'" + (version == 0 ? "" : ", version " + std::to_string(version))) +
      "\n");
}

/// What the command line says.
struct RegionArguments {
  RegionName region;
  std::filesystem::path file;
  TableFlags flags;
};

CLI::App* add_rm(CLI::App& regions, RegionArguments& arguments) {
  CLI::App* rm = regions.add_subcommand("rm", "Remove a region of one's tenant; who has mapped it keeps it");
  add_region_name(*rm, arguments.region);
  rm->add_option("--owner", arguments.region.owner, "Of this tenant or user, as an administrator [one's own]")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
  add_version(*rm, arguments.region);
  return rm;
}

void add_regions_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<RegionArguments>();  // lives as long as the callback
  CLI::App* regions =
      app.add_subcommand("regions", "List regions: published memory, who pays and who maps it");
  regions->add_option("--owner", arguments->region.owner, "Only of this tenant or user [of all]")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
  add_table_flags(*regions, arguments->flags);
  const CLI::App* rm = add_rm(*regions, *arguments);
  regions->require_subcommand(0, 1);
  regions->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    const RegionName& region = arguments->region;
    status = rm->parsed() ? remove_region(folder, region.owner, region.name, region.version)
                          : list_regions(folder, region.owner, arguments->flags);
  });
}

void add_publish(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto options = std::make_shared<PublicationOptions>();
  const auto file = std::make_shared<std::filesystem::path>();
  const auto raw = std::make_shared<bool>(false);
  CLI::App* publish = app.add_subcommand("publish", "Load a file into memory and publish it");
  publish
      ->add_option("FILE", *file,
                   "Of any bytes; the tensors of one that ends with .safetensors become arrays")
      ->required();
  publish->add_option("--name", options->name, "Name of the region [the file's]")
      ->check([](const std::string& name) {
        const auto named = check_region_name(name);
        return named ? std::string() : named.error().message;
      })
      ->type_name("NAME");
  publish->add_flag("--raw", *raw, "Publish the bytes of a file of safetensors, too, as they are");
  add_publication(*publish, *options);
  add_json_flag(*publish, options->json);
  publish->callback([=, &runtime_dir, &status] {
    options->runtime_folder = client::runtime_folder(runtime_dir);
    status = publish_file(*options, *file, *raw);
  });
}

void add_cat(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto region = std::make_shared<RegionName>();
  const auto raw = std::make_shared<bool>(false);
  CLI::App* cat = app.add_subcommand(
      "cat", "Write a region's bytes to standard output, or its arrays as a file of safetensors");
  add_region_name(*cat, *region);
  add_owner(*cat, *region);
  add_version(*cat, *region);
  add_wait(*cat, *region);
  cat->add_flag("--raw", *raw, "Write the bytes of a region of arrays, too, as they are");
  cat->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    region->owner = find_tenant(folder, region->owner);
    status = cat_region(folder, *region, *raw);
  });
}

void add_verify(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<RegionArguments>();
  CLI::App* verify = app.add_subcommand("verify", "Compare a region's bytes with a file");
  add_region_name(*verify, arguments->region);
  verify->add_option("FILE", arguments->file, "What they should be")->required();
  add_owner(*verify, arguments->region);
  add_version(*verify, arguments->region);
  add_wait(*verify, arguments->region);
  add_json_flag(*verify, arguments->flags.json);
  verify->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    arguments->region.owner = find_tenant(folder, arguments->region.owner);
    status = verify_region(folder, arguments->region, arguments->file, arguments->flags.json);
  });
}

}  // namespace

void add_region_commands(CLI::App& app, const std::string& runtime_dir, int& status) {
  add_regions_command(app, runtime_dir, status);
  add_publish(app, runtime_dir, status);
  add_cat(app, runtime_dir, status);
  add_verify(app, runtime_dir, status);
}

}  // namespace gpumem::cli
