#include "base/system/system_mode.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace gpumem::system_mode {
namespace {

constexpr const char* kStatus =
    "Name:\tpython3\nUmask:\t0022\nUid:\t1234\t1234\t1234\t1234\nGid:\t10\t10\t10\t10\n"
    "Groups:\t10 20\nSeccomp:\t0\nSeccomp_filters:\t0\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}
bool is_left(const Rules& rules, const std::string& status) {
  return rules.leave_to_driver(ProcessFacts::in(status).value());
}

TEST(SystemMode, ServesAnOrdinaryProgram) { EXPECT_FALSE(is_left({}, kStatus)); }

TEST(SystemMode, LeavesTheMachinesOwnUsersToTheDriver) {
  const std::string daemon = with(kStatus, "1234\t1234\t1234\t1234", "999\t999\t999\t999");
  EXPECT_TRUE(is_left({}, daemon));
  EXPECT_FALSE(is_left({.least_uid = 500, .except = {}}, daemon));
}

TEST(SystemMode, LeavesProgramsWithOtherRightsToTheDriver) {
  EXPECT_TRUE(is_left({}, with(kStatus, "Uid:\t1234\t1234", "Uid:\t1234\t2345")));
  EXPECT_TRUE(is_left({}, with(kStatus, "Gid:\t10\t10", "Gid:\t10\t20")));
  EXPECT_TRUE(is_left({}, with(kStatus, "Seccomp:\t0", "Seccomp:\t2")));
}

TEST(SystemMode, LeavesNamedProgramsToTheDriver) {
  EXPECT_TRUE(is_left({.least_uid = 1000, .except = {"Xorg", "python3"}}, kStatus));
  EXPECT_FALSE(is_left({.least_uid = 1000, .except = {"python", "python3.11"}}, kStatus));
  const std::string cut_off = with(kStatus, "python3", "a-program-with-");
  EXPECT_TRUE(is_left({.least_uid = 1000, .except = {"a-program-with-a-long-name"}}, cut_off));
}

TEST(SystemMode, KnowsNothingOfAProcessWithoutAUser) {
  EXPECT_FALSE(ProcessFacts::in(""));
  EXPECT_FALSE(ProcessFacts::in("Name:\tpython3\n"));
  EXPECT_FALSE(ProcessFacts::in("Uid:\tx\ty\n"));
}

TEST(SystemMode, ReadsTheLeastUserOfLoginDefs) {
  EXPECT_EQ(Rules::least_uid_in("# UID_MIN 7\nSYS_UID_MIN 100\nUID_MIN\t\t  500\nUID_MAX 60000"), 500U);
  EXPECT_EQ(Rules::least_uid_in("UID_MIN many\n"), 1000U);
}

TEST(SystemMode, ReadsTheNamesThatTheBrokerPublishes) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(Rules::read(folder.path()).except.empty());
  std::ofstream(folder / kExceptFile) << "Xorg\nWeb Content\n";
  EXPECT_EQ(Rules::read(folder.path()).except, (std::vector<std::string>{"Xorg", "Web Content"}));
}

}  // namespace
}  // namespace gpumem::system_mode
