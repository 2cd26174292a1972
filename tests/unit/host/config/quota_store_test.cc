// Stored quotas are whole, whatever fails and whenever the broker dies.
#include "daemon/host/config/quota_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using test::read_file;
using test::write_file;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kNow = "2030-01-02T12:00:00Z";

struct QuotasKept : testing::Test {
  Result<QuotaStore> open() { return QuotaStore::open(state_, kNow); }
  static QuotaOverlay next(const QuotaStore& store, const std::string& tenant = "ann") {
    QuotaOverlay overlay = store.current();
    ++overlay.revision;
    overlay.changed = kNow;
    overlay.tenants[tenant].everywhere.limit = Amount::absolute(gibibytes(1));
    return overlay;
  }
  static AuditLog::Entry entry(const QuotaOverlay& overlay) {
    AuditLog::Entry entry{kNow, {.pid = 7, .uid = 42, .gids = {}, .command = "g\"u\xff"}, {}, {}};
    entry.change.tenant = "ann";
    entry.outcome.revision = overlay.revision;
    entry.outcome.before = {{"ann", "", "GPU-a", {{}, gibibytes(4)}, false}};
    entry.outcome.after = {{"ann", "", "GPU-a", {{}, gibibytes(1)}, true}};
    return entry;
  }
  static Result<void> prepare(QuotaStore& store) {
    QuotaOverlay overlay = next(store);
    const AuditLog::Entry told = entry(overlay);
    return store.prepare(std::move(overlay), told);
  }
  static void change(QuotaStore& store) {
    auto prepared = prepare(store);
    ASSERT_TRUE(prepared) << prepared.error().message;
    auto committed = store.commit();
    ASSERT_TRUE(committed) << committed.error().message;
  }
  std::vector<Json> audit() const {
    std::vector<Json> lines;
    std::istringstream text(read_file(state_ / "audit.log"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  bool left_over() const { return std::filesystem::exists(state_ / "quotas.toml.new"); }

  test::TemporaryFolder folder_;
  const std::filesystem::path state_ = folder_ / "deep" / "state";
};

TEST_F(QuotasKept, AreNoneInANewFolder) {
  auto store = open();
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->current(), QuotaOverlay{});
  EXPECT_TRUE(std::filesystem::is_directory(state_));
}

TEST_F(QuotasKept, SurviveTheBroker) {
  QuotaOverlay kept;
  {
    auto store = open();
    ASSERT_TRUE(store);
    change(*store);
    change(*store);
    kept = store->current();
    EXPECT_EQ(kept.revision, 2U);
  }
  auto store = open();
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->current(), kept);
  EXPECT_FALSE(left_over());
}

TEST_F(QuotasKept, AreRecordedInTheAuditLog) {
  auto store = open();
  ASSERT_TRUE(store);
  change(*store);
  ASSERT_EQ(audit().size(), 1U);
  const Json line = audit()[0];
  EXPECT_EQ(line["time"], kNow);
  EXPECT_EQ(line["uid"], 42);
  EXPECT_EQ(line["pid"], 7);
  EXPECT_EQ(line["command"], "g\"u\uFFFD") << "a command's name need not be UTF-8";
  EXPECT_EQ(line["revision"], 1);
  EXPECT_EQ(line["tenant"], "ann");
  EXPECT_EQ(line["before"][0]["limit"], gibibytes(4).count);
  EXPECT_EQ(line["after"][0]["limit"], gibibytes(1).count);
  EXPECT_EQ(line["after"][0]["set"], true);
}

TEST_F(QuotasKept, AreAsBeforeWhenAChangeIsDropped) {
  auto store = open();
  ASSERT_TRUE(store);
  change(*store);
  const std::string before = read_file(state_ / "quotas.toml");
  ASSERT_TRUE(prepare(*store));
  EXPECT_TRUE(left_over());
  EXPECT_EQ(read_file(state_ / "quotas.toml"), before);
  store->discard(kNow, "does not fit");
  EXPECT_FALSE(left_over());
  EXPECT_EQ(store->current().revision, 1U);
  EXPECT_EQ(read_file(state_ / "quotas.toml"), before);
  ASSERT_EQ(audit().size(), 3U);
  EXPECT_EQ(audit()[2]["revision"], 2);
  EXPECT_EQ(audit()[2]["withdrawn"], "does not fit");
}

TEST_F(QuotasKept, AreThoseInForceIfTheBrokerDiesBeforeAChangeIs) {
  {
    auto store = open();
    ASSERT_TRUE(store);
    change(*store);
    ASSERT_TRUE(prepare(*store));
  }  // neither committed nor discarded
  EXPECT_TRUE(left_over());
  auto store = open();
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->current().revision, 1U);
  EXPECT_FALSE(left_over());
  ASSERT_EQ(audit().size(), 3U) << "what the log told too early is taken back";
  EXPECT_EQ(audit()[2]["revision"], 2);
  EXPECT_TRUE(audit()[2].contains("withdrawn"));
  store = Error{};
  ASSERT_TRUE(open());
  EXPECT_EQ(audit().size(), 3U) << "once";
}

TEST_F(QuotasKept, DoNotMindALeftOverThatIsHalfWritten) {
  std::filesystem::create_directories(state_);
  write_file(state_ / "quotas.toml.new", "revision = 7\n[[ten");
  auto store = open();
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->current(), QuotaOverlay{});
  EXPECT_FALSE(left_over());
}

TEST_F(QuotasKept, DoNotMindAnAuditLogThatWasCutOff) {
  std::filesystem::create_directories(state_);
  write_file(state_ / "audit.log", "{\"revision\":1}\n{\"revi");
  write_file(state_ / "quotas.toml", "revision = 1\n");
  auto store = open();
  ASSERT_TRUE(store) << store.error().message;
  change(*store);
  const std::string text = read_file(state_ / "audit.log");
  EXPECT_THAT(text, HasSubstr("{\"revi\n{\"time\"")) << "the next line is one of its own";
}

TEST_F(QuotasKept, TakeBackAChangeWithATruncatedLine) {
  std::filesystem::create_directories(state_);
  write_file(state_ / "audit.log", "{\"revision\":2}");
  write_file(state_ / "quotas.toml", "revision = 1\n");
  for (int broker = 0; broker < 2; ++broker) {
    ASSERT_TRUE(open());
    ASSERT_EQ(audit().size(), 2U) << "at the first start, and once";
    EXPECT_TRUE(audit()[1].contains("withdrawn"));
  }
}

TEST_F(QuotasKept, ThatAreBrokenAreNotTakenForNone) {
  std::filesystem::create_directories(state_);
  for (const char* text :
       {"", "revision = 1\n[[ten", "revision = 1\n[[tenant]]\nname = \"a\"\nlimit = \"lots\"\n"}) {
    write_file(state_ / "quotas.toml", text);
    auto store = open();
    ASSERT_FALSE(store) << text;
    EXPECT_EQ(store.error().code, Code::kInvalidArgument);
    EXPECT_THAT(store.error().message, HasSubstr((state_ / "quotas.toml").string() + ":"));
    EXPECT_THAT(store.error().message, HasSubstr("mend the file, or move it away"));
    EXPECT_EQ(read_file(state_ / "quotas.toml"), text) << "and it is left alone";
  }
}

TEST_F(QuotasKept, ThatCannotBeReadAreNotTakenForNone) {
  std::filesystem::create_directories(state_ /
                                      "quotas.toml");  // root may read every file, but no folder as one
  auto store = open();
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message, HasSubstr("quotas.toml"));
}

TEST_F(QuotasKept, BelongToOneBroker) {
  auto first = open();
  ASSERT_TRUE(first);
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(second.error().message, HasSubstr("--state-dir"));
}

TEST_F(QuotasKept, CannotBeWhereSomethingElseIs) {
  std::filesystem::create_directories(state_.parent_path());
  write_file(state_, "precious");
  auto store = open();
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message, HasSubstr("something else is there; choose another --state-dir"));
  EXPECT_EQ(read_file(state_), "precious");
}

// /proc takes no files from anybody, root included.
TEST_F(QuotasKept, CanBeReadWhereNothingCanBeWritten) {
  auto store = QuotaStore::open("/proc/gpumem-state", kNow);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->current(), QuotaOverlay{});
  auto prepared = prepare(*store);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(prepared.error().message, HasSubstr("/proc/gpumem-state"));
}

// No file of this process may become longer than that, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(QuotasKept, StayWhenTheDiskIsFull) {
  auto store = open();
  ASSERT_TRUE(store);
  change(*store);
  const std::string quotas = read_file(state_ / "quotas.toml");
  const std::string log = read_file(state_ / "audit.log");
  // Not even the file; the file but not the log; the log but only half of its line.
  for (const std::size_t size : {std::size_t{10}, log.size(), log.size() + 10}) {
    Result<void> prepared;
    {
      const FileSizeLimit limit(size);
      prepared = prepare(*store);
    }
    ASSERT_FALSE(prepared) << size;
    EXPECT_EQ(prepared.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(prepared.error().message, HasSubstr("the old ones stay in force"));
    EXPECT_FALSE(left_over());
    EXPECT_EQ(read_file(state_ / "quotas.toml"), quotas);
    EXPECT_EQ(read_file(state_ / "audit.log"), log) << size;
    EXPECT_EQ(store->current().revision, 1U);
  }
  change(*store);
  EXPECT_EQ(store->current().revision, 2U);
}

TEST_F(QuotasKept, StayWhenTheNewOnesCannotTakeTheirPlace) {
  auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(prepare(*store));
  std::filesystem::create_directories(state_ / "quotas.toml");  // a folder is not replaced by a file
  auto committed = store->commit();
  ASSERT_FALSE(committed);
  EXPECT_EQ(committed.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(store->current().revision, 0U);
  store->discard(kNow, committed.error().message);
  EXPECT_FALSE(left_over());
  EXPECT_TRUE(audit().back().contains("withdrawn"));
}

}  // namespace
}  // namespace gpumem::host
