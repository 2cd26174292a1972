// The `gpumem` command against a real broker, for people and for programs.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct Cli : BrokerTest {
  Json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Outcome outcome = gpumem(std::move(arguments));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return Json::parse(outcome.output, nullptr, false);
  }
  static testing::AssertionResult contains(const Outcome& outcome, const std::string& words) {
    return says(outcome, 0, words);
  }
};

TEST_F(Cli, StatusShowsDevicesAndCharges) {
  auto one = client_with(mebibytes(48));
  const Outcome text = gpumem({"status"});
  EXPECT_TRUE(contains(text, "224MiB"));
  EXPECT_TRUE(contains(text, "48MiB"));
  EXPECT_TRUE(contains(text, "1 session"));
  const Json status = json({"status"});
  ASSERT_EQ(status["devices"].size(), 1U) << status;
  EXPECT_EQ(status["sessions"], 1);
  EXPECT_EQ(status["devices"][0]["pool"], kPool.count);
  EXPECT_EQ(status["devices"][0]["active"], mebibytes(48).count);
  EXPECT_EQ(status["devices"][0]["free"], (kPool - mebibytes(48)).count);
}

TEST_F(Cli, PsShowsWhoHoldsHowMuch) {
  auto one = client_with(mebibytes(48));
  const Outcome text = gpumem({"ps"});
  EXPECT_TRUE(contains(text, std::to_string(one->pid())));
  EXPECT_TRUE(contains(text, "test_client"));
  EXPECT_TRUE(contains(text, "48MiB"));
  const Json session = json({"ps"})["sessions"][0];
  EXPECT_EQ(session["pid"], one->pid());
  EXPECT_EQ(session["label"], "test");
  EXPECT_EQ(session["ended"], false);
  EXPECT_EQ(session["slices"][0]["charged"], mebibytes(48).count);
  EXPECT_EQ(session["slices"][0]["label"], "a");
}

TEST_F(Cli, PsWithoutSessionsIsEmpty) {
  EXPECT_TRUE(contains(gpumem({"ps"}), "no sessions"));
  EXPECT_TRUE(json({"ps"})["sessions"].empty());
}

TEST_F(Cli, TenantsShowsQuotas) {
  auto one = client_with(mebibytes(48));
  const std::string name = "uid:" + std::to_string(::geteuid());
  EXPECT_TRUE(contains(gpumem({"tenants"}), name));
  const Json tenant = json({"tenants"})["tenants"][0];
  EXPECT_EQ(tenant["tenant"], name);
  EXPECT_EQ(tenant["limit"], kPool.count);
  EXPECT_EQ(tenant["guarantee"], 0);
  EXPECT_EQ(tenant["charged"], mebibytes(48).count);
  EXPECT_EQ(tenant["sessions"], 1);
}

TEST_F(Cli, CheckFindsEverythingInOrderAndLeavesNothing) {
  const Outcome text = gpumem({"check"});
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_EQ(text.output.find("FAIL"), std::string::npos) << text.output;
  const Json check = json({"check"});
  EXPECT_EQ(check["ok"], true);
  bool lent = false;
  for (const Json& finding : check["checks"]) lent |= finding["name"] == "loan" && finding["state"] == "ok";
  EXPECT_TRUE(lent) << check;
  expect_rest();
}

TEST_F(Cli, CheckWithoutABrokerNamesItBeforeTheDriver) {
  const Outcome outcome = gpumem({"check", "--runtime-dir", "/nowhere"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("FAIL  runtime folder  there is no folder /nowhere"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("warn  driver          not known until the broker answers"),
            std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("FAIL  d"), std::string::npos) << outcome.output;
}

TEST_F(Cli, ListingsWithoutABrokerEndWithThree) {
  for (const char* command : {"status", "ps", "tenants"}) {
    const Outcome outcome = gpumem({command, "--runtime-dir", "/nowhere"});
    EXPECT_EQ(outcome.status, 3) << command;
    EXPECT_NE(outcome.output.find("no broker at /nowhere"), std::string::npos) << outcome.output;
  }
}

TEST_F(Cli, AnUnknownCommandIsNamedWithTheNearestAndAllThereAre) {
  for (const auto& [words, told] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"pss"}, "gpumem: there is no command 'pss'; did you mean 'ps'?"},
           {{"rm"}, "gpumem: there is no command 'rm'; did you mean 'regions rm'?"},
           {{"frobnicate"}, "gpumem: there is no command 'frobnicate'."},
           {{"quota", "sett", "ann"}, "gpumem quota: there is no command 'sett'; did you mean 'set'?"}}) {
    const Outcome outcome = gpumem(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.output.find(told), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("Commands: "), std::string::npos) << outcome.output;
  }
}

TEST_F(Cli, ACommandThatIsMissingIsAskedForWithAllThereAre) {
  const Outcome none = gpumem({});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.output.find("gpumem: a command is needed\nCommands: status"), std::string::npos)
      << none.output;
  const Outcome unknown = gpumem({"nosuch", "--help"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.output.find("there is no command 'nosuch'"), std::string::npos) << unknown.output;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"ps", "--help"}, {"quota", "--help"}, {"run", "--help"}})
    EXPECT_TRUE(contains(gpumem(words), "Usage: gpumem"));
}

TEST_F(Cli, OptionsStandBeforeTheCommandToo) {
  EXPECT_TRUE(Json::parse(gpumem({"--json", "ps"}).output)["sessions"].empty());
  EXPECT_TRUE(
      contains(gpumem({"--runtime-dir", broker_.folder(), "--long", "status"}), broker_.device().uuid()));
  EXPECT_EQ(gpumem({"--watch", "-1", "status"}).status, 2);
}

TEST_F(Cli, ShellsCompleteItsCommandsAndOptions) {
  const std::string script = std::string(GPUMEM_TEST_COMPLETIONS) + "/gpumem.bash";
  for (const auto& [words, completed] :
       std::vector<std::pair<std::string, std::string>>{{"gpumem recon", "reconcile\n"},
                                                        {"gpumem quota re", "reset\n"},
                                                        {"gpumem ps --so", "--sort\n"},
                                                        {"gpumem quota set ann --lim", "--limit\n"},
                                                        {"gpumem run -- ps --so", "\n"}}) {
    const Outcome outcome = run({.program = "/bin/bash",
                                 .arguments = {"-c",
                                               "PATH=$1:$PATH; . $2; COMP_WORDS=($3); "
                                               "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpumem; "
                                               "echo \"${COMPREPLY[*]}\"",
                                               "bash", cli_program().parent_path(), script, words}});
    EXPECT_EQ(outcome.output, completed) << words;
  }
}

TEST_F(Cli, ZshAndFishCompleteItToo) {
  const TemporaryFolder home;
  const std::string folder = GPUMEM_TEST_COMPLETIONS, programs = cli_program().parent_path();
  struct Completion {
    std::string words, line, word;
  };
  for (const auto& [words, line, word] :
       std::vector<Completion>{{"gpumem recon", "gpumem reconcile", "reconcile\t"},
                               {"gpumem quota re", "gpumem quota reset", "reset\t"},
                               {"gpumem ps --so", "gpumem ps --sort", "--sort\t"},
                               {"gpumem run -- ps --so", "gpumem run -- ps --so\n", ""}}) {
    const Outcome zsh =
        run({.program = "/bin/zsh", .arguments = {"-f", GPUMEM_TEST_COMPLETE_ZSH, folder, programs, words}});
    EXPECT_TRUE(zsh.output.starts_with(line)) << zsh.output;
    const Outcome fish = run(
        {.program = "/usr/bin/fish",
         .arguments = {"--no-config", "-c", "set PATH $argv[1] $PATH; source $argv[2]; complete -C $argv[3]",
                       programs, folder + "/gpumem.fish", words},
         .environment = {{"HOME", home.path()}}});
    EXPECT_TRUE(word.empty() ? fish.output.empty() : fish.output.starts_with(word)) << fish.output;
  }
}

TEST_F(Cli, TablesFitTheColumnsThatAreThere) {
  auto one = client_with(mebibytes(48));
  ChildOptions in_few_columns = broker_.command({"ps", "--total"});
  in_few_columns.environment.emplace_back("COLUMNS", "80");
  const Outcome narrow = run(in_few_columns);
  EXPECT_TRUE(contains(narrow, " gpu0 "));
  EXPECT_TRUE(contains(narrow, "total"));
  std::istringstream lines(narrow.output);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_TRUE(contains(gpumem({"ps", "--long"}), broker_.device().uuid()));
  EXPECT_TRUE(contains(gpumem({"ps", "--user", std::to_string(::geteuid())}), "48MiB"));
  EXPECT_TRUE(contains(gpumem({"ps", "--user", "1999990000"}), "no sessions"));
  EXPECT_EQ(gpumem({"ps", "--user", "nobody-of-this-name"}).status, 2);
  EXPECT_EQ(gpumem({"ps", "--sort", "colour"}).status, 2);
}

TEST_F(Cli, HelpOfRunAndReserveShowsTheCommand) {
  for (const char* command : {"run", "reserve"}) {
    EXPECT_TRUE(contains(gpumem({command, "--help"}), "[[--] COMMAND...]"));
    EXPECT_TRUE(contains(gpumem({command, "--help"}), "a number is seconds"));
  }
}

TEST_F(Cli, OutputThatCannotBeWrittenIsAFailure) {
  auto one = client_with(mebibytes(8));
  for (const std::string words : {"ps", "ps --json", "status", "tenants", "events --no-follow", "--help",
                                  "tenants --json", "quota", "--version", "check --no-allocate"}) {
    const Outcome outcome = run({.program = "/bin/sh",
                                 .arguments = {"-c", cli_program().string() + " " + words + " >/dev/full"},
                                 .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}},
                                 .user = {}});
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_EQ(outcome.output, "gpumem: cannot write to standard output\n") << words;
  }
}

TEST_F(Cli, WatchingNeedsAnIntervalThatIsMoreThanNothing) {
  for (const char* none : {"0", "-1", "soon", "nan"}) {
    const Outcome outcome = gpumem({"reconcile", std::string("--watch=") + none});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.output.find("a number of more than 0 seconds is needed"), std::string::npos)
        << outcome.output;
  }
  EXPECT_EQ(gpumem({"reconcile", "--watch", "1e300"}).status, 2);
}

TEST_F(Cli, WatchesGoOnWhenTheBrokerIsBack) {
  const auto one = client_with(mebibytes(8));
  struct Watch {
    UniqueFd said{::memfd_create("said", MFD_CLOEXEC)};
    std::unique_ptr<Child> child{};
    std::string text() const {
      std::string text(static_cast<std::size_t>(::lseek(said.get(), 0, SEEK_END)), '\0');
      const ssize_t count = ::pread(said.get(), text.data(), text.size(), 0);
      return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
  };
  const std::string waits = "gpumem: waiting for the broker: ";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status"}, {"ps"}, {"why", "1"}}) {
    Watch watch;
    std::vector<std::string> arguments = words;
    arguments.insert(arguments.end(), {"--watch", "0.05"});
    ChildOptions watching = broker_.command(std::move(arguments));
    watching.output = watch.said.get();
    watch.child = std::make_unique<Child>(watching);
    ASSERT_TRUE(eventually([&] { return !watch.text().empty(); }));
    broker_.kill();
    ASSERT_TRUE(eventually([&] { return watch.text().find(waits) != std::string::npos; })) << words[0];
    broker_.start_again();
    const auto shown_again = [&] {
      const std::string text = watch.text();
      return text.find('\n', text.find(waits)) + 1 < text.size();
    };
    EXPECT_TRUE(eventually(shown_again)) << words[0] << " says: " << watch.text();
    EXPECT_EQ(watch.text().find(waits), watch.text().rfind(waits)) << "it is said once";
    watch.child->signal(SIGINT);
    watch.child->wait();
  }
}

TEST_F(Cli, WrongUsageEndsWithTwo) {
  EXPECT_EQ(gpumem({}).status, 2);
  EXPECT_EQ(gpumem({"frobnicate"}).status, 2);
  EXPECT_EQ(gpumem({"ps", "--watch"}).status, 2);
  EXPECT_EQ(gpumem({"status", "--watch", "-1"}).status, 2);
}

}  // namespace
}  // namespace gpumem::test
