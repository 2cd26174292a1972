// All commands of a client of the tests, and how failures are told.
#include <poll.h>
#include <unistd.h>

#include "tests/support/client/test_client.h"

namespace gpumem::test {

Answer failure(const Error& error) {
  return {{{"ok", false}, {"code", code_name(error.code)}, {"message", error.message}}, {}};
}

Answer failure(const GrowError& error) {
  Answer answer = failure(static_cast<const Error&>(error));
  if (!error.denial) return answer;
  const Denial& denial = *error.denial;
  Json holders = Json::array();
  for (const Denial::Holder& holder : denial.holders) {
    holders.push_back({{"session", holder.session},
                       {"pid", holder.pid},
                       {"command", holder.command},
                       {"charged", holder.charged.count}});
  }
  answer.json["denial"] = {{"reason", static_cast<int>(denial.reason)},
                           {"device", denial.device},
                           {"tenant", denial.tenant},
                           {"asked", denial.asked.count},
                           {"tenant_limit", denial.tenant_limit.count},
                           {"tenant_guarantee", denial.tenant_guarantee.count},
                           {"tenant_charged", denial.tenant_charged.count},
                           {"pool", denial.pool.count},
                           {"free", denial.free.count},
                           {"kept_for_others", denial.kept_for_others.count},
                           {"charged_to_others", denial.charged_to_others.count},
                           {"waiters_ahead", denial.waiters_ahead},
                           {"waited_ms", denial.waited.count()},
                           {"holders", std::move(holders)}};
  return answer;
}

void idle() {
  pollfd end{STDIN_FILENO, 0, 0};
  ::poll(&end, 1, -1);
}

Answer carry_out(const Json& command, Holdings& holdings) {
  for (auto* commands : {&session_command, &region_command, &allocator_command, &raw_command, &stream_command,
                         &process_command, &paced_command}) {
    if (auto answer = (*commands)(command, holdings)) return std::move(*answer);
  }
  return failure(Error{Code::kInvalidArgument, "unknown command " + command.dump()});
}

}  // namespace gpumem::test
