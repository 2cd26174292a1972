// The commands of a session made by hand, whose memory goes its own ways; and those about the process itself.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "tests/support/client/test_client.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

constexpr std::uint64_t kFirstOfFlood = 1000;  // a request's number

Answer raw_grow(const Json& command, Holdings::Raw& raw) {
  const std::uint64_t slice = raw.lane->open_slice();
  FrameLane::Answer answer = raw.lane->grow(slice, {command.at("bytes")});
  if (!answer.is(lane::Kind::kGranted)) return failure(Error{Code::kInternal, "nothing was granted"});
  const auto granted = answer.as<lane::Granted>();
  for (std::size_t i = 0; i < granted.count; ++i) {
    raw.sizes.push_back(granted.leases[i].size);
    raw.leases.push_back(granted.leases[i].lease);
  }
  std::ranges::move(answer.descriptors, std::back_inserter(raw.extents));
  raw.slice = slice;
  raw.grant = granted.grant;
  raw.lane->send(lane::Accept{raw.grant});
  return {};
}

// Maps everything, and keeps the mapping alone.
Result<void> map(Holdings::Raw& raw) {
  auto driver = cuda::Driver::open(std::string(raw.welcome.driver_folder.view()));
  if (!driver) return driver.error();
  if (raw.extents.size() < raw.sizes.size()) return Error{Code::kUnavailable, "not every extent has come"};
  std::vector<cuda::Allocation> allocations;
  Bytes sum;
  for (std::size_t i = 0; i < raw.sizes.size(); ++i) {
    auto allocation = cuda::Allocation::import(**driver, raw.extents[i].get(), {raw.sizes[i]});
    if (!allocation) return allocation.error();
    sum += allocation->size();
    allocations.push_back(std::move(*allocation));
  }
  auto range = cuda::Reservation::create(**driver, sum, {});
  if (!range) return range.error();
  raw.range.emplace(std::move(*range));
  auto mapping = cuda::Mapping::create(**driver, raw.range->base(), allocations, 0);
  if (!mapping) return mapping.error();
  raw.mapping.emplace(std::move(*mapping));
  for (UniqueFd& descriptor : raw.extents) descriptor.reset();
  return {};
}

// Says that everything is given back, whatever is still mapped.
Answer raw_return(Holdings::Raw& raw) {
  lane::Return body{raw.slice, raw.leases.size(), {}};
  std::ranges::copy(raw.leases, body.leases.begin());
  const FrameLane::Answer answer = raw.lane->ask(body);
  if (answer.is(lane::Kind::kDone)) return {};
  return failure(Error{Code::kInternal, std::string(answer.as<lane::Failed>().message.view())});
}

// Memory that no broker knows of, of a process that the driver names: it has a context. `driver`  its folder,
// of a process without a session.
Answer take(const Json& command, Holdings& holdings) {
  auto driver = cuda::Driver::open(command.contains("driver") ? command.at("driver").get<std::string>()
                                                              : holdings.session->driver_folder());
  if (!driver) return failure(driver.error());
  static auto context = cuda::CurrentContext::enter(**driver, 0);
  if (!context) return failure(context.error());
  auto taken = cuda::Allocation::create(**driver, 0, {command.at("bytes").get<std::uint64_t>()});
  if (!taken) return failure(taken.error());
  holdings.taken.push_back(std::move(*taken));
  return {};
}

// Maps the memory that a fabric handle names, by the driver alone, and keeps the mapping alone.
Answer import_fabric(const Json& command, Holdings& holdings) {
  auto driver = cuda::Driver::open(command.at("driver").get<std::string>());
  if (!driver) return failure(driver.error());
  const auto bytes = command.at("handle").get<std::vector<int>>();
  cuda::FabricHandle handle{};
  std::copy(bytes.begin(), bytes.end(), handle.begin());
  const Bytes size{command.at("size").get<std::uint64_t>()};
  auto imported = cuda::Allocation::import(**driver, handle, size);
  if (!imported) return failure(imported.error());
  auto range = cuda::Reservation::create(**driver, size, {});
  if (!range) return failure(range.error());
  std::vector<cuda::Allocation> one;
  one.push_back(std::move(*imported));
  auto mapping = cuda::Mapping::create(**driver, range->base(), one, 0);
  if (!mapping) return failure(mapping.error());
  holdings.fabric.emplace(Holdings::Mapped{std::move(*range), std::move(*mapping)});
  return {};
}

// The simulated driver's memory is the host's, too.
Answer access_fabric(const Json& command, Holdings& holdings) {
  auto* const bytes = reinterpret_cast<volatile char*>(holdings.fabric->mapping.at());
  const char value = static_cast<char>(command.at("value").get<int>());
  const std::uint64_t size = holdings.fabric->mapping.size().count;
  for (std::uint64_t i = 0; i < size; i += 4096) {
    if (command.at("do") == "fabric_write")
      bytes[i] = value;
    else if (bytes[i] != value)
      return failure(Error{Code::kInternal, "byte " + std::to_string(i) + " is " + std::to_string(bytes[i])});
  }
  return {};
}

Answer raw_descriptors(Holdings::Raw& raw) {
  Answer answer;
  for (const UniqueFd& descriptor : raw.extents) answer.descriptors.push_back(descriptor.get());
  return answer;
}

// Asks for memory again and again, and never reads the lane. Tells how often until it was hung up on.
Answer raw_flood(const Json& command, Holdings::Raw& raw) {
  const lane::Grow grow = raw.lane->growth(raw.lane->open_slice(), {1});
  const std::uint64_t most = command.at("most");
  std::uint64_t asked = 0;
  while (asked < most && raw.lane->raw().send(lane::Outgoing(grow, kFirstOfFlood + asked).bytes())) ++asked;
  Answer answer;
  answer.json["asked"] = asked;
  return answer;
}

// Comes back for a session, its own or another's, without any of what that has.
Answer raw_claim(const Json& command, const std::string& runtime_folder) {
  FrameLane lane(runtime_folder);
  lane::Resume claim{};
  claim.oldest = lane::kVersion;
  claim.newest = lane::kVersion;
  claim.session = command.at("session");
  const FrameLane::Answer answer = lane.ask(claim);
  if (answer.is(lane::Kind::kWelcome)) return {};
  const auto refused = answer.as<lane::Failed>();
  return failure(Error{static_cast<Code>(refused.code), "the claim is refused"});
}

// A child that does nothing, and has whatever fork() leaves it.
Answer fork_idle() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    idle();
    ::_exit(0);
  }
  Answer answer;
  answer.json["pid"] = pid;
  return answer;
}

// What every call answers in a forked child.
Answer fork_and_use(Holdings& holdings) {
  int ends[2];
  if (::pipe(ends) != 0) return failure(errno_error(errno, "pipe"));
  if (::fork() == 0) {
    const auto code = [](const auto& result) {
      return result ? "OK" : std::string(code_name(result.error().code));
    };
    Json codes{{"ping", code(holdings.session->ping())},
               {"usage", code(holdings.session->usage())},
               {"open_slice", code(holdings.session->open_slice())}};
    for (auto& [name, slice] : holdings.slices) {
      codes["grow"] = code(slice.grow(slice.limit()));
      codes["shrink"] = code(slice.shrink({}));
    }
    holdings.slices.clear();  // does nothing here
    holdings.session.reset();
    const std::string text = codes.dump();
    const bool written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t length = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  ::wait(nullptr);
  if (length <= 0) return failure(Error{Code::kInternal, "the forked child said nothing"});
  text.resize(static_cast<std::size_t>(length));
  Answer answer;
  answer.json["codes"] = Json::parse(text);
  return answer;
}

}  // namespace

std::optional<Answer> raw_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  Holdings::Raw& raw = holdings.raw;
  if (what == "raw_connect") {
    raw.lane = std::make_unique<FrameLane>(holdings.runtime_folder);
    raw.welcome = raw.lane->greet();
    return Answer{};
  }
  if (what == "raw_claim") return raw_claim(command, holdings.runtime_folder);
  if (what == "raw_grow") return raw_grow(command, raw);
  if (what == "raw_accept_again") {
    raw.lane->send(lane::Accept{raw.grant});
    return Answer{};
  }
  if (what == "raw_flood") return raw_flood(command, raw);
  if (what == "raw_return") return raw_return(raw);
  if (what == "raw_descriptors") return raw_descriptors(raw);
  if (what == "raw_map") {
    auto mapped = map(raw);
    return mapped ? Answer{} : failure(mapped.error());
  }
  if (what == "raw_leave") {
    const bool told = !command.at("goodbye").get<bool>() || raw.lane->goodbye();
    raw.lane->raw().close();
    return told ? Answer{} : failure(Error{Code::kUnavailable, "the lane is closed"});
  }
  if (what == "raw_let_go") {
    for (UniqueFd& descriptor : raw.extents) descriptor.reset();
    raw.mapping.reset();
    return Answer{};
  }
  return std::nullopt;
}

std::optional<Answer> process_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "take") return take(command, holdings);
  if (what == "fabric_import") return import_fabric(command, holdings);
  if (what == "fabric_write" || what == "fabric_check") return access_fabric(command, holdings);
  if (what == "fabric_let_go") {
    holdings.fabric.reset();
    return Answer{};
  }
  if (what == "fork_idle") return fork_idle();
  if (what == "fork_and_use") return fork_and_use(holdings);
  if (what == "crash") ::raise(SIGKILL);
  if (what == "exec") {
    ::execl("/proc/self/exe", "test_client", "idle", nullptr);
    return failure(errno_error(errno, "exec"));
  }
  return std::nullopt;
}

}  // namespace gpumem::test
