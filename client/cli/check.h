#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "client/cli/views.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// The outcome of one check of this machine, for this user.
struct Finding {
  enum class State { kOk, kWarn, kFail };
  std::string name;  ///< stable, snake_case
  State state = State::kOk;
  std::string found;  ///< the fact, in words
  std::string mend;   ///< the remedy, if there is one
};

struct CheckOptions {
  std::filesystem::path runtime_folder;
  bool allocate = true;  ///< borrow one extent and give it back
};

/// Everything a client needs, in the order in which it is needed. What rests on a failed check is left out.
std::vector<Finding> run_checks(const CheckOptions& options);

bool all_well(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);
Json findings_json(const std::vector<Finding>& findings);

// The parts of run_checks; each adds to `findings`.

/// The limit of open descriptors of this process.
Finding check_open_files();
/// Sockets, broker, session, and a small loan. Answers the driver folder to look in.
std::string check_broker(const CheckOptions& options, std::vector<Finding>& findings);
/// The driver library in `folder` (empty: the system's), its devices, and the system's device nodes.
void check_driver(const std::string& folder, std::vector<Finding>& findings);

}  // namespace gpumem::cli
