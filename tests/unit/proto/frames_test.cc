// The lane's frames: what is sent is what comes, and what is not a frame is refused.
#include "proto/lane/frames.h"

#include <gtest/gtest.h>

#include <random>

namespace gpumem::lane {
namespace {

template <class Body>
std::string frame_of(const Body& body, std::uint64_t request = 7, std::uint64_t deadline = 9) {
  return std::string(Outgoing(body, request, deadline).bytes());
}

template <class Body>
Result<Body> read(std::string_view packet) {
  const auto frame = parse(packet);
  if (!frame) return frame.error();
  return body_of<Body>(*frame);
}

/// A body whose bytes are all different from zero, and whose texts and list are full.
template <class Body>
Body full() {
  Body body{};
  if constexpr (!std::is_empty_v<Body>) std::memset(static_cast<void*>(&body), 'x', sizeof body);
  if constexpr (Listed<Body>) body.count = (body.*Body::kList).size();
  return body;
}

template <class Body>
struct Frame : testing::Test {};
using Bodies =
    testing::Types<Hello, BeginJob, ReserveForJob, AnnounceContext, ContextDone, DescribeJob, JobBegun,
                   JobDescribed, OpenSlice, CloseSlice, Grow, Return, Charge, Ping, Cancel, Accept, Spent,
                   Goodbye, ExportHandle, ImportHandle, RevokeHandle, ReleaseImport, Publish, MapRegion,
                   MapOrReserve, ReleaseReservation, RemoveRegion, NameReserved, Published, RegionMapped,
                   HandleExported, Imported, Describe, Explain, Welcome, SliceOpened, Waiting, Granted, Done,
                   Failed, Described, Explained>;
TYPED_TEST_SUITE(Frame, Bodies);

TYPED_TEST(Frame, ComesAsItIsSent) {
  const auto body = full<TypeParam>();
  const std::string bytes = frame_of(body);
  EXPECT_LE(bytes.size(), kMostBytes);
  const auto frame = parse(bytes);
  ASSERT_TRUE(frame) << to_string(frame.error());
  EXPECT_EQ(frame->header.kind, TypeParam::kKind);
  EXPECT_EQ(frame->header.version, kVersion);
  EXPECT_EQ(frame->header.request, 7U);
  EXPECT_EQ(frame->header.deadline, 9U);
  const auto came = body_of<TypeParam>(*frame);
  ASSERT_TRUE(came) << to_string(came.error());
  EXPECT_EQ(frame_of(*came), bytes);
}

TYPED_TEST(Frame, OfNothingComesAsItIsSent) {
  const std::string bytes = frame_of(TypeParam{});
  const auto came = read<TypeParam>(bytes);
  ASSERT_TRUE(came) << to_string(came.error());
  EXPECT_EQ(frame_of(*came), bytes);
}

TYPED_TEST(Frame, OfAnyOtherLengthIsRefused) {
  const std::string bytes = frame_of(full<TypeParam>());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read<TypeParam>(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(read<TypeParam>(bytes + "x"));
  EXPECT_FALSE(read<TypeParam>(bytes + std::string(kMostBytes, 'x')));
}

TYPED_TEST(Frame, OfAnotherKindIsRefused) {
  std::string bytes = frame_of(TypeParam{});
  bytes[offsetof(Header, kind)] = static_cast<char>(bytes[offsetof(Header, kind)] ^ 0x40);
  EXPECT_EQ(read<TypeParam>(bytes).error().code, Code::kInvalidArgument);
}

TYPED_TEST(Frame, WhoseCountIsNotItsListsIsRefused) {
  if constexpr (Listed<TypeParam>) {
    auto body = full<TypeParam>();
    const std::string good = frame_of(body);
    const std::size_t at = sizeof(Header) + static_cast<std::size_t>(reinterpret_cast<char*>(&body.count) -
                                                                     reinterpret_cast<char*>(&body));
    const std::uint64_t most = body.count;
    for (const std::uint64_t count : {std::uint64_t{0}, most - 1, most + 1, ~std::uint64_t{0}}) {
      std::string bytes = good;
      std::memcpy(bytes.data() + at, &count, sizeof count);
      EXPECT_FALSE(read<TypeParam>(bytes)) << count;
    }
    body.count = 1;
    EXPECT_TRUE(read<TypeParam>(frame_of(body))) << "a list that is not full is as short as it is";
    EXPECT_LT(frame_of(body).size(), good.size());
  }
}

TEST(FrameHeader, OfAnotherMagicOrVersionIsRefused) {
  const std::string good = frame_of(Ping{});
  std::string bytes = good;
  bytes[0] = 'g';
  EXPECT_FALSE(parse(bytes));
  for (const int version : {0, kVersion + 1, 0xffff}) {
    const auto word = static_cast<std::uint16_t>(version);
    bytes = good;
    std::memcpy(bytes.data() + offsetof(Header, version), &word, sizeof word);
    EXPECT_FALSE(parse(bytes)) << version;
  }
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("GML"));
}

TEST(FrameHeader, OfAGreetingOrAFailureIsReadInEveryVersion) {
  for (std::string bytes : {frame_of(Hello{}), frame_of(Resume{}), frame_of(Welcome{}), frame_of(Failed{})}) {
    bytes[offsetof(Header, version)] = 2;
    EXPECT_TRUE(parse(bytes));
  }
}

/// A text of `body` that goes on after its end.
template <class Body, class Text>
bool is_refused(Body body, Text Body::*text) {
  (body.*text) = Text::of("ab");
  (body.*text).bytes.back() = 'x';
  return !read<Body>(frame_of(body));
}

TEST(FrameText, IsPaddedWithZeros) {
  EXPECT_TRUE(is_refused(Hello{}, &Hello::label));
  EXPECT_TRUE(is_refused(OpenSlice{}, &OpenSlice::label));
  EXPECT_TRUE(is_refused(Welcome{}, &Welcome::tenant));
  EXPECT_TRUE(is_refused(Explained{}, &Explained::tenant));
  EXPECT_TRUE(is_refused(Publish{}, &Publish::name));
  EXPECT_TRUE(is_refused(MapRegion{}, &MapRegion::owner));
  EXPECT_TRUE(is_refused(MapRegion{}, &MapRegion::name));
  EXPECT_TRUE(is_refused(RemoveRegion{}, &RemoveRegion::name));
  Publish publish{};
  publish.readers[7].bytes.back() = 'x';
  EXPECT_FALSE(read<Publish>(frame_of(publish)));
  Described described{};
  described.count = 1;
  described.slices[0].label.bytes.back() = 'x';
  EXPECT_FALSE(read<Described>(frame_of(described)));
  EXPECT_TRUE(is_refused(Welcome{}, &Welcome::driver_folder));
  EXPECT_TRUE(is_refused(Failed{}, &Failed::message));
  Welcome welcome{};
  welcome.count = 2;
  welcome.devices[1].bytes[40] = 'x';
  EXPECT_FALSE(read<Welcome>(frame_of(welcome)));
  Failed failed{};
  failed.denial.soonest_why.bytes[1] = 'x';
  EXPECT_FALSE(read<Failed>(frame_of(failed)));
  failed = {};
  failed.count = 1;
  failed.holders[0].command.bytes[1] = 'x';
  EXPECT_FALSE(read<Failed>(frame_of(failed)));
}

TEST(FrameText, HoldsAsMuchAsThereIsRoomFor) {
  EXPECT_EQ(Text<4>::of("ab").view(), "ab");
  EXPECT_EQ(Text<4>::of("abcd").view(), "abcd");
  EXPECT_EQ(Text<4>::of("abcde").view(), "abcd");
  EXPECT_EQ(Text<4>::of("").view(), "");
  EXPECT_TRUE(Text<4>::of("abcde").is_padded());
}

/// Reads `packet` as every kind; what is accepted comes back as it was.
template <class... Body>
void read_as(std::string_view packet, const testing::Types<Body...>&) {
  const auto check = [&]<class B>(const B*) {
    const auto body = read<B>(packet);
    if (!body) return;
    const auto frame = parse(packet);
    EXPECT_EQ(frame_of(*body, frame->header.request, frame->header.deadline).substr(sizeof(Header)),
              packet.substr(sizeof(Header)));
  };
  (check(static_cast<const Body*>(nullptr)), ...);
}

TEST(RandomFrame, IsRefusedOrReadAsItIs) {
  const auto seed = static_cast<std::uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937 random(seed != 0 ? seed : std::random_device{}());
  const std::uint32_t used = static_cast<std::uint32_t>(random());
  SCOPED_TRACE("seed " + std::to_string(used));
  std::printf("seed %u\n", used);
  random.seed(used);
  const std::string good[] = {frame_of(full<Hello>()),   frame_of(full<Grow>()),    frame_of(full<Return>()),
                              frame_of(full<Granted>()), frame_of(full<Welcome>()), frame_of(full<Failed>()),
                              frame_of(Done{}),          frame_of(full<Charge>())};
  for (int round = 0; round < 3000; ++round) {
    std::string packet(random() % (kMostBytes + 16), '\0');
    for (char& byte : packet) byte = static_cast<char>(random());
    if (round % 3 != 0) packet = good[random() % std::size(good)];
    for (std::size_t i = random() % 8; i > 0 && !packet.empty(); --i)
      packet[random() % std::min<std::size_t>(packet.size(), round % 2 == 0 ? 64 : 5000)] =
          static_cast<char>(random());
    if (random() % 4 == 0) packet.resize(random() % (packet.size() + 2));
    read_as(packet, Bodies());
  }
}

}  // namespace
}  // namespace gpumem::lane
