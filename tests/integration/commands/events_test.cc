// Events reach the tenants that they concern, for as long as those listen, and slow listeners delay nobody.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "proto/lane.h"
#include "tests/integration/fixture.h"
#include "tests/support/http_client.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

const User kOne = test_user(10'001), kOther = test_user(10'002);

struct Events : BrokerTest {
  explicit Events(const std::string& config = shared()) : BrokerTest({.config = config}) {}

  Outcome events(std::vector<std::string> arguments, std::optional<User> user = {}) const {
    arguments.insert(arguments.begin(), "events");
    return gpumem(std::move(arguments), user);
  }
  // The kept events, as `user` sees them.
  std::vector<Json> kept(std::optional<User> user = {}, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--no-follow", "--json"});
    const Outcome outcome = events(std::move(more), user);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::vector<Json> events;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    return events;
  }
  static std::size_t count(const std::vector<Json>& events, const std::string& kind) {
    return static_cast<std::size_t>(std::count_if(events.begin(), events.end(),
                                                  [&](const Json& event) { return event["kind"] == kind; }));
  }
};

TEST_F(Events, TellALifeInItsOrder) {
  auto client = client_with(mebibytes(48));
  const pid_t pid = client->pid();
  EXPECT_EQ(client->leave(), 0);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); }));
  const auto events = kept();
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events[0]["kind"], "opened");
  EXPECT_EQ(events[0]["pid"], pid);
  for (const char* kind : {"granted", "ended", "freed"}) EXPECT_GE(count(events, kind), 1U) << kind;
  for (std::size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence"].get<std::uint64_t>(), events[i - 1]["sequence"].get<std::uint64_t>() + 1);
    EXPECT_GE(events[i]["time"], events[i - 1]["time"]);
  }
}

TEST_F(Events, NameDevicesByTheirPlaces) {
  auto client = client_with(mebibytes(8));
  const Outcome text = events({"--no-follow"});
  EXPECT_NE(text.output.find("  gpu0  8MiB granted"), std::string::npos) << text.output;
  EXPECT_EQ(text.output.find("GPU-"), std::string::npos) << text.output;
  EXPECT_NE(events({"--no-follow", "--long"}).output.find("  GPU-"), std::string::npos);
  EXPECT_NE(kept().back()["device"].get<std::string>().find("GPU-"), std::string::npos);
}

TEST_F(Events, OfOthersAreNotTold) {
  GPUMEM_NEEDS_ROOT();
  auto one = client_with(mebibytes(8), kOne);
  auto other = client_with(mebibytes(16), kOther);
  const auto seen = kept(kOne);
  EXPECT_GE(count(seen, "granted"), 1U);
  for (const Json& event : seen) EXPECT_EQ(event["tenant"], "uid:10001") << event;
  const auto all = kept();
  EXPECT_EQ(count(all, "opened"), 2U) << "root is told everything";
  EXPECT_EQ(kept({}, {"--tenant", "uid:10001"}).size(), seen.size());
  const Outcome refused = events({"--no-follow", "--tenant", "uid:10001"}, kOther);
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("administrators"), std::string::npos) << refused.output;
}

// Every user of these tests is an administrator until the reload.
struct FormerAdministrator : Events {
  FormerAdministrator() : Events(shared("admin_group = 10000\n")) {}
};

TEST_F(FormerAdministrator, IsNotToldOfOthersAnyMore) {
  GPUMEM_NEEDS_ROOT();
  const TemporaryFolder folder;
  const std::filesystem::path heard = folder / "heard";
  const UniqueFd output(::open(heard.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  ChildOptions following = broker_.command({"events", "--json"}, kOne);
  following.output = output.get();
  const Child follower(following);
  const auto hears = [&](const std::string& tenant) {
    return read_file(heard).find(tenant) != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] {
    client({}, kOther)->leave();
    return hears("uid:10002");
  }));
  broker_.reload(shared());
  EXPECT_EQ(client({}, test_user(10'003))->leave(), 0);
  EXPECT_EQ(client({}, kOne)->leave(), 0);
  EXPECT_TRUE(eventually([&] { return hears("uid:10001"); })) << "its own are told";
  EXPECT_FALSE(hears("uid:10003"));
}

TEST_F(Events, OfATenantThatIsNotKnownSaySo) {
  const Outcome none = events({"--no-follow", "--tenant", "nosuch"});
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.output, "gpumem: no tenant 'nosuch' is known now; see `gpumem tenants`\n");
  auto one = client_with(mebibytes(8));
  const std::string own = "uid:" + std::to_string(::geteuid());
  const Outcome known = events({"--no-follow", "--tenant", own});
  EXPECT_EQ(known.output.find("is known now"), std::string::npos) << known.output;
}

TEST_F(Events, AreToldSinceAnInstant) {
  auto one = client_with(mebibytes(8));
  const auto before = kept();
  ASSERT_FALSE(before.empty());
  auto two = client_with(mebibytes(8));
  const std::string last = before.back()["time"];
  for (const Json& event : kept({}, {"--since", last})) EXPECT_GE(event["time"], last);
  for (const char* since : {"1h", "3600", "3600000ms"})
    EXPECT_EQ(count(kept({}, {"--since", since}), "opened"), 2U) << since;
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--since", "someday"},
                                                {"--since", "2150-01-01"},
                                                {"--since", "5s", "--until", "10s"}})
    EXPECT_EQ(gpumem(wrong).status, 2) << wrong.back();
}

struct FollowedEvents : Events {
  void follow() {
    const UniqueFd log(::open(file().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    ChildOptions following = broker_.command({"events", "--since", "1h"});
    following.output = log.get();
    child_ = std::make_unique<Child>(following);
    // That it follows shows only by what it says: so something has to have happened.
    auto client = client_with(mebibytes(4));
    EXPECT_TRUE(says("granted"));
    EXPECT_EQ(client->leave(), 0);
  }
  bool says(const std::string& words) {
    return eventually([&] { return read_file(file()).find(words) != std::string::npos; });
  }
  std::filesystem::path file() const { return folder_ / "events"; }

  TemporaryFolder folder_;
  std::unique_ptr<Child> child_;
};

TEST_F(FollowedEvents, ComeAsTheyHappenUntilInterrupted) {
  follow();
  auto client = client_with(mebibytes(12));
  EXPECT_TRUE(says("12MiB granted")) << read_file(file());
  EXPECT_TRUE(child_->running());
  child_->signal(SIGINT);
  EXPECT_EQ(child_->wait(), 0);
}

TEST_F(FollowedEvents, GoOnWithTheNextBrokerAndAreToldOnce) {
  follow();
  for (const bool is_killed : {false, true}) {
    if (is_killed)
      broker_.kill();
    else
      EXPECT_EQ(broker_.stop(), 0) << "a follower does not hold it up";
    EXPECT_TRUE(says("waiting for the broker")) << read_file(file());
    broker_.start_again();
    const std::string size = is_killed ? "20MiB" : "12MiB";
    auto client = client_with(mebibytes(is_killed ? 20 : 12));
    EXPECT_TRUE(says(size + " granted")) << read_file(file());
    client->leave();
  }
  child_->signal(SIGINT);
  EXPECT_EQ(child_->wait(), 0);
  std::istringstream lines(read_file(file()));
  std::map<std::string, int> granted;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" granted") != std::string::npos) ++granted[line];
  for (const auto& [line, times] : granted) EXPECT_EQ(times, 1) << line;
}

// The streams themselves, without the command.
struct EventStreams : Events {
  std::unique_ptr<v1::Monitor::Stub> stub = v1::Monitor::NewStub(connect_to_api(broker_.folder()));

  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Event>> reader;
  };
  std::unique_ptr<Stream> open(const std::string& since = "", bool follow = true) {
    auto stream = std::make_unique<Stream>();
    stream->context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::WatchEventsRequest request;
    request.set_since(since);
    request.set_follow(follow);
    stream->reader = stub->WatchEvents(&stream->context, request);
    return stream;
  }
  static constexpr const char* kSince = "2000-01-01T00:00:00Z";  // so that each has something to say
  /// As many as one user may have.
  std::vector<std::unique_ptr<Stream>> open_all() {
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 16; ++i) {
      streams.push_back(open(kSince));
      v1::Event event;
      EXPECT_TRUE(streams.back()->reader->Read(&event)) << i;
    }
    return streams;
  }
  static grpc::Status rest_of(Stream& stream, std::size_t* heard = nullptr) {
    v1::Event event;
    while (stream.reader->Read(&event)) {
      if (heard != nullptr) ++*heard;
    }
    return stream.reader->Finish();
  }
};

TEST_F(EventStreams, NeedNoSession) {
  EXPECT_TRUE(rest_of(*open("", false)).ok()) << "the kernel says whose the connection is";
}

TEST_F(EventStreams, OfANonsensicalInstantAreRefused) {
  const grpc::Status status = rest_of(*open("yesterday"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("RFC 3339"), std::string::npos);
}

TEST_F(EventStreams, AreCutOffWhereNobodyReads) {
  grpc::ChannelArguments
      little;  // or gRPC itself would take in thousands of events that nobody has asked for
  little.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  little.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  little.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
  stub = v1::Monitor::NewStub(grpc::CreateCustomChannel("unix:" + broker_.folder() + "/" + kApiSocketName,
                                                        grpc::InsecureChannelCredentials(), little));
  const auto stream = open();
  SessionStream session(broker_.folder());
  session.open();
  const std::uint64_t slice = session.open_slice();
  for (int i = 0; i < 8'000; ++i) {
    ASSERT_EQ(session.ask(growth(slice, gibibytes(1024))).failed().code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  std::size_t heard = 0;
  const grpc::Status status = rest_of(*stream, &heard);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_NE(status.error_message().find("faster than they are read"), std::string::npos)
      << status.error_message();
  EXPECT_LT(heard, 8'000U);
}

TEST_F(EventStreams, AreSoManyForAUser) {
  auto client = client_with(mebibytes(4));
  const auto streams = open_all();
  EXPECT_EQ(rest_of(*open(kSince)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  streams.front()->context.TryCancel();
  EXPECT_EQ(rest_of(*streams.front()).error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return rest_of(*open(kSince, false)).ok(); })) << "a place is free again";
  for (const auto& stream : streams) stream->context.TryCancel();
}

TEST_F(EventStreams, ThatAreTooManyAreWaitedForByTheCommandWhichSaysSoOnce) {
  auto client = client_with(mebibytes(4));
  auto streams = open_all();
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "events";
  const UniqueFd log(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const Child follower({.program = cli_program(),
                        .arguments = {"events", "--since", "1h", "--runtime-dir", broker_.folder()},
                        .output = log.get()});
  const auto refusals = [&] {
    const UniqueFd metrics = connect_to(broker_.folder() + "/metrics.sock");
    EXPECT_TRUE(send_all(metrics.get(), kLastScrape));
    const std::string text = read_to_end(metrics.get()), words = "{bound=\"followers\"} ";
    const auto at = text.find(words);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + words.size()));
  };
  EXPECT_TRUE(eventually([&] { return refusals() >= 3; }));
  for (const auto& stream : streams) stream->context.TryCancel();
  const auto said = [&] { return read_file(file); };
  EXPECT_TRUE(eventually([&] { return said().find("granted") != std::string::npos; })) << said();
  const std::string words = "too many follow events";
  EXPECT_NE(said().find(words), std::string::npos) << said();
  EXPECT_EQ(said().find(words, said().find(words) + 1), std::string::npos) << said();
}

}  // namespace
}  // namespace gpumem::test
