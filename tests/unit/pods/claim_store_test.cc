// Stored claims, and damaged files that are refused.
#include "daemon/host/config/claim_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/pods/claims.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;

pods::PreparedClaims some_claims() {
  using namespace pods;
  auto claims = with({}, claim("1", {pod(kAnna, "a"), pod(kBert, "b")},
                               {{"GPU-0", Bytes{1}, Bytes{~std::uint64_t{0}}}, {"GPU-1", {}, mebibytes(2)}}));
  return with(claims, claim("2 \"quoted\"", {pod(kCarl, "c")}));
}

std::string refused(const std::string& text, Code code = Code::kInvalidArgument) {
  auto claims = parse_claims(text, "claims.toml");
  if (claims) {
    ADD_FAILURE() << "taken: " << text;
    return {};
  }
  EXPECT_EQ(claims.error().code, code);
  return claims.error().message;
}

TEST(ClaimsText, LosesNothing) {
  for (const auto& claims : {pods::PreparedClaims(), some_claims()}) {
    const auto read = parse_claims(claims_text(claims), "claims.toml");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, claims);
  }
}

TEST(ClaimsText, ThatIsTruncatedIsRefused) {
  EXPECT_THAT(refused(""), HasSubstr("no 'version'"));
  EXPECT_THAT(refused("version = 1\n[[claim"), HasSubstr("claims.toml:2:"));
  EXPECT_THAT(refused("version = 2\nnew = 1\n", Code::kFailedPrecondition), HasSubstr("of version 2"));
  EXPECT_THAT(refused("version = 1\nwhat = 1\n"), HasSubstr("what"));
  EXPECT_THAT(refused("version = 1\n[[claim]]\nuid = \"1\"\n"), HasSubstr("needs its 'uid' and a pod"));
}

TEST(ClaimsText, WithContradictingTenantsIsRefused) {
  const auto text = [](const std::string& one, const std::string& other, const std::string& uid) {
    return "version = 1\n[[claim]]\nuid = \"1\"\n[[claim.pod]]\nuid = \"a\"\ntenant = \"" + one +
           "\"\n[[claim.pod]]\nuid = \"" + uid + "\"\ntenant = \"" + other + "\"\n";
  };
  EXPECT_TRUE(parse_claims(text("pod x/a", "pod x/a", "b"), "claims.toml"));
  EXPECT_THAT(refused(text("pod x/a", "pod x/b", "b")), HasSubstr("of several tenants"));
  EXPECT_THAT(refused(text("pod x/a", "pod x/b", "a")), HasSubstr("of two tenants"));
  EXPECT_THAT(refused(text("ann", "ann", "b")), HasSubstr("needs its 'uid' and its 'tenant'"));
}

TEST(ClaimsText, WithBadAmountsIsRefused) {
  const auto text = [](const std::string& guarantee) {
    return "version = 1\n[[claim]]\nuid = \"1\"\n[[claim.pod]]\nuid = \"a\"\ntenant = \"pod x/a\"\n"
           "[[claim.amount]]\ndevice = \"GPU-0\"\nguarantee = " +
           guarantee + "\nlimit = \"8\"\n";
  };
  EXPECT_TRUE(parse_claims(text("\"8\""), "claims.toml"));
  EXPECT_THAT(refused(text("\"9\"")), HasSubstr("more than the limit"));
  for (const char* none : {"8", "\"-8\"", "\"8MiB\"", "\"\"", "\"99999999999999999999999\""})
    EXPECT_THAT(refused(text(none)), HasSubstr("number of bytes")) << none;
}

struct ClaimStoreTest : testing::Test {
  ClaimStore open() {
    auto store = ClaimStore::open(folder.path());
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : ClaimStore();
  }
  test::TemporaryFolder folder;
};

TEST_F(ClaimStoreTest, HasNothingToBeginWith) { EXPECT_EQ(open().current(), pods::PreparedClaims()); }

TEST_F(ClaimStoreTest, KeepsACommittedChange) {
  ClaimStore store = open();
  ASSERT_TRUE(store.prepare(some_claims()));
  EXPECT_EQ(store.current(), pods::PreparedClaims()) << "not yet";
  EXPECT_EQ(open().current(), pods::PreparedClaims());
  ASSERT_TRUE(store.commit());
  EXPECT_EQ(store.current(), some_claims());
  EXPECT_EQ(open().current(), some_claims());
}

TEST_F(ClaimStoreTest, ForgetsADiscardedChange) {
  ClaimStore store = open();
  ASSERT_TRUE(store.prepare(some_claims()));
  store.discard();
  EXPECT_EQ(open().current(), pods::PreparedClaims());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(ClaimStoreTest, ThatCannotWriteSaysSoAndKeepsTheOldClaims) {
  ClaimStore store = open();
  std::filesystem::create_directory(folder / "claims.toml.new");  // in the way
  const auto refused = store.prepare(some_claims());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(store.current(), pods::PreparedClaims());
}

TEST_F(ClaimStoreTest, DoesNotTakeABrokenFileForNoClaims) {
  test::write_file(folder / "claims.toml", "version");
  const auto store = ClaimStore::open(folder.path());
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message, HasSubstr("move the file away"));
}

}  // namespace
}  // namespace gpumem::host
