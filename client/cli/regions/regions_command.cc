#include "client/cli/regions/regions_command.h"

#include <memory>

#include "client/cli/option_checks.h"
#include "client/cli/regions/region_options.h"
#include "client/cli/regions/regions.h"
#include "client/cli/regions/restore.h"
#include "client/cli/regions/save.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

/// What the command line says.
struct RegionsArguments {
  RegionName region;
  std::filesystem::path file;
  bool force = false;
  PublicationOptions publication;
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

CLI::App* add_save(CLI::App& regions, RegionsArguments& arguments) {
  CLI::App* save = regions.add_subcommand("save", "Write a region to a file, for restore");
  add_region_name(*save, arguments.region);
  save->add_option("file", arguments.file, "Must not be there")->required()->type_name("FILE");
  add_owner(*save, arguments.region);
  add_version(*save, arguments.region);
  save->add_flag("--force", arguments.force, "Replace a file that is there");
  return save;
}

CLI::App* add_restore(CLI::App& regions, RegionsArguments& arguments) {
  CLI::App* restore = regions.add_subcommand("restore", "Publish a region that was saved");
  restore->add_option("file", arguments.file, "Of `regions save` or of Python's gpumem.saved")
      ->required()
      ->type_name("FILE");
  restore->add_option("name", arguments.publication.name, "Name of the region")
      ->required()
      ->type_name("NAME");
  add_publication(*restore, arguments.publication);
  return restore;
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
  const CLI::App* save = add_save(*regions, *arguments);
  const CLI::App* restore = add_restore(*regions, *arguments);
  regions->require_subcommand(0, 1);
  regions->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    RegionsArguments& given = *arguments;
    given.publication.runtime_folder = folder;
    given.publication.json = given.json;
    const RegionName& region = given.region;
    if (rm->parsed()) {
      status = remove_region(folder, region.owner, region.name, region.version);
    } else if (save->parsed()) {
      status = save_region({folder, region, given.file, given.force, given.json});
    } else if (restore->parsed()) {
      if (!region.owner.empty())
        throw CLI::ValidationError("--owner", "a restored region is its publisher's: leave this out");
      status = restore_region(given.publication, given.file);
    } else {
      status = list_regions(folder, region.owner, given.json);
    }
  });
}

}  // namespace gpumem::cli
