#include "client/cli/regions/region_commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_content.h"
#include "client/cli/regions/region_options.h"
#include "client/cli/regions/regions_command.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

/// What the command line says.
struct RegionArguments {
  RegionName region;
  std::filesystem::path file;
  bool json = false;
};

void add_publish(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto options = std::make_shared<PublicationOptions>();
  const auto file = std::make_shared<std::filesystem::path>();
  const auto raw = std::make_shared<bool>(false);
  CLI::App* publish = app.add_subcommand("publish", "Load a file into device memory and publish it");
  publish
      ->add_option("file", *file,
                   "Of any bytes; the tensors of one that ends with .safetensors become arrays")
      ->required()
      ->type_name("FILE");
  publish->add_option("--name", options->name, "Name of the region [the file's]")->type_name("NAME");
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
    status = cat_region(client::runtime_folder(runtime_dir), *region, *raw);
  });
}

void add_verify(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<RegionArguments>();
  CLI::App* verify = app.add_subcommand("verify", "Compare a region's bytes with a file");
  add_region_name(*verify, arguments->region);
  verify->add_option("file", arguments->file, "What they should be")->required()->type_name("FILE");
  add_owner(*verify, arguments->region);
  add_version(*verify, arguments->region);
  add_wait(*verify, arguments->region);
  add_json_flag(*verify, arguments->json);
  verify->callback([=, &runtime_dir, &status] {
    status = verify_region(client::runtime_folder(runtime_dir), arguments->region, arguments->file,
                           arguments->json);
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
