#pragma once
#include <filesystem>
#include <set>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// The functions that the shared library `file` exports; versions of symbols are left out.
/// Errors  kNotFound, kPermissionDenied; kInvalidArgument: it is no library of this machine's kind (64 bits).
Result<std::set<std::string>> exported_functions(const std::filesystem::path& file);

/// The driver's functions that `real` exports and `drop_in` does not. The driver's names begin with `prefix`
/// and a capital letter; the interface of debuggers (cudbg...) does not count, because debuggers find it in
/// the real file. Errors  as exported_functions.
Result<std::set<std::string>> missing_functions(const std::filesystem::path& real,
                                                const std::filesystem::path& drop_in,
                                                const std::string& prefix);

}  // namespace gpumem::cli
