// gpumem-sim: makes, removes and shows simulated machines, runs programs on them, and makes their driver
// misbehave.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "sim/machine/machine.h"
#include "sim/machine/table.h"
#include "sim/tool/control_commands.h"

namespace gpumem::sim {
namespace {

constexpr const char* kUsage =
    "usage: gpumem-sim create FOLDER SPEC [LIBRARY_FOLDER]\n"
    "       gpumem-sim remove FOLDER\n"
    "       gpumem-sim show FOLDER\n"
    "       gpumem-sim run FOLDER PROGRAM [ARGUMENT]...\n"
    "       gpumem-sim fault FOLDER CALL [fail RESULT] [delay TIME] [kill] [nth N | from N] [times N]\n"
    "                        [probability P] [seed N] [pid N]\n"
    "       gpumem-sim faults FOLDER\n"
    "       gpumem-sim heal FOLDER\n"
    "       gpumem-sim costs FOLDER [PROFILE | FILE | none]\n"
    "       gpumem-sim shrink FOLDER DEVICE SIZE\n"
    "Makes FOLDER a simulated machine. SPEC is COUNTxSIZE, for example 2x24GiB or 1x8GiB,1x16GiB;\n"
    "with +fabric behind it the GPUs offer fabric handles.\n"
    "run starts a program on it, with LD_LIBRARY_PATH=FOLDER. The machine of a broker that simulates\n"
    "is the folder `driver` in its runtime folder.\n"
    "fault makes driver calls go wrong in every process of the machine, for example\n"
    "  gpumem-sim fault FOLDER cuMemCreate fail OUT_OF_MEMORY nth 3\n"
    "  gpumem-sim fault FOLDER 'cuMem*' delay 5ms probability 0.1\n"
    "faults lists what is in force and what it hit, heal ends it. costs makes the calls take as long as on "
    "a\n"
    "real GPU (h200, a100), as a file with a slash in its name says, or no longer; alone, it lists the "
    "costs.\n"
    "shrink takes SIZE of a device away from everybody, 0B gives it back; what is in use stays in use.\n";

int fail(const Error& error) {
  std::fprintf(stderr, "gpumem-sim: %s\n", error.message.c_str());
  return 1;
}

int create(const Words& words) {
  auto libraries = words.size() == 4 ? Result<std::filesystem::path>(words[3]) : find_libraries();
  if (!libraries) return fail(libraries.error());
  const auto created = create_machine(words[1], words[2], *libraries);
  return created ? 0 : fail(created.error());
}

int remove(const Words& words) {
  const auto removed = remove_machine(words[1]);
  return removed ? 0 : fail(removed.error());
}

int show(const Words& words) {
  const auto machine = load_machine(words[1]);
  if (!machine) return fail(machine.error());
  const auto table = Table::open(*machine);
  if (!table) return fail(table.error());
  struct Sum {
    std::uint64_t memory = 0, contexts = 0;
    unsigned extents = 0;
  };
  std::vector<std::map<ProcessId, Sum>> held((*table)->device_count());
  for (const ExtentInfo& extent : (*table)->extents()) {
    if (extent.device == layout::kHost) continue;
    Sum& sum = held[extent.device][extent.creator];
    (extent.kind == Kind::kContext ? sum.contexts : sum.memory) += extent.size;
    sum.extents += extent.kind == Kind::kMemory;
  }
  for (std::uint32_t i = 0; i < (*table)->device_count(); ++i) {
    std::printf("device %u  %s  %s used of %s\n", i, to_string((*table)->uuid(i)).c_str(),
                to_string(Bytes{(*table)->used(i)}).c_str(), to_string(Bytes{(*table)->total(i)}).c_str());
    for (const auto& [creator, sum] : held[i]) {
      std::printf("  pid %d%s: %s in %u extents, contexts %s\n", static_cast<int>(creator.pid),
                  is_alive(creator) ? "" : " (ended, held by others)", to_string(Bytes{sum.memory}).c_str(),
                  sum.extents, to_string(Bytes{sum.contexts}).c_str());
    }
  }
  return 0;
}

/// Becomes the program, which finds the machine's driver first.
int run_program(const Words& words) {
  const auto machine = load_machine(words[1]);
  if (!machine) return fail(machine.error());
  std::error_code unknown;
  std::string libraries = std::filesystem::absolute(words[1], unknown).string();
  if (const char* more = std::getenv("LD_LIBRARY_PATH"); more != nullptr && *more != '\0')
    libraries += std::string(":") + more;
  ::setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  std::vector<std::string> arguments(words.begin() + 2, words.end());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  return fail(errno_error(errno, "cannot run " + words[2]));
}

struct Command {
  const char* name;
  std::size_t least_words;
  std::size_t most_words;
  int (*run)(const Words&);
};

constexpr Command kCommands[] = {
    {"create", 3, 4, create},
    {"remove", 2, 2, remove},
    {"show", 2, 2, show},
    {"run", 3, std::numeric_limits<std::size_t>::max(), run_program},
    {"fault", 3, 64, add_fault_command},
    {"faults", 2, 2, faults_command},
    {"heal", 2, 2, heal_command},
    {"costs", 2, 3, costs_command},
    {"shrink", 4, 4, shrink_command},
};

int run(const Words& words) {
  const std::string name = words.empty() ? std::string() : words[0];
  for (const Command& command : kCommands) {
    if (name == command.name && words.size() >= command.least_words && words.size() <= command.most_words)
      return command.run(words);
  }
  const bool is_asked = name == "--help" || name == "-h";
  std::fputs(kUsage, is_asked ? stdout : stderr);
  return is_asked ? 0 : 2;
}

}  // namespace
}  // namespace gpumem::sim

int main(int argc, char** argv) { return gpumem::sim::run({argv + 1, argv + argc}); }
