// The commands for regions: `gpumem regions`, `publish`, `cat`, `verify`.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "tests/integration/regions/region_commands.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const User kPublisher = test_user(10'001), kStranger = test_user(10'002);

TEST_F(RegionCommands, AKeptFileStaysWhenTheProgramHasEnded) {
  const std::string path = file("weights.bin", "content");
  const Outcome wrong = gpumem({"publish", path, "--linger", "1h"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--linger requires --keep"));
  const Outcome no_time = gpumem({"publish", path, "--keep", "--linger", "0s"});
  EXPECT_NE(no_time.status, 0) << "not for ever";
  EXPECT_THAT(no_time.output, HasSubstr("to keep it for ever, leave --linger out"));
  const Outcome no_life = gpumem({"publish", path, "--keep", "--life", "0"});
  EXPECT_EQ(no_life.status, 2) << "not for ever";
  EXPECT_THAT(no_life.output, HasSubstr("--life: 0 would end it at once"));
  EXPECT_EQ(regions().size(), 0U);
  const Outcome published = gpumem({"publish", path, "--keep", "--linger", "1h"});
  ASSERT_EQ(published.status, 0) << published.output;
  EXPECT_THAT(published.output, HasSubstr("after the last process has left"));
  const Json region = regions().at(0);
  EXPECT_EQ(region["kept"], true);
  EXPECT_EQ(region["linger_ms"], 3'600'000);
  EXPECT_FALSE(region["left"].is_null());
  EXPECT_TRUE(region["charged"][0]["pid"].is_null());
  EXPECT_THAT(gpumem({"regions"}).output, HasSubstr("kept"));
  EXPECT_THAT(gpumem({"ps"}).output, HasSubstr("kept"));
  EXPECT_THAT(gpumem({"status"}).output, HasSubstr("1 region of 7B, 1 kept"));
  EXPECT_EQ(Json::parse(gpumem({"status", "--json"}).output)["regions"]["count"], 1);
  EXPECT_THAT(gpumem({"why", region["owner"]}).output, HasSubstr("kept beyond them"));
  EXPECT_EQ(gpumem({"cat", "weights.bin"}).output, "content");
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin", "--owner", "nobody"}).status, 1);
  const Outcome removed = gpumem({"regions", "rm", "weights.bin", "--owner", region["owner"]});
  EXPECT_EQ(removed.status, 0) << removed.output;
  EXPECT_TRUE(regions().empty());
}

TEST_F(RegionCommands, AKeptRegionWithALifeSaysHowLongItIsKept) {
  const std::string path = file("weights.bin", "content");
  const Outcome published = gpumem({"publish", path, "--keep", "--life", "1h"});
  EXPECT_EQ(published.status, 0);
  EXPECT_THAT(published.output, HasSubstr("; kept for 1h"));
  EXPECT_THAT(published.output, Not(HasSubstr("until it is removed")));
  const Outcome both = gpumem({"publish", path, "--keep", "--life", "1h", "--linger", "10m"});
  EXPECT_THAT(both.output, HasSubstr(", or 10m 0s after the last process has left it"));
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
}

TEST_F(RegionCommands, ReadersThatAreNotKnownAreWarnedOf) {
  const std::string path = file("weights.bin", "content");
  const Outcome mistyped = gpumem({"publish", path, "--keep", "--sharing", "gruop"});
  EXPECT_EQ(mistyped.status, 0) << "such a tenant may come";
  EXPECT_THAT(mistyped.output, HasSubstr("no tenant 'gruop' is known now; did you mean 'group'? words are "
                                         "private, group, public, or names of tenants and users\n"));
  const Outcome other = gpumem({"publish", path, "--keep", "--sharing", "somebody"});
  EXPECT_THAT(other.output, HasSubstr("no tenant 'somebody' is known now; words are private"));
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
}

TEST_F(RegionCommands, UsersAreNamedAsTheyAreByOtherCommands) {
  GPUMEM_NEEDS_ROOT();
  const std::string path = file("weights.bin", "content");
  const Outcome published = gpumem({"publish", path, "--keep", "--sharing", "nobody,ann"});
  ASSERT_EQ(published.status, 0) << published.output;
  EXPECT_THAT(published.output, AllOf(HasSubstr(" on gpu0, sharing uid:65534,ann"),
                                      HasSubstr("no tenant 'nobody (uid:65534)' is known now;")));
  EXPECT_EQ(regions().at(0)["readers"], (Json{"uid:65534", "ann"}));
  EXPECT_THAT(gpumem({"regions", "--long"}).output, HasSubstr("nobody (uid:65534),ann"));
  EXPECT_EQ(gpumem({"cat", "weights.bin", "--owner", "root"}, test_user(65'534)).output, "content");
  EXPECT_EQ(gpumem({"verify", "weights.bin", path, "--owner", "root"}).status, 0);
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin", "--owner", "root"}).status, 0);
  EXPECT_TRUE(regions().empty());
}

TEST_F(RegionCommands, ARegionIsWaitedFor) {
  const Outcome vain = gpumem({"cat", "weights.bin", "--wait", "1ms"});
  EXPECT_EQ(vain.status, 1);
  EXPECT_THAT(vain.output, HasSubstr("waited"));
  Child reader(broker_.command({"verify", "weights.bin", file("weights.bin", "content"), "--wait", "1m"}));
  const Outcome published = gpumem({"publish", (files_ / "weights.bin").string(), "--keep"});
  ASSERT_EQ(published.status, 0) << published.output;
  EXPECT_EQ(reader.wait(), 0);
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
}

TEST_F(RegionCommands, AVersionNewerThanAKnownOneIsWaitedFor) {
  auto first = publish({file("a", "first"), "--name", "weights"});
  const Outcome vain = gpumem({"cat", "weights", "--newer-than", "1", "--wait", "1ms"});
  EXPECT_EQ(vain.status, 1);
  EXPECT_THAT(vain.output, HasSubstr("waited"));
  EXPECT_THAT(vain.output, HasSubstr("the newest is version 1"));
  EXPECT_EQ(gpumem({"cat", "weights", "--newer-than", "1", "--version", "1"}).status, 2);
  Child reader(
      broker_.command({"verify", "weights", file("b", "second"), "--newer-than", "1", "--wait", "1m"}));
  auto second = publish({(files_ / "b").string(), "--name", "weights"});
  EXPECT_EQ(reader.wait(), 0);
  EXPECT_EQ(interrupt(*first), 0);
  EXPECT_EQ(interrupt(*second), 0);
}

TEST_F(RegionCommands, AFileIsPublishedReadVerifiedAndRemoved) {
  const std::string content = some_content(), path = file("weights.bin", content);
  auto publisher = publish({path, "--sharing", "public"});
  EXPECT_EQ(gpumem({"cat", "weights.bin"}).output, content);
  const Outcome equal = gpumem({"verify", "weights.bin", path});
  EXPECT_EQ(equal.status, 0) << equal.output;
  EXPECT_THAT(equal.output, HasSubstr("are equal"));
  const Json region = regions().at(0);
  EXPECT_EQ(region["name"], "weights.bin");
  EXPECT_EQ(region["bytes"], content.size());
  EXPECT_EQ(region["sharing"], "public");
  EXPECT_EQ(region["charged"][0]["pid"], publisher->pid());
  EXPECT_EQ(region["charged"][0]["bytes"], mebibytes(18).count);
  EXPECT_EQ(region["mapped"], 0);
  EXPECT_TRUE(region["expires"].is_null());
  const Outcome text = gpumem({"regions"});
  EXPECT_THAT(text.output, HasSubstr("weights.bin"));
  EXPECT_THAT(text.output, HasSubstr("public"));
  EXPECT_THAT(gpumem({"ps"}).output, HasSubstr("regions: 1 published"));
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
  EXPECT_TRUE(regions().empty());
  const Outcome gone = gpumem({"cat", "weights.bin"});
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.output, HasSubstr("there is no region 'weights.bin'"));
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 1);
  EXPECT_EQ(publisher->wait(), 1) << "it keeps no memory for a region that is gone";
  expect_rest();
}

TEST_F(RegionCommands, VerifyTellsWhereTheyFirstDiffer) {
  const std::string content = some_content();
  auto publisher = publish({file("a", content), "--name", "weights"});
  const auto difference = [&](const std::string& other) {
    const Outcome outcome = gpumem({"verify", "weights", file("other", other), "--json"});
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    return Json::parse(outcome.output, nullptr, false)["first_difference"].get<std::uint64_t>();
  };
  std::string other = content;
  other[content.size() - 2] ^= 1;
  EXPECT_EQ(difference(other), content.size() - 2);
  other[0] ^= 1;
  EXPECT_EQ(difference(other), 0U);
  EXPECT_EQ(difference(content.substr(0, 5000)), 5000U);
  EXPECT_EQ(difference(content + "x"), content.size());
  const Outcome text = gpumem({"verify", "weights", file("other", content + "x")});
  EXPECT_THAT(text.output, HasSubstr("differ from byte " + std::to_string(content.size())));
  EXPECT_EQ(gpumem({"verify", "weights", "/nowhere"}).status, 1);
  EXPECT_EQ(interrupt(*publisher), 0);
}

TEST_F(RegionCommands, VersionsAreReadAndRemovedOneByOne) {
  auto first = publish({file("one", "first"), "--name", "weights"});
  auto second = publish({file("two", "second"), "--name", "weights"});
  const std::string older = std::to_string(regions().at(0)["version"].get<std::uint64_t>());
  EXPECT_EQ(gpumem({"cat", "weights"}).output, "second");
  EXPECT_EQ(gpumem({"cat", "weights", "--version", older}).output, "first");
  EXPECT_EQ(gpumem({"regions", "rm", "weights"}).status, 0);
  EXPECT_EQ(gpumem({"cat", "weights"}).output, "first");
  EXPECT_EQ(gpumem({"regions", "rm", "weights", "--version", older}).status, 0);
  EXPECT_TRUE(regions().empty());
}

TEST_F(RegionCommands, WordsThatNameNothingAreRefusedBeforeTheBrokerIsAsked) {
  const std::string no_text = "caf\xe9";
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = gpumem(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments[0] << ": " << outcome.output;
    return outcome.output;
  };
  for (const auto& [arguments, told] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"cat", "w", "--version", "newest"}, "--version: 'newest' is not a whole number\n"},
           {{"cat", "w", "--version", "1.5"}, "--version: '1.5' is not a whole number\n"},
           {{"cat", "w", "--version", "99999999999999999999"},
            "--version: 99999999999999999999 is not from 0"},
           {{"cat", "w", "--newer-than", "x"}, "--newer-than: 'x' is not a whole number\n"},
           {{"verify", "w", "w.bin", "--version", "x"}, "--version: 'x' is not a whole number\n"},
           {{"regions", "rm", "w", "--version", "-1"}, "--version: '-1' is not a whole number\n"},
           {{"quota", "set", "x", "--weight", "1", "--revision", "-1"}, "--revision: '-1' is not a whole"},
           {{"quota", "set", "x", "--weight", "abc"}, "--weight: 'abc' is not a whole number\n"},
           {{"why"}, "SESSION|TENANT is required\n"},
           {{"cat"}, "NAME is required\n"},
           {{"regions", "rm"}, "NAME is required\n"},
           {{"publish"}, "FILE is required\n"},
           {{"verify", "w"}, "FILE is required\n"}})
    EXPECT_THAT(refused(arguments), testing::StartsWith(told));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"cat", no_text},
                                             {"cat", "weights", "--owner", no_text},
                                             {"verify", no_text, "/etc/hostname"},
                                             {"regions", "--owner", no_text},
                                             {"regions", "rm", no_text},
                                             {"why", no_text},
                                             {"events", "--no-follow", "--tenant", no_text},
                                             {"quota", "set", no_text, "--limit", "1GiB"}})
    EXPECT_THAT(refused(arguments), HasSubstr("not UTF-8"));
}

TEST_F(RegionCommands, WhatIsReadGoesNowhereElseWhereTheOutputIsClosed) {
  auto publisher = publish({file("a", some_content()), "--name", "weights"});
  const std::string command = "exec " + cli_program().string() + " cat weights >&-";
  const Outcome outcome = run({.program = "/bin/sh",
                               .arguments = {"-c", command},
                               .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}}});
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(interrupt(*publisher), 0);
  expect_rest();
}

TEST_F(RegionCommands, WhatCannotBePublishedIsNamed) {
  const auto refused = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "publish");
    const Outcome outcome = gpumem(std::move(arguments));
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    return outcome.output;
  };
  EXPECT_THAT(refused({"/nowhere"}), HasSubstr("cannot read /nowhere"));
  EXPECT_THAT(refused({files_.path().string()}), HasSubstr("is not a regular file"));
  EXPECT_THAT(refused({file("empty", "")}), HasSubstr("is empty"));
  const std::string large = file("large", "");
  std::filesystem::resize_file(large, mebibytes(300).count);
  EXPECT_THAT(refused({large}), HasSubstr("cannot load " + large + " (300MiB)"));
  const std::string small = file("small", "x");
  EXPECT_THAT(refused({small, "--device", "GPU-of-nobody"}), HasSubstr("GPU-of-nobody"));
  EXPECT_THAT(refused({small, "--sharing", "a,b,c,d,e,f,g,h,i"}), HasSubstr("8 tenants"));
  EXPECT_THAT(refused({file("a\nb", "x")}), HasSubstr("printable bytes"));
  const Outcome named = gpumem({"publish", small, "--name", "a\nb"});
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.output, HasSubstr("--name: a region's name has 1 to 128 printable bytes"));
  EXPECT_EQ(gpumem({"publish", small, "--life", "soon"}).status, 2);
  EXPECT_EQ(gpumem({"publish", small, "--runtime-dir", "/nowhere"}).status, 3);
  expect_rest();
}

struct RefusedCommands : RegionCommands {
  RefusedCommands() : RegionCommands({{"GPUMEM_CRASH_POINT", "broker.journal.write=fail"}}) {}
};

TEST_F(RefusedCommands, EndWithOneSinceThereIsABroker) {
  const Outcome refused = gpumem({"publish", file("weights.bin", "content"), "--keep"});
  EXPECT_THAT(refused.output, HasSubstr("the broker's journal cannot be written"));
  EXPECT_EQ(refused.status, 1);
  const std::string user = "uid:" + std::to_string(::geteuid());
  for (const Outcome& view : {gpumem({"status"}), gpumem({"why", user})})
    EXPECT_THAT(view.output, HasSubstr("\nthe broker's journal cannot be written"));
}

/// The commands that hand over to Python, which a script stands in for.
struct SafetensorsCommands : RegionCommands {
  /// `script`  is `python3` on the PATH; empty: there is none.
  Outcome with_python(const std::string& script, std::vector<std::string> arguments) {
    const std::filesystem::path python = files_ / "python3";
    std::filesystem::remove(python);
    if (!script.empty()) {
      write_file(python, "#!/bin/sh\n" + script + "\n");
      std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    }
    ChildOptions options = broker_.command(std::move(arguments));
    options.environment.emplace_back("PATH", files_.path().string());
    return run(options);
  }
  /// Prints its arguments, but for the program that it is given, and where the broker is.
  const std::string says_arguments_ = "shift 2; printf '%s\\n' \"$@\" \"$GPUMEM_RUNTIME_DIR\"";
  const std::string path_ = file("model.safetensors", "of tensors");
};

TEST_F(SafetensorsCommands, APublicationIsHandedOverWithAllItsOptions) {
  const Json status = Json::parse(gpumem({"status", "--json"}).output);
  const std::string device = status.at("devices").at(0).at("uuid"), program = cli_program().string();
  const std::string end = "--\n" + path_ + "\n" + broker_.folder() + "\n";
  const Outcome plain = with_python(says_arguments_, {"publish", path_});
  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(plain.output, "publish\n--name=model.safetensors\n--sharing=private\n" +
                              std::string("--wait=0.000000\n--gpumem=") + program + "\n" + end);
  const Outcome all =
      with_python(says_arguments_, {"publish", path_, "--name=--odd", "--sharing=group", "--device=0",
                                    "--life=90s", "--keep", "--linger=5ms", "--seal", "--wait=2m", "--json"});
  EXPECT_EQ(all.output, "publish\n--name=--odd\n--sharing=group\n" +
                            std::string("--wait=120.000000\n--gpumem=") + program + "\n--device=" + device +
                            "\n--life=90.000000\n--keep\n--linger=0.005000\n" + "--seal\n--json\n" + end);
}

TEST_F(SafetensorsCommands, ItsExitStatusIsThatOfPython) {
  EXPECT_EQ(with_python("exit 3", {"publish", path_}).status, 3);
}

TEST_F(SafetensorsCommands, WhatIsWrongWithTheOptionsIsSaidWithoutPython) {
  EXPECT_THAT(with_python("", {"publish", path_, "--name", "a\nb"}).output, HasSubstr("printable bytes"));
  EXPECT_THAT(with_python("", {"publish", path_, "--device", "GPU-of-nobody"}).output,
              HasSubstr("GPU-of-nobody"));
}

TEST_F(SafetensorsCommands, WithoutPythonTheySayWhatToInstall) {
  const Outcome refused = with_python("", {"publish", path_});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("python3-gpumem"), HasSubstr("--raw")));
  // Python without any package.
  const std::string bare = "PATH='" + std::string(::getenv("PATH")) + "'\nexec python3 -I -S \"$@\"";
  const Outcome incomplete = with_python(bare, {"publish", path_});
  EXPECT_EQ(incomplete.status, 1);
  EXPECT_THAT(incomplete.output, AllOf(HasSubstr("has no package gpumem"), HasSubstr("python3-gpumem")));
  EXPECT_TRUE(regions().empty());
}

TEST_F(SafetensorsCommands, ThoseThatReadHandOverRegionsWithALayoutAlone) {
  auto publisher = client_with(mebibytes(2));
  const Json published =
      publisher->ask({{"do", "publish"}, {"slice", "a"}, {"region", "w"}, {"layout", 100}});
  ASSERT_TRUE(succeeded(published));
  const std::string version = "--version=" + std::to_string(published["version"].get<std::uint64_t>());
  EXPECT_EQ(with_python(says_arguments_, {"cat", "w"}).output,
            "cat\n--owner=\n" + version + "\n--\nw\n" + broker_.folder() + "\n");
  EXPECT_EQ(with_python(says_arguments_, {"verify", "w", path_, "--json"}).output,
            "verify\n--owner=\n" + version + "\n--json\n--\nw\n" + path_ + "\n" + broker_.folder() + "\n");
  EXPECT_EQ(with_python("", {"cat", "w", "--raw"}).output.size(), mebibytes(2).count);
  EXPECT_EQ(with_python("", {"publish", path_, "--raw", "--keep"}).status, 0);
  EXPECT_EQ(with_python("", {"cat", "model.safetensors"}).output, "of tensors");
  EXPECT_EQ(with_python("", {"verify", "model.safetensors", path_}).status, 0);
  EXPECT_EQ(gpumem({"regions", "rm", "model.safetensors"}).status, 0);
}

TEST_F(RegionCommands, ALifeThatIsOverEndsThePublisher) {
  const Outcome outcome = gpumem({"publish", file("brief", "x"), "--life", "1ms"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("published 'brief'"));
  expect_rest();
}

TEST_F(RegionCommands, EventsAndWhyTellOfThem) {
  auto publisher = publish({file("weights", "12345")});
  EXPECT_EQ(gpumem({"cat", "weights"}).output, "12345");
  EXPECT_THAT(gpumem({"why", "uid:" + std::to_string(::geteuid())}).output,
              HasSubstr("published: 5B in 1 region"));
  EXPECT_EQ(interrupt(*publisher), 0);
  EXPECT_TRUE(eventually([&] { return regions().empty(); }));
  const std::string events = gpumem({"events", "--no-follow"}).output;
  EXPECT_THAT(events, HasSubstr("published 5B as a region: 'weights', version 1"));
  EXPECT_THAT(events, HasSubstr("mapped a region of 5B: 'weights', version 1, of tenant"));
  EXPECT_THAT(events, HasSubstr("ended with its memory: 'weights', version 1"));
}

TEST_F(RegionCommands, OfMoreThanOnePageAreAllListedOnce) {
  constexpr std::size_t kMany = 300;
  SessionStream stream(broker_.folder());
  stream.open();
  const std::uint64_t slice = stream.open_slice();
  const v1::SessionAnswer granted = stream.ask(growth(slice, mebibytes(2)));
  ASSERT_TRUE(granted.has_granted());
  v1::SessionRequest request;
  request.mutable_publish()->set_slice(slice);
  for (const v1::Lease& lease : granted.granted().leases()) request.mutable_publish()->add_leases(lease.id());
  for (std::size_t i = 0; i < kMany; ++i) {
    request.mutable_publish()->set_name("region " + std::to_string(i));
    ASSERT_TRUE(stream.ask(request).has_published());
  }
  std::set<std::string> names;
  for (const Json& region : regions()) names.insert(region["name"]);
  EXPECT_EQ(names.size(), kMany);
  EXPECT_EQ(regions().size(), kMany);
}

TEST_F(RegionCommands, ATokenOfNoPageIsRefused) {
  const auto monitor = v1::Monitor::NewStub(connect_to_api(broker_.folder()));
  v1::ListRegionsRequest request;
  v1::ListRegionsResponse response;
  for (const char* token : {"x", "1x", "-1", "99999999999999999999"}) {
    grpc::ClientContext context;
    request.set_page_token(token);
    EXPECT_EQ(monitor->ListRegions(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << token;
  }
}

// ---- Several tenants ----

struct RegionsOfTenants : RegionCommands {
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
  const std::string owner_ = "uid:10001";
};

TEST_F(RegionsOfTenants, AStrangerIsToldTheSameOfAPrivateOneAsOfNone) {
  const Outcome before = gpumem({"cat", "weights", "--owner", owner_}, kStranger);
  auto publisher = publish({file("weights", "secret")}, kPublisher);
  EXPECT_EQ(regions(kPublisher).size(), 1U);
  EXPECT_EQ(regions().size(), 1U) << "root's are all";
  EXPECT_TRUE(regions(kStranger).empty());
  EXPECT_TRUE(regions(kStranger, {"--owner", owner_}).empty());
  EXPECT_EQ(gpumem({"regions"}, kStranger).output, "no regions\n");
  const Outcome after = gpumem({"cat", "weights", "--owner", owner_}, kStranger);
  EXPECT_EQ(after.status, 1);
  EXPECT_EQ(after.output, before.output);
  EXPECT_EQ(gpumem({"regions", "rm", "weights"}, kStranger).status, 1);
  EXPECT_EQ(gpumem({"events", "--no-follow"}, kStranger).output.find("weights"), std::string::npos);
  const std::string sessions = gpumem({"ps", "--json"}, kStranger).output;
  EXPECT_EQ(sessions.find("weights"), std::string::npos) << sessions;
  EXPECT_EQ(sessions.find("publish"), std::string::npos) << sessions;
  EXPECT_EQ(gpumem({"cat", "weights"}, kPublisher).output, "secret");
  EXPECT_EQ(interrupt(*publisher), 0);
}

TEST_F(RegionsOfTenants, AReaderThatIsNamedSeesItButNotWhoElseIs) {
  auto publisher = publish({file("weights", "for two"), "--sharing", "uid:10002,uid:10003"}, kPublisher);
  EXPECT_EQ(gpumem({"cat", "weights", "--owner", owner_}, kStranger).output, "for two");
  EXPECT_EQ(regions(kPublisher).at(0)["readers"], Json::array({"uid:10002", "uid:10003"}));
  const Json seen = regions(kStranger).at(0);
  EXPECT_EQ(seen["sharing"], "named");
  EXPECT_TRUE(seen["readers"].empty());
  EXPECT_TRUE(regions(test_user(10'004)).empty());
  EXPECT_EQ(interrupt(*publisher), 0);
}

}  // namespace
}  // namespace gpumem::test
