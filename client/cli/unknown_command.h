#pragma once
#include <string>

namespace CLI {
class App;
}

namespace gpumem::cli {

/// What to tell somebody whose command line, which `app` has refused, names a command that there is not: the
/// word, the command that is nearest to it, and all there are. Empty: that is not what is wrong with it.
std::string unknown_command(const CLI::App& app);

}  // namespace gpumem::cli
