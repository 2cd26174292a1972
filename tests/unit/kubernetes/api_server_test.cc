#include "daemon/kubernetes/http/api_server.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/kubernetes/fake_api_server.h"

namespace gpumem::kubernetes::test {
namespace {

class ApiServerTest : public testing::Test {
 protected:
  ApiServerTest() { fake_.put("/thing", {{"is", "there"}}); }

  gpumem::test::TemporaryFolder folder_;
  FakeApiServer fake_{folder_.path()};
};

TEST_F(ApiServerTest, TheTokenIsReadForEachCall) {
  const ApiServer server(fake_.options());
  EXPECT_EQ(server.get("/thing").value()["is"], "there");
  fake_.expect_token("second");
  EXPECT_EQ(server.get("/thing").error().code, Code::kUnauthenticated);
  fake_.write_token("second");
  EXPECT_TRUE(server.get("/thing"));
}

TEST_F(ApiServerTest, AServerOfAnotherAuthorityGetsNoToken) {
  gpumem::test::write_file(folder_ / "ca.crt", make_certificate().certificate);
  const auto answer = ApiServer(fake_.options()).get("/thing");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kPermissionDenied) << answer.error().message;
  EXPECT_NE(answer.error().message.find("self-signed certificate"), std::string::npos)
      << answer.error().message;
  EXPECT_TRUE(fake_.requests().empty());
}

TEST_F(ApiServerTest, AServerOfAnotherNameGetsNoToken) {
  ApiServer::Options options = fake_.options();
  options.endpoint.host = "localhost";  // names this server, whose certificate is for 127.0.0.1
  const auto answer = ApiServer(options).get("/thing", Retry::kNot);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kPermissionDenied);
  EXPECT_NE(answer.error().message.find("(hostname mismatch)"), std::string::npos) << answer.error().message;
  EXPECT_TRUE(fake_.requests().empty());
}

TEST_F(ApiServerTest, PassingFailuresAreTriedAgain) {
  const ApiServer server(fake_.options());
  fake_.fail(503, 2);
  EXPECT_TRUE(server.get("/thing"));
  fake_.fail(429, 1);
  const auto once = server.get("/thing", Retry::kNot);
  ASSERT_FALSE(once);
  EXPECT_EQ(once.error().code, Code::kUnavailable);
}

TEST_F(ApiServerTest, LastingFailuresSayWhatToDo) {
  const ApiServer server(fake_.options());
  fake_.fail(403, 1);
  const auto denied = server.get("/thing");
  ASSERT_FALSE(denied);
  EXPECT_EQ(
      denied.error().message,
      "the API server answers 403 to GET /thing: told to fail; the driver's ClusterRole has to allow it");
  EXPECT_EQ(server.get("/other").error().code, Code::kNotFound);
  EXPECT_TRUE(server.remove("/apis/resource.k8s.io/v1/resourceslices/none"));
}

TEST_F(ApiServerTest, AnswersThatAreNestedToEndTheProcessAreNoJson) {
  Json deep = 1;
  for (int level = 0; level < 200; ++level) deep = Json::array({std::move(deep)});
  fake_.put("/deep", {{"metadata", std::move(deep)}});
  const auto answer = ApiServer(fake_.options()).get("/deep");
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("is no JSON"), std::string::npos) << answer.error().message;
  EXPECT_TRUE(parse_json(std::string(300'000, '[')).is_discarded());
}

TEST_F(ApiServerTest, AStoppedOneIsAskedNothing) {
  ApiServer server(fake_.options());
  server.stop();
  const auto answer = server.get("/thing");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_TRUE(fake_.requests().empty());
}

TEST_F(ApiServerTest, FilesThatAreMissingAreNamed) {
  std::filesystem::remove(folder_ / "token");
  const auto no_token = ApiServer(fake_.options()).get("/thing");
  ASSERT_FALSE(no_token);
  EXPECT_EQ(no_token.error().code, Code::kUnauthenticated);
  EXPECT_NE(no_token.error().message.find((folder_ / "token").string()), std::string::npos);
  fake_.write_token("first");
  std::filesystem::remove(folder_ / "ca.crt");
  const auto no_ca = ApiServer(fake_.options()).get("/thing");
  ASSERT_FALSE(no_ca);
  EXPECT_NE(no_ca.error().message.find((folder_ / "ca.crt").string()), std::string::npos);
}

}  // namespace
}  // namespace gpumem::kubernetes::test
