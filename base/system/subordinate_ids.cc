#include "base/system/subordinate_ids.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/system/files.h"
#include "base/text/number.h"

namespace gpumem {
namespace {

std::vector<std::uint32_t> groups_of(const passwd& account) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  if (::getgrouplist(account.pw_name, account.pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(account.pw_name, account.pw_gid, groups.data(), &count) < 0) return {account.pw_gid};
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace

// Ranges that overlap become one, if they have the same owner. Else they are nobody's.
SubordinateIds::Ranges SubordinateIds::without_shared(Ranges all) {
  std::ranges::sort(all, {}, &Range::first);
  Ranges kept;
  for (auto one = all.begin(); one != all.end();) {
    Range joined = *one;
    bool is_shared = false;
    for (++one; one != all.end() && one->first < joined.end; ++one) {
      joined.end = std::max(joined.end, one->end);
      is_shared = is_shared || one->owner->uid != joined.owner->uid;
    }
    if (!is_shared && joined.owner->uid != 0) kept.push_back(std::move(joined));
  }
  return kept;
}

SubordinateIds::SubordinateIds(std::filesystem::path file, FindOwner find_owner)
    : file_(std::move(file)), find_owner_(std::move(find_owner)) {}

SubordinateIds::FindOwner SubordinateIds::of_machine() {
  return [](const std::string& name) -> std::optional<Owner> {
    const auto number = whole_number<std::uint32_t>(name);
    const passwd* const account = number ? ::getpwuid(*number) : ::getpwnam(name.c_str());
    if (account == nullptr) return number ? std::optional(Owner{*number, {}}) : std::nullopt;
    return Owner{account->pw_uid, groups_of(*account)};
  };
}

void SubordinateIds::read(Again again) {
  auto text = read_text(file_);
  if (!text && text.error().code != Code::kNotFound)
    return spdlog::warn("users of containers count as before: {}", text.error().message);
  if (!text) text = std::string();
  const bool is_as_before = *text == text_;
  if (is_as_before && again == Again::kNone) return;
  if (!is_as_before || again == Again::kAll) owners_.clear();
  text_ = std::move(*text);
  auto ranges = std::make_shared<const Ranges>(parse());
  const MutexLock lock(mutex_);
  ranges_ = std::move(ranges);
}

// Lines that are no ranges are left out, as newuidmap(1) leaves them out. An owner of many ranges is looked
// up once.
SubordinateIds::Ranges SubordinateIds::parse() {
  constexpr std::uint64_t kNumbers = std::uint64_t{std::numeric_limits<std::uint32_t>::max()};
  std::erase_if(owners_, [](const auto& owner) { return owner.second == nullptr; });
  const auto owner_named = [&](const std::string& name) {
    const auto [known, is_new] = owners_.try_emplace(name);
    if (const auto found = is_new ? find_owner_(name) : std::nullopt)
      known->second = std::make_shared<const Owner>(*found);
    return known->second;
  };
  Ranges all;
  std::istringstream lines(text_);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name, start, size;
    std::getline(std::getline(std::getline(fields, name, ':'), start, ':'), size);
    const auto first = whole_number<std::uint64_t>(start), count = whole_number<std::uint64_t>(size);
    if (name.empty() || !first || !count || *count == 0 || *first > kNumbers || *count > kNumbers - *first)
      continue;
    if (auto owner = owner_named(name)) all.push_back({*first, *first + *count, std::move(owner)});
  }
  std::ranges::sort(all, {}, [](const Range& one) { return std::pair(one.first, one.end); });
  return without_shared(std::move(all));
}

std::optional<Owner> SubordinateIds::owner_of(std::uint32_t uid) const {
  const auto ranges = [&] {
    const MutexLock lock(mutex_);
    return ranges_;
  }();
  if (uid == 0) return std::nullopt;
  const auto after =
      std::ranges::upper_bound(*ranges, std::uint64_t{uid}, {}, [](const Range& one) { return one.first; });
  if (after == ranges->begin()) return std::nullopt;
  const Range& range = *std::prev(after);
  return uid < range.end && uid != range.owner->uid ? std::optional(*range.owner) : std::nullopt;
}

}  // namespace gpumem
