// Regions in memory of the machine: one copy of a data set for processes that read it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "gpumem/session.h"
#include "tests/integration/regions/region_fixture.h"
#include "tests/support/in_child.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

const std::string kWithStore = std::string("[host]\nsize = \"256MiB\"\n");
constexpr Bytes kRegionBytes = mebibytes(16);
constexpr std::uint64_t kHost = 1;  // its place behind the one device

char* pointer(std::uint64_t at) { return reinterpret_cast<char*>(at); }

struct HostRegion : RegionTest {
  explicit HostRegion(const std::string& config = std::string(kSomeSpare) + kWithStore)
      : RegionTest({.config = config}) {}

  Bytes charged() const {
    const v1::DeviceStatus store = broker_.device(1);
    return {store.offered() + store.active() + store.returning() + store.quarantined()};
  }
  bool is_whole() const { return charged().is_zero(); }
  /// A client whose slice "a" of the store is as large as that.
  std::unique_ptr<ClientProcess> client_of_store(Bytes bytes = {}, std::optional<User> user = {}) {
    auto one = std::make_unique<ClientProcess>(broker_.folder(), ClientOptions{.user = user});
    EXPECT_TRUE(succeeded(one->connect("test", client_timeout_)));
    EXPECT_TRUE(succeeded(one->open("a", {}, "host")));
    if (!bytes.is_zero()) {
      EXPECT_TRUE(succeeded(one->grow("a", bytes)));
    }
    return one;
  }
  /// As publisher(), of the store.
  std::unique_ptr<ClientProcess> publisher_of_store(int value, std::optional<User> user = {},
                                                    const Json& more = Json::object()) {
    auto one = client_of_store(kRegionBytes, std::move(user));
    EXPECT_TRUE(succeeded(one->write("a", value)));
    EXPECT_TRUE(succeeded(publish(*one, more)));
    return one;
  }
  /// In the test's own process, which no broker ends.
  Session& own() {
    if (!session_)
      session_.emplace(*Session::connect({.runtime_folder = broker_.folder(), .timeout = client_timeout_}));
    return *session_;
  }
  void await_rest() {
    EXPECT_TRUE(eventually([&] { return is_whole(); })) << charged().count;
  }

  std::optional<Session> session_;
};

TEST_F(HostRegion, IsOneCopyThatItsPublishersTenantPaysOnce) {
  auto writer = publisher_of_store(7);
  const Bytes before = charged();
  std::vector<std::unique_ptr<ClientProcess>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(client_of_store());
    ASSERT_TRUE(succeeded(map(*readers.back())));
    EXPECT_TRUE(succeeded(check(*readers.back(), 7)));
  }
  EXPECT_EQ(charged(), before);
  readers.front()->tell({{"do", "store"}});
  EXPECT_EQ(readers.front()->child().wait(), -SIGSEGV) << "it is mapped for reading";
  EXPECT_TRUE(succeeded(check(*readers.back(), 7)));
  writer->kill();
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 2; }));
  EXPECT_TRUE(succeeded(check(*readers.back(), 7))) << "it passes to a reader";
  EXPECT_EQ(charged(), before);
  for (std::size_t i = 1; i < readers.size(); ++i) EXPECT_EQ(readers[i]->leave(), 0);
  await_rest();
}

TEST_F(HostRegion, ProcessesOfItsTenantWriteToItTogether) {
  auto writer = publisher_of_store(7);
  auto mate = client_of_store(), reader = client_of_store();
  const Json writable{{"writable", true}};
  ASSERT_TRUE(succeeded(map(*mate, writable)));
  ASSERT_TRUE(succeeded(map(*reader)));
  ASSERT_TRUE(succeeded(mate->ask({{"do", "write"}, {"import", "i"}, {"value", 9}})));
  EXPECT_TRUE(succeeded(check(*reader, 9)));
  Json or_reserved{{"do", "map_or_reserve"}, {"region", "weights"}, {"import", "j"}};
  or_reserved.update(writable);
  ASSERT_TRUE(succeeded(mate->ask(or_reserved)));
  EXPECT_TRUE(succeeded(mate->ask({{"do", "write"}, {"import", "j"}, {"value", 5}})));
  EXPECT_TRUE(succeeded(writer->check("a", 5)));
  expect_to_leave(*mate, *reader, *writer);
  await_rest();
}

TEST_F(HostRegion, OfASealedOneTheWritersAreTold) {
  auto writer = publisher_of_store(7, {}, {{"sealed", true}});
  auto mate = client_of_store();
  EXPECT_TRUE(failed_with(map(*mate, {{"writable", true}}), "FAILED_PRECONDITION"));
  ASSERT_TRUE(succeeded(map(*mate)));
  writer->tell({{"do", "store"}, {"slice", "a"}});
  EXPECT_EQ(writer->child().wait(), -SIGSEGV);
  EXPECT_TRUE(succeeded(check(*mate, 7)));
  EXPECT_EQ(mate->leave(), 0);
}

TEST_F(HostRegion, KeptOnesSurviveTheirPublisherAndTheBrokersUpgrade) {
  auto writer = publisher_of_store(7, {}, {{"keep", true}});
  writer->kill();
  EXPECT_TRUE(eventually([&] {
    const auto sessions = broker_.sessions();
    return sessions.size() == 1 && sessions.at(0).detached();
  }));
  ASSERT_EQ(broker_.upgrade().status, 0);
  auto reader = client_of_store();
  ASSERT_TRUE(succeeded(map(*reader, {{"adopt", true}})));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_GE(charged(), kRegionBytes);
  EXPECT_EQ(reader->leave(), 0);
  await_rest();
}

TEST_F(HostRegion, IsUnmappedAndMappedAgainAtItsAddresses) {
  auto writer = publisher_of_store(7);
  auto region = own().map_region("weights", {.owner = {}, .device = "host"});
  ASSERT_TRUE(region) << region.error().message;
  const std::uint64_t at = region->address();
  EXPECT_EQ(region->device(), "host");
  EXPECT_EQ(region->ordinal(), -1);
  ASSERT_TRUE(region->unmap());
  ASSERT_TRUE(region->remap());
  EXPECT_EQ(region->address(), at);
  EXPECT_EQ(*pointer(at), 7);
  EXPECT_EQ(own().map_region("weights", {.owner = {}, .access = {broker_.device().uuid()}}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(writer->leave(), 0);
}

// The memory passes by a handle, too.
TEST_F(HostRegion, AHandleIsOfTheStoreAsWell) {
  auto slice = own().open_slice({.device = "host"});
  ASSERT_TRUE(slice) << slice.error().message;
  ASSERT_TRUE(slice->grow(kRegionBytes));
  *pointer(slice->base()) = 3;
  const auto handle = slice->export_handle();
  ASSERT_TRUE(handle) << handle.error().message;
  auto import = own().import_handle(*handle);
  ASSERT_TRUE(import) << import.error().message;
  *pointer(import->address()) += 1;
  EXPECT_EQ(*pointer(slice->base()), 4);
}

// ---- Memory that somebody keeps ----

TEST_F(HostRegion, AForkedWorkerReadsItAndTheMemoryIsChargedAsLongAsTheWorkerHasIt) {
  auto writer = publisher_of_store(7);
  int go[2], done[2];
  ASSERT_EQ(::pipe(go), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t parent = ::fork();  // a process of its own, which dies before its worker
  if (parent == 0) {
    auto session = Session::connect({.runtime_folder = broker_.folder(), .timeout = client_timeout_});
    auto region = session->map_region("weights");
    if (!region) ::_exit(1);
    if (::fork() == 0) {
      char byte = 0;
      ::close(go[1]);
      const auto ignored = ::read(go[0], &byte, 1);  // until the test ends
      ::_exit(static_cast<int>(ignored));
    }
    const bool is_read = in_child([&] { return *pointer(region->address()) == 7; });
    const char told = is_read ? 'y' : 'n';
    if (::write(done[1], &told, 1) != 1) ::_exit(2);
    ::raise(SIGKILL);
  }
  ::close(done[1]);
  char told = 0;
  ASSERT_EQ(::read(done[0], &told, 1), 1);
  EXPECT_EQ(told, 'y');
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  writer->kill();
  EXPECT_TRUE(eventually([&] { return broker_.device(1).quarantined() >= kRegionBytes.count; }));
  for (const int end : {go[0], go[1], done[0]}) ::close(end);
  await_rest();
}

TEST_F(HostRegion, AMappingThatAProcessKeepsStaysChargedUntilItIsGone) {
  auto writer = publisher_of_store(7);
  auto region = own().map_region("weights");
  ASSERT_TRUE(region) << region.error().message;
  // A second mapping of the first page, as a program that lies would keep it.
  void* const page = ::mremap(pointer(region->address()), 0, 4096, MREMAP_MAYMOVE);
  ASSERT_NE(page, MAP_FAILED);
  region = Error{Code::kCancelled, "unmapped"};
  EXPECT_EQ(writer->leave(), 0);
  EXPECT_TRUE(eventually([&] { return broker_.device(1).quarantined() != 0; })) << "its extent";
  EXPECT_EQ(broker_.upgrade().status, 0);
  EXPECT_NE(broker_.device(1).quarantined(), 0U) << "the next broker has its descriptor";
  EXPECT_EQ(*static_cast<char*>(page), 7) << "and nobody else is given it";
  ASSERT_EQ(::munmap(page, 4096), 0);
  await_rest();
}

// ---- What a hostile client does with its descriptors ----

/// Frames by hand: the descriptors that the broker gives.
struct HostDescriptors : HostRegion {
  explicit HostDescriptors(const std::string& config = std::string(kSomeSpare) + kWithStore)
      : HostRegion(config), lane_(broker_.folder()) {
    lane_.greet();
  }
  lane::Granted lend(bool is_private) {
    lane::OpenSlice opening{kHost, 0, {}, is_private ? 1U : 0U};
    slice_ = lane_.ask(opening).as<lane::SliceOpened>().slice;
    auto answer = lane_.grow(slice_, kRegionBytes);
    descriptors_ = std::move(answer.descriptors);
    const auto granted = answer.as<lane::Granted>();
    lane_.send(lane::Accept{granted.grant});
    return granted;
  }
  FrameLane::Answer publish_frame(const lane::Granted& granted) {
    lane::Publish request{};
    request.name = lane::RegionName::of("weights");
    request.slice = slice_;
    request.count = granted.count;
    for (std::size_t i = 0; i < granted.count; ++i) request.leases[i] = granted.leases[i].lease;
    return lane_.ask(request);
  }
  FrameLane::Answer map_frame(lane::MapAs as) {
    return lane_.ask(lane::MapRegion{{}, lane::RegionName::of("weights"), 0, as, 0});
  }
  static bool is_refused(int result, int expected) { return result < 0 && errno == expected; }

  FrameLane lane_;
  std::uint64_t slice_ = 0;
  std::vector<UniqueFd> descriptors_;
};

TEST_F(HostDescriptors, AReadersIsForReadingWhateverItTries) {
  const auto granted = lend(false);
  ASSERT_TRUE(publish_frame(granted).is(lane::Kind::kPublished));
  auto mapped = map_frame(lane::MapAs::kReader);
  ASSERT_TRUE(mapped.is(lane::Kind::kRegionMapped));
  const int file = mapped.descriptors.at(0).get();
  EXPECT_EQ(::fcntl(file, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_TRUE(is_refused(::ftruncate(file, 0), EINVAL));
  EXPECT_TRUE(is_refused(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EBADF));
  EXPECT_TRUE(is_refused(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), EPERM));
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  void* const page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_TRUE(is_refused(::mprotect(page, 4096, PROT_READ | PROT_WRITE), EACCES));
  EXPECT_TRUE(is_refused(::madvise(page, 4096, MADV_REMOVE), EACCES));
  if (::geteuid() == 0) {
    EXPECT_TRUE(in_child([&] {  // as any user but the broker's
      const std::string path = "/proc/self/fd/" + std::to_string(file);
      return ::setgid(kAnn.gid) == 0 && ::setuid(kAnn.uid) == 0 && ::open(path.c_str(), O_RDWR) < 0 &&
             ::fchmod(file, 0666) != 0 && ::fcntl(file, F_SETLEASE, F_RDLCK) != 0;
    }));
  }
  EXPECT_EQ(::fcntl(map_frame(lane::MapAs::kWriter).descriptors.at(0).get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(HostDescriptors, APublisherTakesNothingAwayFromAReader) {
  const auto granted = lend(false);
  const int file = descriptors_.at(0).get();
  ASSERT_EQ(::pwrite(file, "data", 4, 0), 4);
  ASSERT_TRUE(publish_frame(granted).is(lane::Kind::kPublished));
  auto reader = own().map_region("weights");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_TRUE(is_refused(::ftruncate(file, 0), EPERM));
  EXPECT_TRUE(is_refused(::ftruncate(file, static_cast<off_t>(2 * kRegionBytes.count)), EPERM));
  EXPECT_TRUE(is_refused(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), EPERM));
  EXPECT_TRUE(in_child([&] { return std::memcmp(pointer(reader->address()), "data", 4) == 0; }));
  // A hole is as good as zeros that the publisher writes.
  ASSERT_EQ(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(granted.leases[0].size)),
            0);
  EXPECT_TRUE(in_child([&] { return *pointer(reader->address()) == 0; }));
}

TEST_F(HostDescriptors, MemoryForOneProcessIsNeverPublished) {
  const auto granted = lend(true);
  const auto answer = publish_frame(granted);
  ASSERT_TRUE(answer.is(lane::Kind::kFailed));
  EXPECT_EQ(answer.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kFailedPrecondition));
  lane::ExportHandle handle{};
  handle.slice = slice_;
  handle.count = 1;
  handle.leases[0] = granted.leases[0].lease;
  EXPECT_TRUE(lane_.ask(handle).is(lane::Kind::kFailed));
}

// ---- Other tenants ----

struct HostRegionsOfLab : HostRegion {
  HostRegionsOfLab() : HostRegion(shared(kLab) + kWithStore) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(HostRegionsOfLab, AreMappedByTheTenantsThatTheyAreSharedWith) {
  auto ann = publisher_of_store(7, test_user(10'001), {{"sharing", kGroup}});
  auto bob = client_of_store({}, test_user(10'002)), zoe = client_of_store({}, test_user(10'003));
  const Json of_ann{{"owner", "ann"}};
  ASSERT_TRUE(succeeded(map(*bob, of_ann)));
  EXPECT_TRUE(succeeded(check(*bob, 7)));
  EXPECT_TRUE(failed_with(map(*zoe, of_ann), "NOT_FOUND"));
  EXPECT_TRUE(failed_with(map(*bob, {{"owner", "ann"}, {"writable", true}}), "PERMISSION_DENIED"));
  bob->kill();
  EXPECT_TRUE(succeeded(ann->check("a", 7)));
  expect_to_leave(*zoe, *ann);
  await_rest();
}

}  // namespace
}  // namespace gpumem::test
