// A process that borrows memory as a test tells it. Standard input is one end of a socket: a command comes in
// one message of JSON, its answer goes back in another.
//   test_client serve | idle | storm SEED     in the runtime folder $GPUMEM_RUNTIME_DIR
//   test_client used DRIVER_FOLDER UUID       prints the bytes of the device in use
//   test_client hold DRIVER_FOLDER BYTES      takes a context and so much of the first device, past any
//   broker
#include "tests/support/test_client.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/packet.h"
#include "cuda/nvml.h"

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

namespace {

Answer carry_out(const Json& command, Holdings& holdings) {
  for (auto* commands : {&session_command, &allocator_command, &raw_command, &process_command}) {
    if (auto answer = (*commands)(command, holdings)) return std::move(*answer);
  }
  return failure(Error{Code::kInvalidArgument, "unknown command " + command.dump()});
}

int serve(Holdings& holdings) {
  for (;;) {
    auto packet = receive_packet(STDIN_FILENO, 65'536, 0);
    if (!packet || packet->bytes.empty()) return 0;
    const Answer answer = carry_out(Json::parse(packet->bytes), holdings);
    if (!send_packet(STDIN_FILENO, answer.json.dump(), answer.descriptors)) return 1;
  }
}

int print_used(const std::string& folder, const std::string& uuid) {
  auto nvml = cuda::Nvml::open(folder);
  auto parsed = cuda::parse_device_uuid(uuid);
  if (!nvml || !parsed) return 1;
  auto memory = (*nvml)->memory(*parsed);
  if (!memory) return 1;
  std::printf("%llu\n", static_cast<unsigned long long>(memory->used.count));
  return 0;
}

int hold(const std::string& folder, const std::string& bytes) {
  auto driver = cuda::Driver::open(folder);
  if (!driver) return 1;
  auto context = cuda::CurrentContext::enter(**driver, 0);
  auto memory = cuda::Allocation::create(**driver, 0, {std::stoull(bytes)});
  if (!context || !memory) return 1;
  idle();
  return 0;
}

}  // namespace
}  // namespace gpumem::test

int main(int argc, char** argv) {
  using namespace gpumem::test;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "used") return print_used(words[1], words[2]);
  if (words.size() == 3 && words[0] == "hold") return hold(words[1], words[2]);
  const char* folder = std::getenv("GPUMEM_RUNTIME_DIR");
  if (folder == nullptr || words.empty()) return 2;
  Holdings holdings;
  holdings.runtime_folder = folder;
  if (words[0] == "serve") return serve(holdings);
  if (words[0] == "storm" && words.size() == 2) storm(folder, static_cast<unsigned>(std::stoul(words[1])));
  if (words[0] != "idle") return 2;
  idle();
  return 0;
}
