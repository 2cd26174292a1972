#include "client/cli/run/process_tree.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace gpumem::cli {

pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the name may have anything in it
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  return rest >> state >> parent ? parent : 0;
}

bool descends(pid_t pid, pid_t ancestor) {
  for (int depth = 0; pid > 0 && depth < 1024; ++depth, pid = parent_of(pid)) {
    if (pid == ancestor) return true;
  }
  return false;
}

}  // namespace gpumem::cli
