#include "client/shim/memory/settings.h"

#include <array>
#include <charconv>
#include <cstdlib>

namespace gpumem::shim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);

// A set-user-id program does not take its user's word for what it uses.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

struct Unit {
  std::string_view name;
  milliseconds length;
};
constexpr std::array<Unit, 5> kUnits{{{"ms", milliseconds(1)},
                                      {"s", std::chrono::seconds(1)},
                                      {"", std::chrono::seconds(1)},
                                      {"m", std::chrono::minutes(1)},
                                      {"h", std::chrono::hours(1)}}};

}  // namespace

Result<milliseconds> parse_wait(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& known : kUnits) {
    if (failed != std::errc() || number < 0 || unit != known.name) continue;
    if (number <= kLongestWait / known.length) return number * known.length;
  }
  return Error{Code::kInvalidArgument,
               "'" + std::string(text) + "' is no duration such as 60s, 1500ms, 5m or 1h"};
}

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
    const auto wait = parse_wait(text);
    if (!wait) return wait.error().in("GPUMEM_WAIT");
    settings.wait = *wait;
  }
  return settings;
}

}  // namespace gpumem::shim
