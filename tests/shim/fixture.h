#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpumem::shim::test {

/// One opened library. The test fails if it cannot be opened or does not have a function that is asked for.
class Opened {
 public:
  explicit Opened(const std::filesystem::path& file);
  /// Null if there is none.
  void* find(const char* name) const;
  /// CALL("cuInit") as a function of type F, which is there.
  template <class F>
  F* get(const char* name) const {
    void* const address = find(name);
    EXPECT_NE(address, nullptr) << name;
    return reinterpret_cast<F*>(address);
  }
  void close() const;

 private:
  void* handle_;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The folder of the built shim, and a copy of one of its files in another place.
std::filesystem::path shim_folder();
void copy_shim(const std::string& file, const std::filesystem::path& folder);

/// A simulated machine of one device of 64 MiB. The test's own process opens neither driver nor shim.
class ShimTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// With this a program goes on where there is no broker, and looks for none of this machine's.
  Environment without_broker() const;
  /// Runs `body` in a process of its own, without a broker, whose driver is the simulated one in
  /// LD_LIBRARY_PATH.
  void in_process(const std::function<void()>& body) const;
  /// As in_process(), with the shim and the driver itself opened.
  void with_both(const std::function<void(const Opened& shim, const Opened& driver)>& body) const;

  gpumem::test::TemporaryFolder folder_;
  std::filesystem::path machine_;
};

/// The file that the function at `address` lies in.
std::filesystem::path file_of(const void* address);

}  // namespace gpumem::shim::test
