#include "base/system/system_mode.h"

#include <algorithm>

#include "base/system/loader_cache.h"
#include "base/system/small_file.h"
#include "base/text/number.h"

namespace gpumem::system_mode {
namespace {

constexpr const char* kLoginDefs = "/etc/login.defs";
constexpr std::size_t kCommBytes = 15;
constexpr std::string_view kBlanks = " \t\r";

/// The next word of `text`, which is cut off there.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// The numbers of a line such as `Uid: real effective saved filesystem`.
struct Ids {
  std::optional<uid_t> real, effective;
  bool differ() const { return real != effective; }
};

Ids ids_in(std::string_view line) {
  Ids ids;
  ids.real = whole_number<uid_t>(take_word(line));
  ids.effective = whole_number<uid_t>(take_word(line));
  return ids;
}

}  // namespace

bool is_system_folder(const std::filesystem::path& folder) { return folder.native().ends_with(kFolder); }

std::filesystem::path real_library(const std::string& name) {
  for (const std::filesystem::path& path : libraries_in_cache(name)) {
    if (!is_system_folder(path.parent_path())) return path;
  }
  return {};
}

std::optional<ProcessFacts> ProcessFacts::in(std::string_view status) {
  ProcessFacts facts;
  std::optional<uid_t> uid;
  while (!status.empty()) {
    std::string_view line = take_line(status);
    const std::string_view key = take_word(line);
    if (key == "Name:") {
      facts.name = line.substr(std::min(line.find_first_not_of(kBlanks), line.size()));
    } else if (key == "Uid:") {
      const Ids ids = ids_in(line);
      uid = ids.effective;
      facts.has_changed_user |= ids.differ();
    } else if (key == "Gid:") {
      facts.has_changed_user |= ids_in(line).differ();
    } else if (key == "Seccomp:") {
      facts.is_filtered = take_word(line) != "0";
    }
  }
  if (!uid) return std::nullopt;
  facts.uid = *uid;
  return facts;
}

Rules Rules::read(const std::filesystem::path& runtime_folder) {
  Rules rules;
  if (const auto text = read_small_file(kLoginDefs)) rules.least_uid = least_uid_in(*text);
  const auto names = read_small_file(runtime_folder / kExceptFile);
  for (std::string_view rest = names ? std::string_view(*names) : ""; !rest.empty();) {
    if (const std::string_view name = take_line(rest); !name.empty()) rules.except.emplace_back(name);
  }
  return rules;
}

uid_t Rules::least_uid_in(std::string_view login_defs) {
  uid_t least = Rules{}.least_uid;
  while (!login_defs.empty()) {
    std::string_view line = take_line(login_defs);
    if (take_word(line) == "UID_MIN") least = whole_number<uid_t>(take_word(line)).value_or(least);
  }
  return least;
}

const char* Rules::why_left(const ProcessFacts& process) const {
  const auto is_its_name = [&](const std::string& name) {
    return name.substr(0, kCommBytes) == process.name;
  };
  if (process.is_filtered) return "it runs under seccomp";
  if (process.has_changed_user) return "it has the rights of another user";
  if (process.uid < least_uid) return "its user is below UID_MIN";
  return std::ranges::any_of(except, is_its_name) ? "its name is in [system] except" : nullptr;
}

}  // namespace gpumem::system_mode
