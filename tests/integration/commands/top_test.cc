// `gpumem top` as its user has it: in a terminal of tmux, once, and without a terminal that can be drawn on.
#include "tests/integration/fixture.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::test {
namespace {

/// A terminal in which a program runs. Its server is the test's own.
class Tmux {
 public:
  Tmux(const std::string& program, const std::string& environment) {
    EXPECT_EQ(command({"-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30",
                       environment + " exec " + program})
                  .status,
              0);
  }
  ~Tmux() { command({"kill-server"}); }
  void press(const std::string& key) { EXPECT_EQ(command({"send-keys", key}).status, 0); }
  std::string screen() { return command({"capture-pane", "-p"}).output; }
  bool shows(const std::string& text) {
    const bool shown = eventually([&] { return screen().find(text) != std::string::npos; });
    if (!shown) ADD_FAILURE() << "no '" << text << "' in\n" << screen();
    return shown;
  }
  bool has_ended() {
    return eventually([&] { return command({"has-session"}).status != 0; });
  }
  void resize(int width) { command({"resize-window", "-x", std::to_string(width)}); }

 private:
  Outcome command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-S", (folder_ / "socket").string()});
    return run({.program = "/usr/bin/tmux",
                .arguments = std::move(arguments),
                .environment = {{"LC_ALL", "C.UTF-8"}}});
  }
  TemporaryFolder folder_;
};

struct Top : BrokerTest {
  Top() : BrokerTest({.config = shared()}) {}

  std::string program(const std::string& options = "") const {
    return "'" + cli_program().string() + "' top --runtime-dir '" + broker_.folder() + "' " + options;
  }
  Outcome once(std::vector<std::string> options) {
    options.insert(options.begin(), {"top", "--once", "--runtime-dir", broker_.folder()});
    return run(
        {.program = cli_program(), .arguments = std::move(options), .environment = {{"COLUMNS", "110"}}});
  }
};

TEST_F(Top, IsDrawnAndObeysKeys) {
  auto client = client_with(mebibytes(48));
  Tmux terminal(program(), "LC_ALL=C.UTF-8");
  ASSERT_TRUE(terminal.shows("lent 48M"));
  EXPECT_TRUE(terminal.shows("test_client"));
  EXPECT_TRUE(terminal.shows("by charged"));
  terminal.press("s");
  EXPECT_TRUE(terminal.shows("by in-use"));
  terminal.press("h");
  EXPECT_TRUE(terminal.shows("this help, and back"));
  terminal.press("h");
  EXPECT_TRUE(succeeded(client->grow("a", mebibytes(96))));
  EXPECT_TRUE(terminal.shows("lent 96M")) << "it goes on";
  terminal.resize(60);
  EXPECT_TRUE(eventually([&] {
    const std::string screen = terminal.screen();
    return screen.find("PEAK") == std::string::npos && screen.find("CHARGED") != std::string::npos;
  })) << terminal.screen();
  terminal.press("q");
  EXPECT_TRUE(terminal.has_ended());
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Top, EndsAProcessOfTheUsersOwnAfterAYes) {
  auto client = client_with(mebibytes(8));
  Tmux terminal(program("--plain"), "NO_COLOR=1");
  ASSERT_TRUE(terminal.shows("test_client"));
  terminal.press("End");
  terminal.press("k");
  ASSERT_TRUE(terminal.shows("send SIGTERM to test_client"));
  terminal.press("n");
  EXPECT_TRUE(client->child().running());
  terminal.press("k");
  ASSERT_TRUE(terminal.shows("send SIGTERM to test_client"));
  terminal.press("y");
  EXPECT_TRUE(terminal.shows("has got SIGTERM"));
  EXPECT_EQ(client->child().wait(), -SIGTERM);
}

TEST_F(Top, NamesTheCommandThatEndsAnothersProcess) {
  GPUMEM_NEEDS_ROOT();
  auto client = client_with(mebibytes(8), kAnn);
  const std::uint64_t id = broker_.sessions().at(0).id();
  Tmux terminal(program(), "LC_ALL=C.UTF-8");
  ASSERT_TRUE(terminal.shows("test_client"));
  terminal.press("End");
  terminal.press("k");
  EXPECT_TRUE(terminal.shows("gpumem end " + std::to_string(id)));
  EXPECT_TRUE(client->child().running());
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Top, GoesOnWithTheNextBroker) {
  Tmux terminal(program(), "LC_ALL=C.UTF-8");
  ASSERT_TRUE(terminal.shows("0 sessions"));
  broker_.kill();
  EXPECT_TRUE(terminal.shows("trying again"));
  broker_.start_again();
  auto client = client_with(mebibytes(16));
  EXPECT_TRUE(terminal.shows("lent 16M"));
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Top, PrintsOneScreenWithoutATerminal) {
  auto client = client_with(mebibytes(48));
  const Outcome plain = once({"--plain"});
  EXPECT_EQ(plain.status, 0) << plain.output;
  EXPECT_NE(plain.output.find("gpu0  [#"), std::string::npos) << plain.output;
  EXPECT_NE(plain.output.find("test_client"), std::string::npos) << plain.output;
  EXPECT_EQ(plain.output.find('\033'), std::string::npos);
  for (const char c : plain.output) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Top, OnATerminalThatCannotBeDrawnOnPrintsScreens) {
  Tmux terminal(program(), "TERM=dumb");
  EXPECT_TRUE(terminal.shows("CHARGED"));
  broker_.kill();
  EXPECT_TRUE(terminal.shows("waiting for the broker"));
  broker_.start_again();
  auto client = client_with(mebibytes(16));
  EXPECT_TRUE(terminal.shows("lent 16M")) << "it goes on with the next broker";
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(Top, OfHostsIsAskedForBySsh) {
  TemporaryFolder folder;
  write_file(folder / "ssh",
             "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\necho \"here is $2: $4 $5 $6\"\n"
             "[ $2 = well ]\n");
  std::filesystem::permissions(folder / "ssh", std::filesystem::perms::owner_all);
  const Outcome shown =
      run({.program = cli_program(),
           .arguments = {"top", "--once", "--hosts", "well,ill"},
           .environment = {{"PATH", folder.path().string() + ":/usr/bin:/bin"}, {"COLUMNS", "90"}}});
  EXPECT_EQ(shown.output,
            "== well ==\nhere is well: COLUMNS=90 gpumem top\n== ill ==\nhere is ill: COLUMNS=90 gpumem top\n"
            "(ssh, or gpumem there, has failed)\n");
  EXPECT_EQ(shown.status, 1);
  EXPECT_EQ(once({"--hosts", "-oProxyCommand=x"}).status, 2);
}

}  // namespace
}  // namespace gpumem::test
