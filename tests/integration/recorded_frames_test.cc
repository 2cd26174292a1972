// A recorded session of an older version of the frames is answered as it was when it was recorded.
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "tests/integration/fixture.h"
#include "tests/support/frame_lane.h"
#include "tests/support/hex.h"

namespace gpumem::test {
namespace {

// Stands for what an answer has that differs each time; a recorded handle is replaced by the one that was
// exported last, a recorded reservation by the one that was made last.
constexpr std::string_view kRecordedUuid = "GPU-00000000-0000-4000-8000-000000000000";
constexpr std::uint64_t kRecordedReservation = 1;
const lane::HandleBytes kRecordedHandle = lane::Text<64>::of("GPUMEMH1 recorded").bytes;

std::string with(const std::string& bytes, const lane::HandleBytes& from, const lane::HandleBytes& to) {
  std::string changed = bytes;
  const auto at = changed.find(std::string_view(from.data(), from.size()));
  if (at != std::string::npos) changed.replace(at, to.size(), to.data(), to.size());
  return changed;
}

/// A session by its packets.
class RecordedFrames {
 public:
  explicit RecordedFrames(const std::string& folder) : lane_(folder) {}

  void send(const std::string& packet) {
    if (kind_of(packet) == lane::Kind::kReturn || kind_of(packet) == lane::Kind::kReleaseImport)
      descriptors_.clear();  // they say that the memory is released
    EXPECT_TRUE(lane_.raw().send(with_reservation(with(packet, kRecordedHandle, handle_))));
  }
  /// As a record has it.
  std::string receive() {
    FrameLane::Answer answer = lane_.receive();
    const std::size_t count = answer.descriptors.size();
    for (UniqueFd& one : answer.descriptors) descriptors_.push_back(std::move(one));
    std::string bytes(reinterpret_cast<const char*>(&answer.header), sizeof answer.header);
    return std::to_string(count) + " " + to_hex(bytes + body_of_record(answer));
  }

 private:
  static lane::Kind kind_of(const std::string& packet) {
    const auto frame = lane::parse(packet);
    return frame ? frame->header.kind : lane::Kind{};
  }
  std::string with_reservation(const std::string& packet) const {
    const auto frame = lane::parse(packet);
    if (!frame || frame->header.kind != lane::Kind::kReleaseReservation) return packet;
    const auto release = lane::body_of<lane::ReleaseReservation>(*frame);
    if (!release || release->reservation != kRecordedReservation) return packet;
    return std::string(lane::Outgoing(lane::ReleaseReservation{reservation_}, frame->header.request).bytes());
  }
  template <class Body>
  static std::string bytes_of(const Body& body) {
    return std::string(lane::Outgoing(body).bytes().substr(sizeof(lane::Header)));
  }

  std::string body_of_record(const FrameLane::Answer& answer) {
    switch (answer.header.kind) {
      case lane::Kind::kWelcome: {
        auto welcome = answer.as<lane::Welcome>();
        EXPECT_FALSE(welcome.tenant.view().empty());
        EXPECT_FALSE(welcome.driver_folder.view().empty());
        EXPECT_EQ(welcome.devices[0].view().size(), kRecordedUuid.size());
        welcome.tenant = {};
        welcome.driver_folder = {};
        welcome.devices[0] = lane::Text<48>::of(kRecordedUuid);
        return bytes_of(welcome);
      }
      case lane::Kind::kHandleExported: {
        auto exported = answer.as<lane::HandleExported>();
        EXPECT_NE(exported.expires, 0U);
        handle_ = exported.handle;
        return bytes_of(lane::HandleExported{kRecordedHandle, 0});
      }
      case lane::Kind::kWaiting: return bytes_of(lane::Waiting{});
      case lane::Kind::kNameReserved: {
        const auto reserved = answer.as<lane::NameReserved>();
        EXPECT_NE(reserved.expires, 0U);
        reservation_ = reserved.reservation;
        return bytes_of(lane::NameReserved{kRecordedReservation, 0});
      }
      case lane::Kind::kExplained: {
        auto explained = answer.as<lane::Explained>();
        explained.tenant = {};
        return bytes_of(explained);
      }
      case lane::Kind::kFailed: {  // in words that may become better ones
        const auto failed = answer.as<lane::Failed>();
        EXPECT_FALSE(failed.message.view().empty());
        lane::Failed recorded{};
        recorded.code = failed.code;
        recorded.denial.reason = failed.denial.reason;
        return bytes_of(recorded);
      }
      default: return answer.body;
    }
  }

  FrameLane lane_;
  std::vector<UniqueFd> descriptors_;
  lane::HandleBytes handle_ = kRecordedHandle;
  std::uint64_t reservation_ = 0;
};

constexpr std::array<std::uint16_t, 2> kRecordedVersions{6, 8};
static_assert(kRecordedVersions.back() == lane::kVersion - 1,
              "record a session of the version before this one, with all that it has: recorded/lane-N.txt");

class RecordedInFrames : public BrokerTest, public testing::WithParamInterface<std::uint16_t> {};

// GPUMEM_TEST_RECORD: a file to write the session to, with the answers of this broker.
TEST_P(RecordedInFrames, SessionIsAnsweredAsRecorded) {
  std::ifstream record(GPUMEM_TEST_RECORDED "/lane-" + std::to_string(GetParam()) + ".txt");
  ASSERT_TRUE(record);
  const char* const file = std::getenv("GPUMEM_TEST_RECORD");
  std::ofstream anew(file == nullptr ? "/dev/null" : file);
  std::optional<RecordedFrames> session(std::in_place, broker_.folder());
  int steps = 0;
  for (std::string line; std::getline(record, line);) {
    std::istringstream words(line);
    std::string direction, rest;
    words >> direction;
    std::getline(words >> std::ws, rest);
    if (direction == ">") session->send(from_hex(rest));
    if (direction == "<") {
      const std::string answer = session->receive();
      line = "< " + answer;
      EXPECT_TRUE(answer == rest || file != nullptr)
          << "step " << steps << ": " << answer << " in place of " << rest;
    }
    if (direction != "#") ++steps;
    anew << line << "\n";
  }
  EXPECT_GT(steps, 40);
  session.reset();
  expect_rest();
}

INSTANTIATE_TEST_SUITE_P(OfVersion, RecordedInFrames, testing::ValuesIn(kRecordedVersions),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpumem::test
