#include "client/cli/check.h"

#include <sys/resource.h>

#include <algorithm>

namespace gpumem::cli {
namespace {

/// A grant arrives in messages of 128 descriptors; the rest is for the program itself.
constexpr rlim_t kOpenFiles = 1024;

const char* state_word(Finding::State state) {
  switch (state) {
    case Finding::State::kOk: return "ok";
    case Finding::State::kWarn: return "warn";
    case Finding::State::kFail: break;
  }
  return "FAIL";
}

}  // namespace

Finding check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  if (limit.rlim_cur >= kOpenFiles) return {"open_files", Finding::State::kOk, found, ""};
  return {"open_files", Finding::State::kWarn, found + " open files at most: a large growth may fail",
          "ulimit -n " + std::to_string(kOpenFiles)};
}

std::vector<Finding> run_checks(const CheckOptions& options) {
  std::vector<Finding> findings{check_open_files()};
  std::vector<Finding> of_broker;
  const std::string folder = check_broker(options, of_broker);
  check_driver(folder, findings);
  findings.insert(findings.end(), of_broker.begin(), of_broker.end());
  return findings;
}

bool all_well(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.state == Finding::State::kFail; });
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string state = state_word(finding.state);
    std::string name = finding.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    state.resize(6, ' ');
    name.resize(width + 2, ' ');
    text += state + name + finding.found + "\n";
    if (!finding.mend.empty())
      text += std::string(state.size() + name.size(), ' ') + "to mend: " + finding.mend + "\n";
  }
  return text;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    std::string state = state_word(finding.state);
    std::transform(state.begin(), state.end(), state.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    list.push_back(
        {{"name", finding.name}, {"state", state}, {"found", finding.found}, {"mend", finding.mend}});
  }
  return {{"ok", all_well(findings)}, {"checks", std::move(list)}};
}

}  // namespace gpumem::cli
