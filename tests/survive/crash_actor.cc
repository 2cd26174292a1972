#include "tests/survive/crash_actor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

bool is_ok(const Json& answer) { return answer.at("ok").get<bool>(); }
bool is_gone(const Json& answer) { return !is_ok(answer) && answer.at("code") == "gone"; }
bool is_still(const Json& answer) { return !is_ok(answer) && answer.at("code") == "stopped"; }

}  // namespace

CrashActor::CrashActor(CrashStage& stage, std::string name, uid_t user)
    : stage_(stage), name_(std::move(name)), user_(test_user(user)) {}

void CrashActor::start() {
  painted_.clear();
  const UniqueFd output(
      ::open(stage_.output_of(name_).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  client_ = std::make_unique<ClientProcess>(
      stage_.broker().folder(), ClientOptions{.user = user_,
                                              .environment = crash_environment(stage_.take_plan_of(name_)),
                                              .output = output.get()});
}

void CrashActor::enter() {
  const Json connect{{"do", "connect"}, {"label", name_}};
  const Json open{{"do", "open"}, {"slice", "a"}, {"device", ""}, {"limit", 0}, {"trim", true}};
  Json last;
  EXPECT_TRUE(eventually([&] {
    if (!is_there()) start();
    last = ask(connect);
    if (is_ok(last)) last = ask(open);
    if (!is_ok(last) && is_there()) ask({{"do", "disconnect"}});
    if (is_gone(last)) note_end();
    return is_ok(last) || is_still(last);
  })) << name_
      << ": " << last;
}

Json CrashActor::ask(const Json& command) {
  if (is_stopped()) return {{"ok", false}, {"code", "stopped"}};
  tell(command);
  return await();
}

void CrashActor::tell(const Json& command) {
  told_ = command;
  client_->tell_if_there(command);
}

Json CrashActor::await() {
  bool answered = false;
  const bool decided = eventually([&] {
    stage_.mend();
    answered = client_->has_answer(std::chrono::milliseconds(5));
    return answered || is_stopped();
  });
  EXPECT_TRUE(decided) << name_ << " does not answer " << told_;
  if (answered) return client_->answer();
  return {{"ok", false}, {"code", "stopped"}};
}

Json CrashActor::insist(const Json& command) {
  Json answer;
  EXPECT_TRUE(eventually([&] {
    answer = ask(command);
    if (is_gone(answer)) {
      note_end();
      enter();
    }
    return is_ok(answer) || is_still(answer);
  })) << name_
      << ", " << command << ": " << answer;
  return answer;
}

// The third field of its stat, behind the command in parentheses.
bool CrashActor::is_stopped() const {
  const std::string stat = read_file("/proc/" + std::to_string(client_->pid()) + "/stat");
  const auto end = stat.rfind(')');
  return is_there() && end != std::string::npos && stat.compare(end, 3, ") T") == 0;
}

void CrashActor::note_end() {
  const int status = client_->child().wait();
  if (status < 0) ended_by_ = -status;
  EXPECT_TRUE(status == -SIGKILL || status == -SIGTERM) << name_ << " ended with " << status;
}

void CrashActor::grow(const std::string& slice, Bytes target, int value) {
  EXPECT_TRUE(eventually([&] {
    insist({{"do", "ping"}});  // if the client died, its successor answers
    return try_to_grow(slice, target, value) || is_stopped();
  })) << name_;
}

bool CrashActor::try_to_grow(const std::string& slice, Bytes target, int value) {
  const std::chrono::milliseconds wait = kPatience;
  const Json growth{{"do", "grow"}, {"slice", slice}, {"target", target.count}, {"wait_ms", wait.count()}};
  const Json write{{"do", "write"}, {"slice", slice}, {"value", value}};
  if (!is_ok(ask(growth)) || !is_ok(ask(write))) return false;
  painted_[slice] = value;
  return true;
}

void CrashActor::shrink(const std::string& slice, Bytes target) {
  insist({{"do", "shrink"}, {"slice", slice}, {"target", target.count}});
}

void CrashActor::close(const std::string& slice) {
  painted_.erase(slice);
  insist({{"do", "close"}, {"slice", slice}});
}

void CrashActor::verify() {
  for (const auto& [slice, value] : painted_) {
    const Json answer = ask({{"do", "check"}, {"slice", slice}, {"value", value}});
    if (is_gone(answer) || is_still(answer)) return;
    EXPECT_TRUE(is_ok(answer)) << name_ << ", " << slice << ": " << answer;
  }
}

std::optional<std::uint64_t> CrashActor::committed() {
  if (!is_there() || is_stopped()) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& [slice, value] : painted_) {
    const Json answer = ask({{"do", "committed"}, {"slice", slice}});
    if (!is_ok(answer)) return std::nullopt;
    sum += answer.at("committed").get<std::uint64_t>();
  }
  return sum;
}

void CrashActor::leave() {
  if (!is_there()) return;
  verify();
  if (is_ok(ask({{"do", "close"}, {"slice", "a"}}))) ask({{"do", "disconnect"}});
  end();
}

void CrashActor::end() {
  if (client_ == nullptr) return;
  if (!is_there()) return note_end();
  client_->kill();
}

}  // namespace gpumem::test
