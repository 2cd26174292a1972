// Regions go to files and come back: `gpumem regions save`, `restore`.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/integration/region_commands.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHead = 88, kSizeAt = 8, kLayoutAt = 16, kDigestAt = 24;

struct SavedRegions : RegionCommands {
  /// A kept region of `content`, saved as `weights.region`.
  std::string saved(const std::string& content) {
    const Outcome kept = gpumem({"publish", file("plain", content), "--name", "weights", "--keep"});
    EXPECT_EQ(kept.status, 0) << kept.output;
    const std::string path = (files_ / "weights.region").string();
    const Outcome outcome = gpumem({"regions", "save", "weights", path});
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return path;
  }
  Outcome restore(const std::string& path, const std::string& name, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"regions", "restore", path, name});
    return gpumem(std::move(more));
  }
  void remove(const std::string& name) { EXPECT_EQ(gpumem({"regions", "rm", name}).status, 0) << name; }
  /// Names of what is in the test's folder.
  std::vector<std::string> there() const {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(files_.path()))
      names.push_back(one.path().filename().string());
    return names;
  }
};

TEST_F(SavedRegions, ComeBackAsTheyWere) {
  const std::string content = some_content(), path = saved(content);
  remove("weights");
  const Outcome restored = restore(path, "again", {"--keep", "--linger", "1h", "--sharing", "public"});
  ASSERT_EQ(restored.status, 0) << restored.output;
  EXPECT_THAT(restored.output, HasSubstr("published 'again'"));
  const Json region = regions().at(0);
  EXPECT_EQ(region["bytes"], content.size());
  EXPECT_EQ(region["sharing"], "public");
  EXPECT_EQ(region["linger_ms"], 3'600'000);
  EXPECT_EQ(gpumem({"cat", "again"}).output, content);
  const std::string copy = (files_ / "copy").string();
  const Outcome again = gpumem({"regions", "save", "again", copy, "--json"});
  EXPECT_EQ(Json::parse(again.output, nullptr, false)["bytes"], content.size()) << again.output;
  EXPECT_EQ(read_file(copy), read_file(path));
  EXPECT_THAT(there(), testing::UnorderedElementsAre("plain", "weights.region", "copy"));
  remove("again");
  expect_rest();
}

TEST_F(SavedRegions, KeepTheirLayoutAndTheirDigest) {
  const std::string path = saved("bytes and a layout");
  std::string text = read_file(path);
  text[kLayoutAt] = 8;
  text[kDigestAt] = 'd';
  write_file(path, text);
  const Outcome changed = restore(path, "again");
  EXPECT_EQ(changed.status, 1) << "the checksum is of these, too";
  EXPECT_THAT(changed.output, HasSubstr("its content has changed"));
  auto client = client_with(mebibytes(2));
  EXPECT_TRUE(succeeded(client->ask(
      {{"do", "publish"}, {"slice", "a"}, {"region", "other"}, {"layout", 5}, {"digest", 0xab}})));
  const std::string other = (files_ / "other.region").string();
  ASSERT_EQ(gpumem({"regions", "save", "other", other}).status, 0);
  remove("other");
  ASSERT_EQ(restore(other, "other", {"--keep"}).status, 0);
  for (const Json& region : regions()) {
    if (region["name"] != "other") continue;
    EXPECT_EQ(region["layout"], 5);
    EXPECT_THAT(region["digest"].get<std::string>(), HasSubstr("ab"));
  }
  remove("other");
  remove("weights");
}

TEST_F(SavedRegions, AreHeldAsThoseThatArePublished) {
  const std::string path = saved("content");
  remove("weights");
  const std::size_t before = regions().size();
  Child holder(gpumem_options({"regions", "restore", path, "held"}));
  ASSERT_TRUE(eventually([&] { return !holder.running() || regions().size() > before; }));
  EXPECT_EQ(gpumem({"cat", "held"}).output, "content");
  EXPECT_EQ(interrupt(holder), 0);
  EXPECT_TRUE(eventually([&] { return regions().empty(); }));
  EXPECT_EQ(restore(path, "brief", {"--life", "1ms"}).status, 0);
  expect_rest();
}

TEST_F(SavedRegions, AVersionIsSavedByItsNumber) {
  ASSERT_EQ(gpumem({"publish", file("one", "first"), "--name", "weights", "--keep"}).status, 0);
  const std::string older = std::to_string(regions().at(0)["version"].get<std::uint64_t>());
  ASSERT_EQ(gpumem({"publish", file("two", "second"), "--name", "weights", "--keep"}).status, 0);
  const std::string path = (files_ / "old").string();
  ASSERT_EQ(gpumem({"regions", "save", "weights", path, "--version", older}).status, 0);
  EXPECT_THAT(read_file(path), testing::EndsWith("first"));
  remove("weights");
  remove("weights");
}

TEST_F(SavedRegions, AreRefusedIfTheyAreNotWhatWasSaved) {
  const std::string path = saved("some content"), text = read_file(path);
  ASSERT_EQ(text.size(), kHead + 12);
  const auto changed = [&](std::size_t at) {
    std::string other = text;
    other[at] = static_cast<char>(other[at] ^ 1);
    return other;
  };
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "is no saved region"},
      {text.substr(0, kHead - 1), "is no saved region"},
      {changed(0), "is no saved region"},
      {text.substr(0, text.size() - 1), "it is truncated"},
      {text + "x", "13 bytes of a region of 12"},
      {changed(kSizeAt), "bytes of a region of 13"},
      {changed(kLayoutAt + 7), "it has a layout of"},
      {changed(kDigestAt), "its content has changed"},
      {changed(kHead - 1), "its content has changed"},
      {changed(text.size() - 1), "its content has changed"},
  };
  for (const auto& [content, why] : wrong) {
    write_file(path, content);
    const Outcome outcome = restore(path, "wrong", {"--keep"});
    EXPECT_EQ(outcome.status, 1) << why;
    EXPECT_THAT(outcome.output, HasSubstr(path + ": it"));
    EXPECT_THAT(outcome.output, HasSubstr(why));
  }
  EXPECT_THAT(restore("/nowhere", "wrong").output, HasSubstr("cannot read /nowhere"));
  EXPECT_THAT(restore(files_.path().string(), "wrong").output, HasSubstr("is not a regular file"));
  EXPECT_EQ(restore(path, "").status, 1);
  EXPECT_EQ(restore(path, "wrong", {"--owner", "somebody"}).status, 2);
  EXPECT_EQ(regions().size(), 1U) << "the one that was saved";
  remove("weights");
  expect_rest();
}

TEST_F(SavedRegions, AFileThatIsThereIsReplacedOnlyIfOneSaysSo) {
  const std::string path = saved("content"), before = read_file(path);
  write_file(path, "mine");
  const Outcome refused = gpumem({"regions", "save", "weights", path});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("is there already"));
  EXPECT_THAT(refused.output, HasSubstr("--force"));
  EXPECT_EQ(read_file(path), "mine");
  EXPECT_EQ(gpumem({"regions", "save", "weights", path, "--force"}).status, 0);
  EXPECT_EQ(read_file(path), before);
  EXPECT_THAT(gpumem({"regions", "save", "weights", files_.path().string(), "--force"}).output,
              HasSubstr("is not a regular file"));
  EXPECT_THAT(gpumem({"regions", "save", "weights", "/nowhere/file"}).output, HasSubstr("/nowhere"));
  const Outcome missing = gpumem({"regions", "save", "nothing", (files_ / "x").string()});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("there is no region 'nothing'"));
  EXPECT_THAT(missing.output, HasSubstr("gpumem regions"));
  EXPECT_THAT(there(), testing::UnorderedElementsAre("plain", "weights.region"));
  remove("weights");
}

TEST_F(SavedRegions, AFileThatBecomesTooLargeIsNotThere) {
  saved(some_content());
  const std::string file = (files_ / "full").string();
  const std::string command =
      "ulimit -f 100 && exec " + cli_program().string() + " regions save weights " + file;
  const Outcome outcome = run({.program = "/bin/sh",
                               .arguments = {"-c", command},
                               .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}}});
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("cannot write " + file));
  EXPECT_THAT(outcome.output, HasSubstr("make room"));
  EXPECT_THAT(there(), testing::UnorderedElementsAre("plain", "weights.region"));
  remove("weights");
}

// The mount is the shell's own, and ends with it.
TEST_F(SavedRegions, AFullDiskLeavesNothingOfAFile) {
  GPUMEM_NEEDS_ROOT();
  saved(some_content());
  std::filesystem::create_directory(files_ / "disk");
  const std::string disk = (files_ / "disk").string();
  const std::string command = "mount -t tmpfs -o size=8m none " + disk + " && echo mine > " + disk +
                              "/file && ! " + cli_program().string() + " regions save weights " + disk +
                              "/file --force && cat " + disk + "/file && ls -A " + disk + " | wc -l";
  const Outcome outcome = run({.program = "/usr/bin/unshare",
                               .arguments = {"--mount", "/bin/sh", "-c", command},
                               .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}}});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("No space left on device"));
  EXPECT_THAT(outcome.output, testing::EndsWith("mine\n1\n")) << "the old one, and nothing else";
  remove("weights");
}

// ---- Several tenants ----

struct SavedRegionsOfTenants : SavedRegions {
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SavedRegionsOfTenants, AReaderSavesWhatItMayMapAndNothingElse) {
  const User owner = test_user(10'001), reader = test_user(10'002);
  std::filesystem::permissions(files_.path(), std::filesystem::perms::all);
  auto open = publish({file("open", "for all"), "--sharing", "public"}, owner);
  auto secret = publish({file("secret", "mine")}, owner);
  const std::string path = (files_ / "copy").string();
  ASSERT_EQ(gpumem({"regions", "save", "open", path, "--owner", "uid:10001"}, reader).status, 0);
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
      << "it may be nobody else's";
  const std::string other = (files_ / "other").string();
  const Outcome refused = gpumem({"regions", "save", "secret", other, "--owner", "uid:10001"}, reader);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("there is no region 'secret'"));
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_EQ(interrupt(*open), 0);
  EXPECT_EQ(interrupt(*secret), 0);
}

}  // namespace
}  // namespace gpumem::test
