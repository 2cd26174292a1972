#include "client/cli/regions/python_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "client/cli/listings.h"

namespace gpumem::cli {
namespace {

// As `python3 -m gpumem.safetensors`, but modules of the current folder are not found, and a package that is
// missing is named in words.
constexpr const char* kProgram = R"(import sys
sys.path = [folder for folder in sys.path if folder]
try:
    from gpumem._safetensors_command import main
except ModuleNotFoundError as missing:
    if missing.name not in ('gpumem', 'gpumem._safetensors_command'):
        raise
    sys.exit('gpumem: ' + sys.executable + ' has no package gpumem of this version, which reads and writes '
             'files of safetensors: install the package python3-gpumem, or the wheel gpumemd for this '
             'Python; --raw takes the bytes as they are')
sys.exit(main())
)";

}  // namespace

int run_python(const std::filesystem::path& runtime_folder, std::vector<std::string> words) {
  words.insert(words.begin(), {"python3", "-c", kProgram});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::setenv("GPUMEM_RUNTIME_DIR", runtime_folder.c_str(), 1);
  ::execvp("python3", arguments.data());
  return report(errno_error(errno,
                            "Python, which reads and writes files of safetensors, cannot be started: install "
                            "the package python3-gpumem, or use --raw; python3"));
}

}  // namespace gpumem::cli
