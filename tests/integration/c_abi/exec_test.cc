// Programs that a process with a session starts.
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/system/unique_fd.h"
#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

/// Starts a program that runs until its input ends, in a child of vfork().
pid_t start_by_vfork(const char* const* words, int input) {
  const pid_t child = ::vfork();
  if (child == 0) {
    (void)::dup2(input, STDIN_FILENO);
    ::execv(words[0], const_cast<char* const*>(words));
    ::_exit(127);
  }
  return child;
}

// The parent has the driver open, and memory, and leaves first.
TEST(CExecedChild, OfVforkBorrowsAndDoesNotHoldItsParentsLaneOpen) {
  (void)broker();
  gpumem_session* session = nullptr;
  gpumem_allocator* allocator = nullptr;
  gpumem_address block = 0;
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  options.label = "parent";
  ASSERT_TRUE(ok(gpumem_session_connect(&options, &session)));
  ASSERT_TRUE(ok(gpumem_allocator_open(session, nullptr, &allocator)));
  ASSERT_TRUE(ok(gpumem_allocate(allocator, 1 << 20, nullptr, &block)));
  int gate[2];
  ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
  UniqueFd end(gate[0]);
  UniqueFd held(gate[1]);
  const char* const words[] = {GPUMEM_EXAMPLE_HOLD, "8MiB", nullptr};
  const pid_t child = start_by_vfork(words, end.get());
  ASSERT_GT(child, 0);
  const auto charged_to = [](const std::string& label) -> std::optional<std::uint64_t> {
    std::optional<std::uint64_t> charged;
    for (const v1::SessionInfo& one : broker().sessions()) {
      if (one.label() != label) continue;
      charged = charged.value_or(0);
      for (const auto& slice : one.slices()) *charged += slice.charged();
    }
    return charged;
  };
  EXPECT_TRUE(eventually([&] { return charged_to("hold") == 8U << 20; })) << broker().unrest();
  *memory_at(block) = 1;  // as before
  EXPECT_TRUE(ok(gpumem_deallocate(allocator, block, 1 << 20, nullptr)));
  EXPECT_TRUE(ok(gpumem_allocator_close(allocator)));
  EXPECT_TRUE(ok(gpumem_session_close(session)));
  EXPECT_TRUE(eventually([&] { return !charged_to("parent"); })) << broker().unrest();
  EXPECT_EQ(charged_to("hold"), 8U << 20);
  held.reset();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(eventually([&] { return !charged_to("hold"); })) << broker().unrest();
}

TEST(CExecedChild, WithoutADriverSaysThatThereIsNone) {
  const Outcome outcome = run(
      {.program = GPUMEM_EXAMPLE_HOLD,
       .arguments = {"8MiB"},
       .environment = {{"GPUMEM_RUNTIME_DIR", broker().folder()}, {"GPUMEM_DRIVER_DIR", "/nonexistent"}}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("/nonexistent"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace gpumem::test
