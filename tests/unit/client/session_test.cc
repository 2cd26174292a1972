// Opening a session against a broker that behaves well, badly, or not at all.
#include "gpumem/session.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <future>

#include "base/text/printable.h"
#include "shm/pages.h"
#include "tests/unit/client/lane/fake_lane.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;

SessionOptions options(const FakeLane& lane, milliseconds timeout = milliseconds(5000)) {
  return {lane.folder(), "test", timeout};
}

/// Connects to a broker that answers the Hello with `body` and `descriptors`.
template <class Body>
Error refusal_of(const Body& body, std::vector<UniqueFd> descriptors) {
  FakeLane lane([&](int socket) {
    const Said hello = receive_frame(socket);
    std::vector<int> numbers;
    for (const UniqueFd& descriptor : descriptors) numbers.push_back(descriptor.get());
    send_frame(socket, body, hello.header.request, numbers);
  });
  auto session = Session::connect(options(lane));
  EXPECT_FALSE(session);
  return session ? Error{} : session.error();
}

/// The descriptors of a Welcome, with these pages.
std::vector<UniqueFd> with_bell(UniqueFd broker_page, UniqueFd client_page) {
  std::vector<UniqueFd> all;
  all.push_back(std::move(broker_page));
  all.push_back(std::move(client_page));
  all.push_back(bell_file());
  return all;
}

TEST(Session, IsOpenedByAWelcome) {
  std::promise<Said> hello;
  FakeLane lane([&](int socket) {
    const Said said = receive_frame(socket);
    hello.set_value(said);
    send_welcome(socket, said.header.request, welcome());
  });
  auto session = Session::connect(options(lane));
  ASSERT_TRUE(session) << to_string(session.error());
  EXPECT_EQ(session->id(), 7U);
  EXPECT_EQ(session->tenant(), "red");
  const Said said = hello.get_future().get();
  EXPECT_EQ(said.as<lane::Hello>().newest, lane::kVersion);
  EXPECT_EQ(said.as<lane::Hello>().label.view(), "test");
}

TEST(Session, ReadsItsFiguresFromTheBrokersPage) {
  BrokerPage page;
  initialize(page);
  page.figures.device_count = 2;
  page.figures.devices[0] = {100, 90, 80, 70, 60, 50, 40, 5'000'000'000, 0, 0, 0};
  FakeLane lane([&](int socket) {
    const Said hello = receive_frame(socket);
    send_welcome(socket, hello.header.request, welcome({"GPU-x", "GPU-y"}),
                 memory_file(&page, sizeof page, kSharedPageBytes));
  });
  auto session = Session::connect(options(lane));
  ASSERT_TRUE(session) << to_string(session.error());
  auto usage = session->usage();
  ASSERT_TRUE(usage);
  ASSERT_EQ(usage->size(), 2U);
  const DeviceUsage& device = usage->front();
  EXPECT_EQ(device.device, "GPU-x");
  EXPECT_EQ(device.pool, Bytes{100});
  EXPECT_EQ(device.free, Bytes{90});
  EXPECT_EQ(device.guarantee, Bytes{80});
  EXPECT_EQ(device.limit, Bytes{70});
  EXPECT_EQ(device.charged, Bytes{60});
  EXPECT_EQ(device.available, Bytes{50});
  EXPECT_EQ(device.pressure, Bytes{40});
  EXPECT_EQ(device.pressure_deadline, std::chrono::steady_clock::time_point(std::chrono::seconds(5)));
  EXPECT_FALSE(usage->back().pressure_deadline) << "nothing is asked of the other device";
}

TEST(Session, SaysGoodbyeWhenItGoes) {
  std::promise<bool> left;
  FakeLane lane([&](int socket) {
    greet(socket);
    left.set_value(receive_frame(socket).is<lane::Goodbye>());
  });
  { auto session = Session::connect(options(lane)); }
  EXPECT_TRUE(left.get_future().get());
}

TEST(Session, TellsWhyTheBrokerRefuses) {
  const Error error = refusal_of(failed(Code::kPermissionDenied, "user 1000 belongs to no tenant"), {});
  EXPECT_EQ(error.code, Code::kPermissionDenied);
  EXPECT_EQ(error.message, "the broker refuses this process: user 1000 belongs to no tenant");
}

TEST(Session, SaysThatTheProcessHasNoRoomForItsDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  FakeLane lane([&](int socket) {
    const Said hello = receive_frame(socket);
    const UniqueFd broker_page = broker_page_file(), client_page = client_page_file(), bell = bell_file();
    const int next = UniqueFd(::dup(socket)).get();
    const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
    send_frame(socket, welcome(), hello.header.request, {broker_page.get(), client_page.get(), bell.get()});
    receive_frame(socket);
  });
  const auto session = Session::connect(options(lane));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kResourceExhausted);
  EXPECT_NE(session.error().message.find("RLIMIT_NOFILE"), std::string::npos) << session.error().message;
}

TEST(Session, RejectsAWelcomeWithoutAllItsDescriptors) {
  EXPECT_EQ(refusal_of(welcome(), {}).code, Code::kInternal);
  auto no_bell = with_bell(broker_page_file(), client_page_file());
  no_bell.pop_back();
  EXPECT_EQ(refusal_of(welcome(), std::move(no_bell)).code, Code::kInternal);
}

TEST(Session, RejectsAWelcomeWithoutASession) {
  lane::Welcome message = welcome();
  message.session = 0;
  EXPECT_EQ(refusal_of(message, with_bell(broker_page_file(), client_page_file())).code, Code::kInternal);
}

TEST(Session, OfABrokerThatSpeaksVersion2SaysWhatToDo) {
  lane::Welcome message = welcome();
  message.version = 2;
  const Error refused = refusal_of(message, with_bell(broker_page_file(), client_page_file()));
  EXPECT_EQ(refused.code, Code::kFailedPrecondition);
  EXPECT_NE(
      refused.message.find("the broker speaks version 2 of the lane, this library speaks 1: install the "
                           "same version on both sides"),
      std::string::npos)
      << refused.message;
}

TEST(Session, HasTheWordsOfABrokerThatRefusesItsVersion) {
  FakeLane lane([](int socket) {
    const Said hello = receive_frame(socket);
    EXPECT_EQ(hello.as<lane::Hello>().oldest, lane::kVersion);
    EXPECT_EQ(hello.as<lane::Hello>().newest, lane::kVersion);
    send_frame_of_version(2, socket, failed(Code::kFailedPrecondition, "install another"),
                          hello.header.request);
  });
  auto session = Session::connect(options(lane));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kFailedPrecondition);
  EXPECT_NE(session.error().message.find("install another"), std::string::npos) << session.error().message;
}

TEST(Session, RejectsAnAnswerThatIsNoWelcome) {
  EXPECT_EQ(refusal_of(lane::Done{}, {}).code, Code::kInternal);
}

TEST(Session, RejectsATruncatedWelcome) {
  FakeLane lane([](int socket) {
    const Said hello = receive_frame(socket);
    const lane::Outgoing frame(welcome(), hello.header.request);
    EXPECT_TRUE(send_packet(socket, frame.bytes().substr(0, frame.bytes().size() - 1)));
  });
  auto session = Session::connect(options(lane));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kInternal);
}

TEST(Session, RejectsAPacketThatIsTooLong) {
  FakeLane lane([](int socket) {
    receive_frame(socket);
    EXPECT_TRUE(send_packet(socket, std::string(lane::kMostBytes + 1, 'x')));
  });
  auto session = Session::connect(options(lane));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kInternal);
}

TEST(Session, RejectsPagesOfAnotherSize) {
  const char byte = 0;
  const Error short_page =
      refusal_of(welcome(), with_bell(memory_file(&byte, 1, kSharedPageBytes - 1), client_page_file()));
  EXPECT_EQ(short_page.code, Code::kFailedPrecondition);
  const Error long_page =
      refusal_of(welcome(), with_bell(broker_page_file(), memory_file(&byte, 1, 2 * kSharedPageBytes)));
  EXPECT_EQ(long_page.code, Code::kFailedPrecondition);
}

TEST(Session, RejectsABrokerPageOfAnotherMagicOrVersion) {
  BrokerPage page;
  initialize(page);
  page.header.magic ^= 1;
  EXPECT_EQ(
      refusal_of(welcome(), with_bell(memory_file(&page, sizeof page, kSharedPageBytes), client_page_file()))
          .code,
      Code::kFailedPrecondition);
  initialize(page);
  page.header.version = kPageVersion + 1;
  EXPECT_EQ(
      refusal_of(welcome(), with_bell(memory_file(&page, sizeof page, kSharedPageBytes), client_page_file()))
          .code,
      Code::kFailedPrecondition);
}

TEST(Session, TellsThatTheBrokerClosed) {
  FakeLane lane([](int socket) { receive_frame(socket); });
  auto session = Session::connect(options(lane));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kUnavailable);
}

TEST(Session, DoesNotWaitForASilentBrokerForEver) {
  std::promise<void> over;
  FakeLane lane([&](int socket) {
    receive_frame(socket);
    over.get_future().wait();
  });
  auto session = Session::connect(options(lane, milliseconds(20)));
  over.set_value();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kUnavailable);
}

TEST(Session, NamesTheSocketThatIsNotThere) {
  const TemporaryFolder folder;
  auto session = Session::connect({folder.path().string()});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_NE(session.error().message.find((folder.path() / "lane.sock").string()), std::string::npos);
  EXPECT_NE(session.error().message.find("is gpumemd running?"), std::string::npos);
}

TEST(Session, TellsALeftOverSocketFromABroker) {
  const TemporaryFolder folder;
  listen_at(folder.path() / "lane.sock").reset();
  auto session = Session::connect({folder.path().string()});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_NE(session.error().message.find("left over"), std::string::npos);
}

TEST(Session, RejectsALabelThatIsTooLong) {
  auto session = Session::connect({"/nowhere", std::string(kLabelBytes + 1, 'x')});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Code::kInvalidArgument);
}

TEST(Session, WhoseBrokerHasGoneSaysSo) {
  FakeLane lane(greet);
  auto session = Session::connect(options(lane));
  ASSERT_TRUE(session) << to_string(session.error());
  auto answered = session->ping();
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error().code, Code::kUnavailable);
  EXPECT_NE(answered.error().message.find("stays usable"), std::string::npos);
}

TEST(Session, ThatHasBeenMovedFromSaysSo) {
  FakeLane lane(greet);
  auto session = Session::connect(options(lane));
  ASSERT_TRUE(session) << to_string(session.error());
  const Session moved = std::move(*session);
  EXPECT_EQ(session->ping().error().code, Code::kFailedPrecondition);
}

// The child lives on while the parent leaves: the broker must see the end all the same.
TEST(Session, OfAForkedParentIsUnusableAndItsLaneIsNotHeldOpen) {
  std::promise<bool> ended;
  FakeLane lane([&](int socket) {
    greet(socket);
    const bool goodbye = receive_frame(socket).is<lane::Goodbye>();
    char byte = 0;
    ended.set_value(goodbye && ::recv(socket, &byte, 1, 0) == 0);
  });
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  pid_t child = -1;
  {
    auto session = Session::connect(options(lane));
    ASSERT_TRUE(session) << to_string(session.error());
    child = ::fork();
    if (child == 0) {
      char byte = 0;
      ::close(gate[1]);
      const bool refused = session->ping().error().code == Code::kFailedPrecondition &&
                           session->usage().error().code == Code::kFailedPrecondition;
      { const Session gone = std::move(*session); }
      ::_exit(::read(gate[0], &byte, 1) == 0 && refused ? 0 : 1);
    }
  }
  EXPECT_TRUE(ended.get_future().get());
  ::close(gate[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(gate[0]);
}

}  // namespace
}  // namespace gpumem::client::test
