#pragma once
#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace gpumem::cli {

/// What to tell somebody whose command line, which `app` has answered with `error`, names a command that
/// there is not, or none where one is needed: the word, the command that is nearest to it, and all there are.
/// Empty: that is not what is wrong with it.
std::string unknown_command(const CLI::App& app, const CLI::ParseError& error);

}  // namespace gpumem::cli
