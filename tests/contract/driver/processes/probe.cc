#include "tests/contract/driver/processes/probe.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace gpumem::contract {

void Probe::note(const std::string& what, const std::string& answer) {
  if (!answers_.empty()) answers_ += "; ";
  answers_ += what + ": " + answer;
}

void Probe::ask(const std::string& what, const std::function<std::string()>& body) {
  Process process([&](Channel& channel) {
    channel.tell(body() + " ");  // a message is never empty
    std::fflush(nullptr);
    ::_exit(0);  // past destructors: what was asked may have broken the context
  });
  std::string told = process.channel().try_hear();
  const int status = process.wait();
  if (told.empty()) {
    note(what, WIFSIGNALED(status) ? std::string("the process ends by ") + ::strsignal(WTERMSIG(status))
                                   : "the process ends with status " + std::to_string(WEXITSTATUS(status)));
    return;
  }
  told.pop_back();
  note(what, told);
}

Bytes Probe::budget() const {
  const char* named = std::getenv("GPUMEM_ACCEPTANCE_BUDGET");
  const Bytes wanted = named != nullptr ? Bytes{std::strtoull(named, nullptr, 10)} : mebibytes(256);
  const Bytes quarter{nvml().memory(uuid_)->free.count / 4};
  return std::max(std::min(wanted, quarter).rounded_down(unit_), unit_);
}

void Probe::TearDown() {
  if (IsSkipped() || unit_.is_zero()) return;
  RecordProperty("answer", answers_);
  std::printf("[   ANSWER ] %s\n", answers_.c_str());
  EXPECT_FALSE(answers_.empty());
  expect_used(0);
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (calls().cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "result " + std::to_string(static_cast<int>(result));
}

}  // namespace gpumem::contract
