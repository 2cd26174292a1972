#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "cuda/memory.h"
#include "gpumem/allocator.h"
#include "gpumem/session.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {

using Json = nlohmann::json;

/// The answer to a command, with its descriptors.
struct Answer {
  Json json{{"ok", true}};
  std::vector<int> descriptors;
};
Answer failure(const Error& error);
Answer failure(const GrowError& error);

class SessionStream;

/// The program's objects: a session of the library's, one made by hand, and one by gRPC.
struct Holdings {
  std::string runtime_folder;
  std::optional<Session> session;
  std::map<std::string, Slice> slices;
  std::map<std::string, Import> imports;
  std::optional<Allocator> allocator;
  std::vector<cuda::Allocation> taken;  ///< past the broker
  struct Mapped {
    cuda::Reservation range;
    cuda::Mapping mapping;
  };
  std::optional<Mapped> fabric;  ///< imported by a fabric handle

  struct Raw {
    std::unique_ptr<FrameLane> lane;
    lane::Welcome welcome{};
    std::uint64_t grant = 0;  ///< the latest
    std::uint64_t slice = 0;
    std::vector<UniqueFd> extents;
    std::vector<std::uint64_t> sizes;   ///< of the extents
    std::vector<std::uint64_t> leases;  ///< likewise
    std::optional<cuda::Reservation> range;
    std::optional<cuda::Mapping> mapping;
  } raw;
  std::shared_ptr<SessionStream> stream;
  std::string stream_device;
};

/// Carries out `command`, whichever it is.
Answer carry_out(const Json& command, Holdings& holdings);

/// The commands of the library, its regions apart, of an allocator, of the raw session, of that by gRPC, of
/// processes, and of calls at a steady pace.
std::optional<Answer> session_command(const Json& command, Holdings& holdings);
std::optional<Answer> region_command(const Json& command, Holdings& holdings);
std::optional<Answer> allocator_command(const Json& command, Holdings& holdings);
std::optional<Answer> raw_command(const Json& command, Holdings& holdings);
std::optional<Answer> stream_command(const Json& command, Holdings& holdings);
std::optional<Answer> process_command(const Json& command, Holdings& holdings);
std::optional<Answer> paced_command(const Json& command, Holdings& holdings);

/// Connects, grows, writes, shrinks and leaves at random until it is killed. Ends with 3 if the broker goes,
/// with 4 on an error that no client should see.
[[noreturn]] void storm(const std::string& runtime_folder, unsigned seed);

/// Waits until the test has gone or wants the process to end.
void idle();

}  // namespace gpumem::test
