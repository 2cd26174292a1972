#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/stepped_program.h"

namespace gpumem::shim_programs {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// How a program comes by the drop-in driver.
enum class Way { kPath, kPreload };

/// A broker, and programs that know nothing of it: program.cc with the drop-in driver in the driver's place.
/// The device has 24 GiB, all but 1 GiB of which are lent.
class ShimPrograms : public testing::Test {
 protected:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  static constexpr std::uint64_t kPool = 23 * kGiB;

  explicit ShimPrograms(gpumem::test::BrokerOptions options = of_machine("1x24GiB", "all-but 1GiB"))
      : broker_(std::move(options)) {}
  static gpumem::test::BrokerOptions of_machine(const std::string& machine, const std::string& reserve) {
    return {.simulate = machine, .config = "[broker]\nreserve = \"" + reserve + "\"\n"};
  }

  /// Words of the command line; the first names the task.
  using Words = std::vector<std::string>;
  gpumem::test::SteppedProgram program(Words words, const Environment& more = {},
                                       Way way = Way::kPath) const {
    return gpumem::test::SteppedProgram(options_of(std::move(words), more, way));
  }
  gpumem::test::ChildOptions options_of(Words words, const Environment& more, Way way) const;
  /// Runs it to its end, which must be a success; what it said.
  std::string expect(Words words, const Environment& more = {}, Way way = Way::kPath) const;

  /// The broker's folder as seen from the working directory, for a program's environment.
  Environment relative_folder() const {
    return {{"GPUMEM_RUNTIME_DIR", std::filesystem::relative(broker_.folder())}};
  }
  std::uint64_t charged() const { return broker_.device().pool() - broker_.device().free(); }
  /// Whether the broker comes to have lent nothing.
  testing::AssertionResult comes_to_rest() const;

  gpumem::test::BrokerProcess broker_;
};

/// Runs each program in both ways.
class BothWays : public ShimPrograms, public testing::WithParamInterface<Way> {
 protected:
  using ShimPrograms::ShimPrograms;
  void runs(const std::string& task, const Environment& more = {}) {
    const std::string said = expect({task}, more, GetParam());
    EXPECT_EQ(said, "") << "nothing to complain of";
    EXPECT_TRUE(comes_to_rest());
  }
};
inline std::string name_of_way(const testing::TestParamInfo<Way>& way) {
  return way.param == Way::kPath ? "ByLibraryPath" : "ByPreload";
}

}  // namespace gpumem::shim_programs
