#include "tests/survive/crash_stage.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpumem::test {
namespace {

// Bob and Cat borrow what Ann is guaranteed. A borrower that keeps it is ended after a tenth of a second.
constexpr const char* kCrashConfig = R"([broker]
reserve = "all-but 8MiB"
socket_group = 10000
lend_guarantees = true
reclaim_deadline_ms = 100
escalation = "end-session"
grace_seconds = 1
context_overhead = "0B"
[[tenant]]
name = "ann"
user = 10001
guarantee = "36MiB"
[[tenant]]
name = "bob"
user = 10002
[[tenant]]
name = "cat"
user = 10003
)";

std::vector<std::pair<std::string, std::string>> environment_of(const std::string& plan,
                                                                const StandInManager* manager) {
  auto all = crash_environment(plan);
  if (manager != nullptr) all.push_back(manager->environment());
  return all;
}

BrokerOptions options_of(const CrashPlan& plan, const StandInManager* manager) {
  return {.simulate = "1x64MiB",
          .config = kCrashConfig,
          .program = manager == nullptr ? gpumemd_program() : manager->program(),
          .environment = environment_of(plan.brokers.empty() ? "" : plan.brokers.front(), manager),
          .may_end = true};
}

// `name:n=action`, in the words in which a process says that it has come by.
std::string announcement(const std::string& plan) {
  const auto action = plan.find('=');
  const std::string name = plan.substr(0, plan.find_first_of(":="));
  return "GPUMEM_CRASH_POINT: " + name + " " +
         (action == std::string::npos ? "kill" : plan.substr(action + 1)) + "\n";
}

}  // namespace

std::string to_text(const CrashPlan& plan) {
  std::string text;
  for (const std::string& one : plan.brokers) text += "broker " + one + "; ";
  for (const auto& [actor, one] : plan.clients) text += actor + " " + one + "; ";
  return text;
}

std::vector<std::pair<std::string, std::string>> crash_environment(const std::string& plan) {
  if (plan.empty()) return {};
  return {{"GPUMEM_CRASH_POINT", plan}};
}

CrashStage::CrashStage(CrashPlan plan, StandInManager* manager)
    : manager_(manager),
      plan_(std::move(plan)),
      clients_(plan_.clients),
      broker_(options_of(plan_, manager)) {
  mend();
}

std::vector<std::pair<std::string, std::string>> CrashStage::environment() const {
  return environment_of(next_ < plan_.brokers.size() ? plan_.brokers[next_] : "", manager_);
}

void CrashStage::start_next() {
  if (manager_ != nullptr) manager_->prepare();
  broker_.start_again_in(environment());
  if (manager_ != nullptr) manager_->release();
}

void CrashStage::mend() {
  while (!broker_.running()) {
    const int status = broker_.wait();
    // A call that failed may have kept it from starting.
    const bool planned = take_plan() && (status == -SIGKILL || status == 1);
    EXPECT_TRUE(planned) << "the broker ended with " << status;
    start_next();
    if (!planned) return;
  }
}

void CrashStage::restart() {
  mend();
  broker_.begin_to_stop();
  const int status = broker_.wait();
  EXPECT_TRUE((take_plan() && status == -SIGKILL) || status == 0) << "the broker ended with " << status;
  start_next();
  mend();
}

bool CrashStage::take_plan() {
  if (next_ == plan_.brokers.size() || !has_happened(plan_.brokers[next_])) return false;
  ++next_;
  return true;
}

std::string CrashStage::take_plan_of(const std::string& actor) {
  const auto found = std::ranges::find(clients_, actor, &CrashPlan::OfClient::actor);
  if (found == clients_.end()) return {};
  std::string plan = found->plan;
  clients_.erase(found);
  return plan;
}

bool CrashStage::has_happened(const std::string& plan) const {
  return said().find(announcement(plan)) != std::string::npos;
}

std::string CrashStage::missing() const {
  std::string words;
  for (const std::string& one : plan_.brokers)
    if (!has_happened(one)) words += one + " ";
  for (const auto& [actor, plan] : plan_.clients)
    if (!has_happened(plan)) words += plan + " ";
  return words;
}

// A broker that may still die is not finished: it reports its point first, and is dead a moment later.
bool CrashStage::has_come_true() const {
  const bool may_die = next_ < plan_.brokers.size() && !plan_.brokers[next_].ends_with("=fail");
  return !may_die && missing().empty();
}

void CrashStage::disarm() {
  next_ = plan_.brokers.size();
  clients_.clear();
  broker_.kill();
  start_next();
}

std::string CrashStage::said() const {
  std::string words = broker_.log();
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "."))
    words += "--- " + file.path().filename().string() + "\n" + read_file(file.path());
  return words;
}

}  // namespace gpumem::test
