#pragma once
#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace gpumem::cli {

/// The message for a command line with an unknown command or without a command, for which `app` has raised
/// `error`: the word, the nearest command, and the list of commands. Empty: the error is another one.
std::string unknown_command(const CLI::App& app, const CLI::ParseError& error);

}  // namespace gpumem::cli
