#include "daemon/core/memory/use_proofs.h"

#include <gtest/gtest.h>

namespace gpumem::core {
namespace {

// Extents of 64 MiB that were lent, and other memory of the device.
struct UseProofsTest : testing::Test {
  UseProofsTest() {
    for (int i = 0; i < 4; ++i) proofs.note_created(kSize);
  }
  // The broker destroys the lease's extent. True: it is proved free.
  bool destroy(LeaseId lease, bool is_kept) {
    proofs.begin(used);
    proofs.note_destroyed(kSize);
    if (!is_kept) used -= kSize;
    return proofs.end({lease, kSize, true}, true, used);
  }
  bool retry(LeaseId lease) {
    proofs.begin(used);
    return proofs.end({lease, kSize, true}, false, used);
  }

  static constexpr Bytes kSize = mebibytes(64);
  static constexpr LeaseId kFirst{1}, kSecond{2};
  Bytes used = mebibytes(1000);
  UseProofs proofs;
};

TEST_F(UseProofsTest, ProvesWhatTheDriverHasGotBack) {
  EXPECT_TRUE(destroy(kFirst, false));
  EXPECT_FALSE(destroy(kSecond, true));
  EXPECT_FALSE(retry(kSecond));
  used -= kSize;
  EXPECT_TRUE(retry(kSecond));
}

TEST_F(UseProofsTest, ProvesNoTwoByOneFall) {
  EXPECT_FALSE(destroy(kFirst, true));
  EXPECT_FALSE(destroy(kSecond, true));
  used -= kSize;
  const bool is_first = retry(kFirst);
  EXPECT_NE(retry(kSecond), is_first) << "which of them cannot be told";
  const LeaseId other = is_first ? kSecond : kFirst;
  EXPECT_FALSE(retry(other));
  used -= kSize;
  EXPECT_TRUE(retry(other));
}

TEST_F(UseProofsTest, TakesNoMemoryOfOthersThatIsTakenInBetweenForTheLeases) {
  EXPECT_FALSE(destroy(kFirst, true));
  used += kSize;  // taken by others
  EXPECT_FALSE(retry(kFirst));
  used -= {kSize.count / 4};
  EXPECT_FALSE(retry(kFirst)) << "less than half";
  used -= kSize;
  EXPECT_TRUE(retry(kFirst));
}

TEST_F(UseProofsTest, ProvesByAFallThatIsSeenInParts) {
  EXPECT_FALSE(destroy(kFirst, true));
  used -= {kSize.count / 4};
  EXPECT_FALSE(retry(kFirst));
  used -= {kSize.count / 4};
  EXPECT_TRUE(retry(kFirst));
}

TEST_F(UseProofsTest, ProvesByAFallThatAnotherLeaseHasHidden) {
  EXPECT_FALSE(destroy(kFirst, true));
  used -= kSize;
  EXPECT_FALSE(destroy(kSecond, true)) << "its extent counts as others' memory from now on";
  EXPECT_TRUE(retry(kFirst));
  EXPECT_FALSE(retry(kSecond));
  used -= kSize;
  EXPECT_TRUE(retry(kSecond));
}

TEST_F(UseProofsTest, ProvesByAFallFromWhereOthersHadRaisedTheFigure) {
  EXPECT_FALSE(destroy(kFirst, true));
  EXPECT_FALSE(destroy(kSecond, true));
  used -= kSize;
  EXPECT_TRUE(retry(kSecond)) << "it was given back last";
  EXPECT_FALSE(retry(kFirst));
  used -= kSize;
  EXPECT_TRUE(retry(kFirst));
}

TEST_F(UseProofsTest, WaitsWhereTheDriverDoesNotTell) {
  EXPECT_FALSE(destroy(kFirst, true));
  used -= kSize;
  proofs.begin({});
  EXPECT_FALSE(proofs.end({kFirst, kSize, true}, false, {}));
  EXPECT_TRUE(retry(kFirst));
}

TEST_F(UseProofsTest, WaitsForAllThatWasDestroyedWhileTheDriverDidNotTell) {
  proofs.begin(used);
  for (const LeaseId lease : {kFirst, kSecond}) {
    proofs.begin({});
    proofs.note_destroyed(kSize);
    EXPECT_FALSE(proofs.end({lease, kSize, true}, true, {}));
    used -= kSize;
  }
  EXPECT_TRUE(retry(kFirst));
  EXPECT_TRUE(retry(kSecond));
}

TEST_F(UseProofsTest, GoesOnWithProofsByCreationThatFailed) {
  proofs.note_outcome({kFirst, kSize, false}, false, used);
  EXPECT_FALSE(retry(kFirst));
  used -= kSize;
  EXPECT_TRUE(retry(kFirst));
}

}  // namespace
}  // namespace gpumem::core
