// A process that borrows memory as a test tells it. Standard input is one end of a socket: a command comes in
// one message of JSON, its answer goes back in another.
//   test_client serve | idle | storm SEED     in the runtime folder $GPUMEM_RUNTIME_DIR
//   test_client used DRIVER_FOLDER UUID       prints the bytes of the device in use, then a line for each
//   process: pid, bytes
//   test_client hold DRIVER_FOLDER BYTES      takes a context and so much of the first device, past any
//   broker
//   test_client contained WORD...             the same, as the first process of a PID namespace
//   test_client contained-user WORD...        and of a user namespace
//   test_client within PID WORD...            the same, in the PID namespace of that process's children, and
//   with its mounts: the leak sanitizer looks at /proc
#include "tests/support/client/test_client.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/packet.h"
#include "cuda/nvml.h"

namespace gpumem::test {

namespace {

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
  auto processes = (*nvml)->processes(*parsed);
  if (!memory || !processes) return 1;
  std::printf("%llu\n", static_cast<unsigned long long>(memory->used.count));
  for (const cuda::ProcessMemory& one : *processes)
    std::printf("%u %llu\n", one.pid, static_cast<unsigned long long>(one.used.count));
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

// Goes on as a child of the program that `line` begins with. Returns if there is no such program.
int go_on_by(std::vector<std::string> line, const std::vector<std::string>& words) {
  const std::string program = "/usr/bin/" + line.front();
  line.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  return 2;
}

int contain(const std::string& how, const std::vector<std::string>& words) {
  std::vector<std::string> line{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  if (how == "contained-user") line.insert(line.end(), {"--user", "--map-root-user"});
  return go_on_by(std::move(line), words);
}

}  // namespace
}  // namespace gpumem::test

int main(int argc, char** argv) {
  using namespace gpumem::test;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() > 1 && words[0].starts_with("contained"))
    return contain(words[0], {words.begin() + 1, words.end()});
  if (words.size() > 2 && words[0] == "within")
    return go_on_by({"nsenter", "--pid=/proc/" + words[1] + "/ns/pid_for_children",
                     "--mount=/proc/" + words[1] + "/ns/mnt"},
                    {words.begin() + 2, words.end()});
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
