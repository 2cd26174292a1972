#include "client/shim/memory/settings.h"

#include <cstdlib>

#include "base/time_format.h"

namespace gpumem::shim {
namespace {

// A set-user-id program does not take its user's word for what it uses.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Settings> Settings::from_environment() {
  Settings settings;
  settings.name = variable("GPUMEM_NAME");
  settings.optional = variable("GPUMEM_OPTIONAL") == "1";
  settings.account_folder = variable("GPUMEM_ACCOUNT_FOLDER");
  if (const std::string text = variable("GPUMEM_LIMIT"); !text.empty()) {
    const auto limit = parse_bytes(text);
    if (!limit) return limit.error().in("GPUMEM_LIMIT");
    if (limit->is_zero())
      return Error{Code::kInvalidArgument, "GPUMEM_LIMIT: 0 is no limit; leave it unset for none"};
    settings.limit = *limit;
  }
  if (const std::string text = variable("GPUMEM_WAIT"); !text.empty()) {
    const auto wait = parse_duration(text);
    if (!wait) return wait.error().in("GPUMEM_WAIT");
    settings.wait = *wait;
  }
  return settings;
}

}  // namespace gpumem::shim
