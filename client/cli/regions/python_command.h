#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace gpumem::cli {

/// Runs Python's `gpumem.safetensors` in place of this program, with the `words` of its command line.
/// Answers the exit status, after saying why, if there is no `python3` on the PATH.
int run_python(const std::filesystem::path& runtime_folder, std::vector<std::string> words);

}  // namespace gpumem::cli
