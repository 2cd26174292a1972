#pragma once
#include <filesystem>
#include <string>

namespace gpumem::cli {

/// The loader that the executable `program` names for itself (PT_INTERP). Empty: it is linked statically, is
/// no such file, or cannot be read.
/// `program`  as execvp(3) takes it: a path, or a name that is looked for in PATH.
std::string elf_interpreter(const std::string& program);

}  // namespace gpumem::cli
