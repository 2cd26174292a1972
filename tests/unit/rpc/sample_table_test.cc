#include "daemon/rpc/watch/sample_table.h"

#include <gtest/gtest.h>

namespace gpumem::rpc {
namespace {

v1::SessionInfo session(std::uint64_t id, std::string label = "", std::string since = "now") {
  v1::SessionInfo info;
  info.set_id(id);
  info.set_label(std::move(label));
  info.set_since(std::move(since));
  return info;
}

v1::Sample merged(const SampleTable::Messages& messages) {
  v1::Sample all;
  for (const std::string& message : messages) EXPECT_TRUE(all.MergeFromString(message));
  return all;
}

struct SampleTableTest : testing::Test {
  v1::Sample sample(const std::vector<v1::SessionInfo>& sessions) {
    table.begin();
    for (const v1::SessionInfo& one : sessions) table.put(one);
    return merged(table.end());
  }
  SampleTable table;
};

TEST_F(SampleTableTest, TellsOnlyWhatHasChanged) {
  EXPECT_EQ(sample({session(1), session(2)}).sessions_size(), 2);
  EXPECT_EQ(sample({session(1), session(2)}).ByteSizeLong(), 0U);
  const v1::Sample changes = sample({session(1), session(2, "other"), session(3)});
  ASSERT_EQ(changes.sessions_size(), 2);
  EXPECT_EQ(changes.sessions(0).label(), "other");
  EXPECT_EQ(changes.sessions(1).id(), 3U);
}

TEST_F(SampleTableTest, TellsOnceWhatIsGone) {
  sample({session(1), session(2)});
  const v1::Sample changes = sample({session(2)});
  EXPECT_EQ(changes.sessions_size(), 0);
  ASSERT_EQ(changes.gone_sessions_size(), 1);
  EXPECT_EQ(changes.gone_sessions(0), 1U);
  EXPECT_EQ(sample({session(2)}).gone_sessions_size(), 0);
}

TEST_F(SampleTableTest, HasAllOfTheLatestSample) {
  sample({session(1), session(2)});
  sample({session(2, "other")});
  const v1::Sample all = merged(table.whole());
  ASSERT_EQ(all.sessions_size(), 1);
  EXPECT_EQ(all.sessions(0).label(), "other");
}

TEST_F(SampleTableTest, KeepsTheBeginningOfASession) {
  sample({session(1, "", "10:00:00")});
  EXPECT_EQ(sample({session(1, "", "10:00:01")}).sessions_size(), 0) << "it is computed anew, and rounded";
}

TEST_F(SampleTableTest, TellsTheBeginningAnewWhenTheClockWasSet) {
  sample({session(1, "", "2030-01-02T10:00:00Z")});
  EXPECT_EQ(sample({session(1, "", "2030-01-02T10:00:01Z")}).sessions_size(), 0);
  const v1::Sample changes = sample({session(1, "", "2030-01-02T11:00:00Z")});
  ASSERT_EQ(changes.sessions_size(), 1);
  EXPECT_EQ(changes.sessions(0).since(), "2030-01-02T11:00:00Z");
}

TEST_F(SampleTableTest, TellsATenantOfEachDeviceByItself) {
  v1::TenantUsage one, other;
  for (v1::TenantUsage* usage : {&one, &other}) usage->set_tenant("ann");
  one.set_device("GPU-0");
  other.set_device("GPU-1");
  const auto put = [&] {
    table.begin();
    table.put(one);
    table.put(other);
    return merged(table.end());
  };
  EXPECT_EQ(put().tenants_size(), 2);
  other.set_charged(1);
  const v1::Sample changes = put();
  ASSERT_EQ(changes.tenants_size(), 1);
  EXPECT_EQ(changes.tenants(0).device(), "GPU-1");
}

TEST_F(SampleTableTest, CutsWhatIsMuchIntoMessages) {
  std::vector<v1::SessionInfo> sessions;
  for (std::uint64_t id = 1; id <= 2'000; ++id) sessions.push_back(session(id, std::string(128, 'x')));
  sample(sessions);
  const SampleTable::Messages messages = table.whole();
  EXPECT_GT(messages.size(), 4U);
  for (const std::string& message : messages) EXPECT_LE(message.size(), SampleTable::kMessageBytes);
  EXPECT_EQ(merged(messages).sessions_size(), 2'000);
}

}  // namespace
}  // namespace gpumem::rpc
