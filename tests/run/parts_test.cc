// The parsers of the command lines of `gpumem run` and `gpumem reserve`.
#include <gtest/gtest.h>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/program/pressure_hook.h"

namespace gpumem::test {
namespace {

TEST(Urls, AreTakenApart) {
  const auto plain = cli::parse_url("http://host");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->host + " " + plain->port + " " + plain->path, "host 80 /");
  const auto whole = cli::parse_url("http://127.0.0.1:8080/let/go?of=memory");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->host + " " + whole->port + " " + whole->path, "127.0.0.1 8080 /let/go?of=memory");
  const auto six = cli::parse_url("http://[::1]:81/x");
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->host + " " + six->port + " " + six->path, "::1 81 /x");
  for (const char* wrong :
       {"https://host/", "http://", "http:///x", "http://host:/", "http://host/a b", "host", "http://[::1",
        "http://[::1/x", "http://::1]/", "http://host:0/", "http://host:65536/", "http://host:port/"})
    EXPECT_FALSE(cli::parse_url(wrong).has_value()) << wrong;
}

TEST(Devices, AreMeantByPlaceOrByTheBeginningOfTheirName) {
  v1::GetStatusResponse status;
  status.add_devices()->set_uuid("GPU-aa11");
  status.add_devices()->set_uuid("GPU-aa22");
  for (const char* second : {"1", "gpu1"})
    EXPECT_EQ(cli::find_device(status, second).value_or(""), "GPU-aa22");
  EXPECT_EQ(cli::find_device(status, "GPU-aa1").value_or(""), "GPU-aa11");
  for (const char* wrong : {"2", "-1", "GPU-aa", "GPU-bb", ""})
    EXPECT_FALSE(cli::find_device(status, wrong).has_value()) << wrong;
  EXPECT_EQ(cli::first_visible(status, "").value_or(""), "GPU-aa11");
  EXPECT_EQ(cli::first_visible(status, "GPU-other,GPU-aa22").value_or(""), "GPU-aa22");
}

}  // namespace
}  // namespace gpumem::test
