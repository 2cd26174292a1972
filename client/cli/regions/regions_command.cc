#include "client/cli/regions/regions_command.h"

#include <memory>

#include "client/cli/option_checks.h"
#include "client/cli/regions/region_options.h"
#include "client/cli/regions/regions.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

/// What the command line says.
struct RegionsArguments {
  RegionName region;
  bool json = false;
};

CLI::App* add_rm(CLI::App& regions, RegionsArguments& arguments) {
  CLI::App* rm = regions.add_subcommand("rm", "Remove a region of one's tenant; who has mapped it keeps it");
  add_region_name(*rm, arguments.region);
  rm->add_option("--owner", arguments.region.owner, "Of this tenant, as an administrator [one's own]")
      ->type_name("TENANT");
  add_version(*rm, arguments.region);
  return rm;
}

}  // namespace

void add_regions_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<RegionsArguments>();  // lives as long as the callback
  CLI::App* regions =
      app.add_subcommand("regions", "List regions: published memory, who pays and who maps it");
  regions->add_option("--owner", arguments->region.owner, "Only of this tenant [of all]")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
  add_json_flag(*regions, arguments->json);
  const CLI::App* rm = add_rm(*regions, *arguments);
  regions->require_subcommand(0, 1);
  regions->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    const RegionName& region = arguments->region;
    status = rm->parsed() ? remove_region(folder, region.owner, region.name, region.version)
                          : list_regions(folder, region.owner, arguments->json);
  });
}

}  // namespace gpumem::cli
