#include "client/cli/views/names.h"

#include <pwd.h>

#include <algorithm>
#include <map>

#include "base/text/number.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kRoom = 16'384;  // bytes of an entry
constexpr std::string_view kUserTenant = "uid:";

std::string look_up(uid_t uid) {
  std::vector<char> room(kRoom);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(uid, &entry, room.data(), room.size(), &found);
  return found != nullptr ? entry.pw_name : std::to_string(uid);
}

}  // namespace

std::string user_name(std::uint32_t uid) {
  thread_local std::map<uid_t, std::string> known;
  const auto found = known.find(uid);
  return found != known.end() ? found->second : known.emplace(uid, look_up(uid)).first->second;
}

std::optional<uid_t> find_user(const std::string& text) {
  const std::size_t prefix = text.starts_with(kUserTenant) ? kUserTenant.size() : 0;
  if (const auto uid = whole_number<uid_t>(std::string_view(text).substr(prefix))) return uid;
  std::vector<char> room(kRoom);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwnam_r(text.c_str(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? std::optional(entry.pw_uid) : std::nullopt;
}

std::string device_name(const std::string& uuid, const std::vector<std::string>& lent) {
  constexpr std::size_t kShort = 12;  // `GPU-` and eight digits
  const auto found = std::ranges::find(lent, uuid);
  if (found == lent.end() || uuid == kHostStore) return uuid.substr(0, kShort);
  return device_name(static_cast<std::size_t>(found - lent.begin()));
}

std::vector<std::string> lent_to(const Session& session) {
  std::vector<std::string> lent;
  if (const auto usage = session.usage())
    for (const DeviceUsage& device : *usage) lent.push_back(device.device);
  return lent;
}

std::string with_device_names(std::string text, const std::vector<std::string>& lent) {
  for (const std::string& uuid : lent) {
    const std::string name = device_name(uuid, lent);
    for (auto at = text.find(uuid); !uuid.empty() && at != text.npos; at = text.find(uuid, at + name.size()))
      text.replace(at, uuid.size(), name);
  }
  return text;
}

std::string tenant_of_user(const std::string& name) {
  const auto user = find_user(name);
  return user && name != std::to_string(*user) ? std::string(kUserTenant) + std::to_string(*user) : name;
}

std::string tenant_text(const std::string& tenant) {
  if (!tenant.starts_with(kUserTenant)) return tenant;
  const auto uid = whole_number<uid_t>(std::string_view(tenant).substr(kUserTenant.size()));
  if (!uid) return tenant;
  const std::string name = user_name(*uid);
  return name == std::to_string(*uid) ? tenant : name + " (" + tenant + ")";
}

}  // namespace gpumem::cli
