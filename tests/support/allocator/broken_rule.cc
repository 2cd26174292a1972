#include "tests/support/allocator/broken_rule.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace gpumem::test {
namespace {

std::mutex mutex;
std::string story;

}  // namespace

void set_story(const std::string& text) {
  const std::lock_guard lock(mutex);
  story = text;
}

void broken_rule(const std::string& words) {
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "%s%sbroken: %s\n", story.c_str(), story.empty() ? "" : ": ", words.c_str());
  std::abort();
}

}  // namespace gpumem::test
