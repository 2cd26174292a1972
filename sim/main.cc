// gpumem-sim: makes, removes and shows simulated machines.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "sim/table.h"

namespace gpumem::sim {
namespace {

constexpr const char* kUsage =
    "usage: gpumem-sim create FOLDER SPEC [LIBRARY_FOLDER]\n"
    "       gpumem-sim remove FOLDER\n"
    "       gpumem-sim show FOLDER\n"
    "Makes FOLDER a simulated machine; programs run on it with LD_LIBRARY_PATH=FOLDER.\n"
    "SPEC is COUNTxSIZE, for example 2x24GiB or 1x8GiB,1x16GiB.\n";

int fail(const Error& error) {
  std::fprintf(stderr, "gpumem-sim: %s\n", error.message.c_str());
  return 1;
}

int create(const std::vector<std::string>& arguments) {
  auto libraries = arguments.size() == 4 ? Result<std::filesystem::path>(arguments[3]) : find_libraries();
  if (!libraries) return fail(libraries.error());
  const auto created = create_machine(arguments[1], arguments[2], *libraries);
  return created ? 0 : fail(created.error());
}

int show(const std::string& folder) {
  const auto machine = load_machine(folder);
  if (!machine) return fail(machine.error());
  const auto table = Table::open(*machine);
  if (!table) return fail(table.error());
  struct Sum {
    std::uint64_t memory = 0, contexts = 0;
    unsigned extents = 0;
  };
  std::vector<std::map<ProcessId, Sum>> held((*table)->device_count());
  for (const ExtentInfo& extent : (*table)->extents()) {
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

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? std::string() : arguments[0];
  if (command == "create" && (arguments.size() == 3 || arguments.size() == 4)) return create(arguments);
  if (command == "show" && arguments.size() == 2) return show(arguments[1]);
  if (command == "remove" && arguments.size() == 2) {
    const auto removed = remove_machine(arguments[1]);
    return removed ? 0 : fail(removed.error());
  }
  const bool asked = command == "--help" || command == "-h";
  std::fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}

}  // namespace
}  // namespace gpumem::sim

int main(int argc, char** argv) { return gpumem::sim::run({argv + 1, argv + argc}); }
