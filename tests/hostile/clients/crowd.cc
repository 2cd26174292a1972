#include "tests/hostile/clients/crowd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "tests/support/temporary_folder.h"

namespace gpumem::test {

Crowd::Crowd(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      log_(::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
      members_(options_.size) {
  for (std::size_t i = 0; i < members_.size(); ++i) start(i);
}

void Crowd::start(std::size_t index) {
  const Account& own = options_.accounts[index % options_.accounts.size()];
  const Account& other = options_.accounts[(index + 1) % options_.accounts.size()];
  members_[index] = {std::make_unique<Child>(ChildOptions{
      .program = GPUMEM_TEST_HOSTILE_CLIENT,
      .arguments = {std::to_string(random_()), std::to_string(options_.nice), own.tenant, other.tenant},
      .environment = {{"GPUMEM_RUNTIME_DIR", options_.runtime_folder}},
      .user = own.user,
      .output = log_.get()})};
}

void Crowd::stir() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].child->running()) continue;
    note_end(members_[i]);
    start(i);
  }
  Member& one = members_[random_() % members_.size()];
  if (one.stopped) {
    one.child->signal(SIGCONT);
    one.stopped = false;
  } else if (random_() % 4 == 0) {
    one.killed = true;
    one.child->kill();
  } else {
    one.child->signal(SIGSTOP);
    one.stopped = true;
    ++suspended_;
  }
}

void Crowd::note_end(Member& member) {
  const int status = member.child->wait();
  EXPECT_TRUE(status == -SIGTERM || status == -SIGKILL) << "a hostile client ended with " << status;
  ++(member.killed ? killed_ : ended_by_broker_);
}

void Crowd::end() {
  for (Member& one : members_) one.child->kill();
}

std::map<std::string, int> Crowd::acts() const {
  constexpr std::string_view kAct = "act: ";
  std::map<std::string, int> acts;
  std::istringstream log(read_file(options_.log));
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with(kAct)) ++acts[line.substr(kAct.size())];
  }
  return acts;
}

}  // namespace gpumem::test
