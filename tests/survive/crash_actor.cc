#include "tests/survive/crash_actor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

bool is_gone(const Json& answer) { return !answer.at("ok").get<bool>() && answer.at("code") == "gone"; }

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
    if (last.at("ok").get<bool>()) last = ask(open);
    if (!last.at("ok").get<bool>() && is_there()) ask({{"do", "disconnect"}});
    if (is_gone(last)) note_end();
    return last.at("ok").get<bool>();
  })) << name_
      << ": " << last;
}

Json CrashActor::ask(const Json& command) {
  client_->tell_if_there(command);
  const bool answered = eventually([&] {
    stage_.mend();
    return client_->has_answer(std::chrono::milliseconds(5));
  });
  EXPECT_TRUE(answered) << name_ << " does not answer " << command;
  return client_->answer();
}

Json CrashActor::insist(const Json& command) {
  Json answer;
  EXPECT_TRUE(eventually([&] {
    answer = ask(command);
    if (is_gone(answer)) {
      note_end();
      enter();
    }
    return answer.at("ok").get<bool>();
  })) << name_
      << ", " << command << ": " << answer;
  return answer;
}

void CrashActor::note_end() {
  const int status = client_->child().wait();
  if (status < 0) ended_by_ = -status;
  EXPECT_TRUE(status == -SIGKILL || status == -SIGTERM) << name_ << " ended with " << status;
}

void CrashActor::grow(const std::string& slice, Bytes target, int value) {
  const Json write{{"do", "write"}, {"slice", slice}, {"value", value}};
  const std::chrono::milliseconds wait = kPatience;
  EXPECT_TRUE(eventually([&] {  // once more, if it died before it could write
    insist({{"do", "grow"}, {"slice", slice}, {"target", target.count}, {"wait_ms", wait.count()}});
    return ask(write).at("ok").get<bool>();
  }));
  painted_[slice] = value;
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
    if (is_gone(answer)) return;
    EXPECT_TRUE(answer.at("ok").get<bool>()) << name_ << ", " << slice << ": " << answer;
  }
}

std::optional<std::uint64_t> CrashActor::committed() {
  if (!is_there()) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& [slice, value] : painted_) {
    const Json answer = ask({{"do", "committed"}, {"slice", slice}});
    if (!answer.at("ok").get<bool>()) return std::nullopt;
    sum += answer.at("committed").get<std::uint64_t>();
  }
  return sum;
}

void CrashActor::leave() {
  if (!is_there()) return;
  verify();
  if (ask({{"do", "close"}, {"slice", "a"}}).at("ok").get<bool>()) ask({{"do", "disconnect"}});
  end();
}

void CrashActor::end() {
  if (client_ == nullptr) return;
  if (!is_there()) return note_end();
  client_->kill();
}

}  // namespace gpumem::test
