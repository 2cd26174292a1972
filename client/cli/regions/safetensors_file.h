#pragma once
#include <filesystem>
#include <memory>

#include "client/cli/regions/region_source.h"

namespace gpumem::cli {

/// Whether the name ends with .safetensors.
bool is_safetensors(const std::filesystem::path& path);

/// The tensors of a file of safetensors, each at a multiple of 256 bytes, and behind them the layout that
/// says where: what publish_safetensors (Python) publishes, byte for byte. check() refuses a file that was
/// written to since it was opened.
std::unique_ptr<RegionSource> safetensors_file(std::filesystem::path path);

}  // namespace gpumem::cli
