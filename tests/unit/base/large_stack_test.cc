#include "base/large_stack.h"

#include <gtest/gtest.h>
#include <ucontext.h>

#include <array>
#include <stdexcept>

namespace gpumem {
namespace {

std::array<char, 16 << 10> small_stack;
ucontext_t main_program, fibre;
std::size_t written = 0;

void use_much_stack() {
  written = on_large_stack([] {
    std::array<volatile char, 200 << 10> much;  // NOLINT(*-member-init): all of it is written
    for (volatile char& one : much) one = 1;
    return much.size();
  });
}

TEST(LargeStack, HasRoomWhereTheCallersStackHasNot) {
  ASSERT_EQ(::getcontext(&fibre), 0);
  fibre.uc_stack.ss_sp = small_stack.data();
  fibre.uc_stack.ss_size = small_stack.size();
  fibre.uc_link = &main_program;
  ::makecontext(&fibre, use_much_stack, 0);
  ASSERT_EQ(::swapcontext(&main_program, &fibre), 0);
  EXPECT_EQ(written, 200U << 10);
}

TEST(LargeStack, ExceptionPassesOnToTheCaller) {
  EXPECT_THROW(on_large_stack([]() -> int { throw std::runtime_error("refused"); }), std::runtime_error);
  EXPECT_EQ(on_large_stack([] { return on_large_stack([] { return 7; }); }), 7) << "and it can be used again";
}

}  // namespace
}  // namespace gpumem
