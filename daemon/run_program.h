#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "gpumem/result.h"

namespace gpumem {

/// Runs `program` with no signal blocked, and waits for its end. `arguments`  with its name first. `errors`
/// its standard error, `output` its standard output; -1: this process's. Returns its status as waitpid(2)
/// does. Errors  kDeadlineExceeded: it took longer than `patience`, and was killed; of the kernel.
Result<int> run_program(const std::string& program, std::vector<std::string> arguments,
                        std::chrono::seconds patience, int errors = -1, int output = -1);

}  // namespace gpumem
