#include "daemon/kubernetes/http/http_exchange.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

TEST(EndpointTest, IsReadFromAUrl) {
  const auto plain = parse_endpoint("https://kubernetes.default.svc");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->authority(), "kubernetes.default.svc:443");
  const auto whole = parse_endpoint("https://[fd00::1]:6443/k8s/clusters/c-1/");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->host, "fd00::1");
  EXPECT_EQ(whole->authority(), "[fd00::1]:6443");
  EXPECT_EQ(whole->prefix, "/k8s/clusters/c-1");
}

TEST(EndpointTest, WithoutTlsOnlyLoopbackIsTaken) {
  EXPECT_TRUE(parse_endpoint("http://127.0.0.1:8080"));
  EXPECT_TRUE(parse_endpoint("http://[::1]:8080"));
  for (const char* url :
       {"http://10.0.0.1:8080", "http://localhost.example.org", "http://127.0.0.1.example.org"})
    EXPECT_FALSE(parse_endpoint(url)) << url;
}

TEST(EndpointTest, OthersAreRefused) {
  for (const char* url : {"", "kubernetes:443", "https://", "https://host:", "https://host:port",
                          "ftp://host", "https://user@host", "https://[::1"})
    EXPECT_FALSE(parse_endpoint(url)) << url;
}

}  // namespace
}  // namespace gpumem::kubernetes
