#include "client/cli/control.h"

#include "proto/lane.h"

namespace gpumem::cli {

Result<Control> Control::connect(const std::filesystem::path& runtime_folder) {
  auto lane = client::Lane::connect(runtime_folder / kLaneSocketName, std::chrono::seconds(10));
  if (!lane) return lane.error();
  auto token = (*lane)->greet_control();
  if (!token) return token.error();
  return Control(std::move(*lane), std::move(*token));
}

}  // namespace gpumem::cli
