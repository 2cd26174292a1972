#include "client/cli/views/names.h"

#include <pwd.h>

#include <charconv>
#include <map>
#include <vector>

namespace gpumem::cli {
namespace {

constexpr std::size_t kRoom = 16'384;  // bytes of an entry
constexpr std::string_view kUserTenant = "uid:";

std::optional<uid_t> number_in(std::string_view text) {
  uid_t uid = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), uid);
  const bool is_number = failed == std::errc() && rest == text.data() + text.size();
  return is_number ? std::optional(uid) : std::nullopt;
}

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
  if (const auto uid = number_in(text)) return uid;
  std::vector<char> room(kRoom);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwnam_r(text.c_str(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? std::optional(entry.pw_uid) : std::nullopt;
}

std::string tenant_of_user(const std::string& name) {
  const auto user = find_user(name);
  return user && name != std::to_string(*user) ? std::string(kUserTenant) + std::to_string(*user) : name;
}

std::string tenant_text(const std::string& tenant) {
  if (!tenant.starts_with(kUserTenant)) return tenant;
  const auto uid = number_in(std::string_view(tenant).substr(kUserTenant.size()));
  if (!uid) return tenant;
  const std::string name = user_name(*uid);
  return name == std::to_string(*uid) ? tenant : name + " (" + tenant + ")";
}

}  // namespace gpumem::cli
