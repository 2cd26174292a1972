#include "daemon/kubernetes/claims/claim.h"

#include <gtest/gtest.h>

#include "tests/unit/kubernetes/claim_objects.h"

namespace gpumem::kubernetes::test {
namespace {

const ClaimReference kAsked{.space = "team", .name = "train", .uid = "the-uid"};

Json claim_with(const Json& configs) {
  Json claim = claim_object("train", "the-uid", "gpu-a", "8Gi");
  claim["status"]["allocation"]["devices"]["config"] = configs;
  return claim;
}

std::string refusal_of(const Json& claim) {
  const auto read = read_claim(claim, kAsked, "gpumem.dev");
  return read ? "" : read.error().message;
}

TEST(ClaimTest, WithoutParametersTheLimitIsTheGuarantee) {
  const auto read = read_claim(claim_with(Json::array()), kAsked, "gpumem.dev");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->shares.size(), 1u);
  EXPECT_EQ(read->shares[0].guarantee, gibibytes(8));
  EXPECT_EQ(read->shares[0].limit, gibibytes(8));
  EXPECT_FALSE(read->standalone);
}

TEST(ClaimTest, TheClaimsParametersGoBeforeItsClasss) {
  const auto read =
      read_claim(claim_with(Json::array({opaque_config("gpumem.dev", limit_parameters("9Gi")),
                                         opaque_config("gpumem.dev", limit_parameters("unlimited"))})),
                 kAsked, "gpumem.dev");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->shares[0].limit, kUnlimited);
}

TEST(ClaimTest, ParametersOfOtherDriversAndRequestsArePassedOver) {
  Json other_request = opaque_config("gpumem.dev", {{"nonsense", 1}});
  other_request["requests"] = {"another"};
  EXPECT_EQ(refusal_of(claim_with(
                Json::array({opaque_config("gpu.nvidia.com", {{"kind", "GpuConfig"}}), other_request}))),
            "");
}

TEST(ClaimTest, AnAlternativesParametersAreThoseOfItsRequest) {
  Json config = opaque_config("gpumem.dev", limit_parameters("16Gi"));
  config["requests"] = {"gpu"};
  Json claim = claim_with(Json::array({config}));
  claim["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/large";
  const auto read = read_claim(claim, kAsked, "gpumem.dev");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->shares[0].limit, gibibytes(16));
}

TEST(ClaimTest, WrongParametersAreNamed) {
  Json unknown = limit_parameters("9Gi");
  unknown["guarantee"] = "1Gi";
  EXPECT_NE(refusal_of(claim_with(Json::array({opaque_config("gpumem.dev", unknown)})))
                .find("unknown field \"guarantee\""),
            std::string::npos);
  EXPECT_NE(
      refusal_of(claim_with(Json::array({opaque_config("gpumem.dev", limit_parameters(Json::array()))})))
          .find("limit has to be"),
      std::string::npos);
  EXPECT_NE(refusal_of(claim_with(Json::array({opaque_config("gpumem.dev", limit_parameters("1Gi"))})))
                .find("the limit of 1Gi is below the 8Gi"),
            std::string::npos);
  EXPECT_NE(refusal_of(claim_with(Json::array({opaque_config("gpumem.dev", {{"kind", "SliceParameters"}})})))
                .find("apiVersion has to be"),
            std::string::npos);
}

TEST(ClaimTest, ResultsOfOtherDriversAreNotOurs) {
  Json claim = claim_with(Json::array());
  Json other = claim["status"]["allocation"]["devices"]["results"][0];
  other["driver"] = "gpu.nvidia.com";
  claim["status"]["allocation"]["devices"]["results"].push_back(other);
  ASSERT_EQ(read_claim(claim, kAsked, "gpumem.dev")->shares.size(), 1u);
  claim["status"]["allocation"]["devices"]["results"].erase(0);
  EXPECT_EQ(refusal_of(claim), "nothing of the driver gpumem.dev is allocated to it");
}

TEST(ClaimTest, ReasonsForNotPreparingAreNamed) {
  Json claim = claim_with(Json::array());
  claim["metadata"]["uid"] = "another";
  EXPECT_NE(refusal_of(claim).find("it was deleted and made anew"), std::string::npos);
  claim = claim_with(Json::array());
  claim["status"].erase("reservedFor");
  EXPECT_EQ(refusal_of(claim), "it is reserved for no pod");
  claim = claim_with(Json::array());
  claim["status"].erase("allocation");
  EXPECT_NE(refusal_of(claim).find("it has no allocation"), std::string::npos);
  claim = claim_with(Json::array());
  claim["status"]["allocation"]["devices"]["results"][0].erase("consumedCapacity");
  EXPECT_NE(refusal_of(claim).find("DRAConsumableCapacity"), std::string::npos);
  claim = claim_with(Json::array());
  claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true;
  EXPECT_NE(refusal_of(claim).find("admin access"), std::string::npos);
}

TEST(ClaimTest, OfAnyShapeIsRefusedNotCrashedOn) {
  for (const char* text :
       {"null", "[]", "3", R"({"metadata": [], "status": 1})", R"({"metadata": {"uid": "the-uid"}})",
        R"({"metadata": {"uid": "the-uid"}, "status": {"allocation": {"devices": {"results": 3}}}})"})
    EXPECT_NE(refusal_of(Json::parse(text)), "") << text;
}

}  // namespace
}  // namespace gpumem::kubernetes::test
