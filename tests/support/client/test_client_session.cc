// The commands that use the library, and the storm.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "tests/support/client/test_client.h"
#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

using std::chrono::milliseconds;

// Memory of a device, or of the host store.
struct Memory {
  std::uint64_t address = 0;
  Bytes size;
  int ordinal = 0;
};
Memory memory_of(const Slice& slice) { return {slice.base(), slice.committed(), slice.ordinal()}; }

// Of the slice, or the import, that the command names.
Memory memory_of(const Json& command, const Holdings& holdings) {
  if (command.contains("slice")) return memory_of(holdings.slices.at(command.at("slice")));
  const Import& import = holdings.imports.at(command.at("import"));
  return {import.address(), import.size(), import.ordinal()};
}

Result<void> fill(const cuda::Driver& driver, const Memory& memory, int value) {
  if (memory.ordinal < 0) {  // of the host store
    std::memset(reinterpret_cast<void*>(memory.address), value, memory.size.count);
    return {};
  }
  auto context = cuda::CurrentContext::enter(driver, memory.ordinal);
  if (!context) return context.error();
  return driver.check(
      driver.api().cuMemsetD8(memory.address, static_cast<unsigned char>(value), memory.size.count),
      "cuMemsetD8");
}

Result<void> copy_out(const cuda::Driver& driver, const Memory& memory, unsigned char* to) {
  if (memory.ordinal < 0) {
    std::memcpy(to, reinterpret_cast<const void*>(memory.address), memory.size.count);
    return {};
  }
  auto context = cuda::CurrentContext::enter(driver, memory.ordinal);
  if (!context) return context.error();
  return driver.check(driver.api().cuMemcpyDtoH(to, memory.address, memory.size.count), "cuMemcpyDtoH");
}

Result<void> compare(const cuda::Driver& driver, const Memory& memory, int value) {
  std::vector<unsigned char> copy(memory.size.count);
  if (auto copied = copy_out(driver, memory, copy.data()); !copied) return copied;
  for (std::size_t i = 0; i < copy.size(); ++i) {
    if (copy[i] == value) continue;
    return Error{Code::kInternal, "byte " + std::to_string(i) + " is " + std::to_string(copy[i])};
  }
  return {};
}

using Access = Result<void> (*)(const cuda::Driver&, const Memory&, int);

Answer access(const Json& command, Holdings& holdings, Access how) {
  auto driver = cuda::Driver::open(holdings.session->driver_folder());
  if (!driver) return failure(driver.error());
  auto done = how(**driver, memory_of(command, holdings), command.at("value"));
  return done ? Answer{} : failure(done.error());
}

Answer connect(const Json& command, Holdings& holdings) {
  const std::chrono::milliseconds timeout(command.value("timeout_ms", milliseconds(kPatience).count()));
  auto session = Session::connect({holdings.runtime_folder, command.at("label"), timeout});
  if (!session) return failure(session.error());
  holdings.session.emplace(std::move(*session));
  Answer answer;
  answer.json["session"] = holdings.session->id();
  answer.json["tenant"] = holdings.session->tenant();
  answer.json["job"] = holdings.session->job();
  return answer;
}

Answer begin_job(const Json& command, Holdings& holdings) {
  const auto job = holdings.session->begin_job({"job", {command.at("limit").get<std::uint64_t>()}, 0});
  if (!job) return failure(job.error());
  Answer answer;
  answer.json["job"] = *job;
  return answer;
}

Answer reserve_for_job(const Json& command, Holdings& holdings) {
  const auto reserved =
      holdings.session->reserve_for_job(command.at("device"), {command.at("bytes").get<std::uint64_t>()}, {});
  return reserved ? Answer{} : failure(reserved.error());
}

Answer job_account(Holdings& holdings) {
  const auto account = holdings.session->job_account();
  if (!account) return failure(account.error());
  Answer answer;
  answer.json["peak"] = account->peak.count;
  answer.json["denied"] = account->denied;
  return answer;
}

Answer open(const Json& command, Holdings& holdings) {
  auto slice = holdings.session->open_slice({command.at("device"),
                                             {command.at("limit").get<std::uint64_t>()},
                                             command.at("slice"),
                                             command.value("trim", false)});
  if (!slice) return failure(slice.error());
  Answer answer;
  answer.json["limit"] = slice->limit().count;
  answer.json["device"] = slice->device();
  holdings.slices.insert_or_assign(command.at("slice"), std::move(*slice));
  return answer;
}

Answer grow(const Json& command, Holdings& holdings) {
  auto grown = holdings.slices.at(command.at("slice"))
                   .grow({command.at("target").get<std::uint64_t>()},
                         {milliseconds(command.at("wait_ms").get<std::int64_t>()),
                          {command.value("least", std::uint64_t{0})}});
  if (!grown) return failure(grown.error());
  Answer answer;
  answer.json["committed"] = grown->count;
  return answer;
}

Answer grow_all(const Json& command, Holdings& holdings) {
  std::vector<GrowStep> steps;
  for (const Json& step : command.at("steps")) {
    steps.push_back({&holdings.slices.at(step.at("slice")), {step.at("target").get<std::uint64_t>()}});
  }
  auto grown = holdings.session->grow_all(steps);
  return grown ? Answer{} : failure(grown.error());
}

Answer set_in_use(const Json& command, Holdings& holdings) {
  Answer answer;
  answer.json["all_there"] =
      holdings.slices.at(command.at("slice")).set_in_use({command.at("bytes").get<std::uint64_t>()});
  return answer;
}

Answer committed(const Json& command, Holdings& holdings) {
  Answer answer;
  answer.json["committed"] = holdings.slices.at(command.at("slice")).committed().count;
  return answer;
}

Answer charge(const Json& command, Holdings& holdings) {
  auto charged = holdings.session->charge(command.at("device"), {command.at("bytes").get<std::uint64_t>()});
  return charged ? Answer{} : failure(charged.error());
}

Answer shrink(const Json& command, Holdings& holdings) {
  auto left = holdings.slices.at(command.at("slice")).shrink({command.at("target").get<std::uint64_t>()});
  if (!left) return failure(left.error());
  Answer answer;
  answer.json["committed"] = left->count;
  return answer;
}

Answer export_handle(const Json& command, Holdings& holdings) {
  auto handle = holdings.slices.at(command.at("slice"))
                    .export_handle({command.value("offset", std::uint64_t{0})},
                                   {command.value("bytes", std::uint64_t{0})},
                                   {milliseconds(60'000), command.value("uses", std::uint64_t{1})});
  if (!handle) return failure(handle.error());
  Answer answer;
  answer.json["handle"] = std::vector<int>(std::begin(handle->bytes), std::end(handle->bytes));
  return answer;
}

Answer import_handle(const Json& command, Holdings& holdings) {
  IpcHandle handle{};
  const auto bytes = command.at("handle").get<std::vector<int>>();
  std::copy(bytes.begin(), bytes.end(), handle.bytes);
  auto import = holdings.session->import_handle(handle);
  if (!import) return failure(import.error());
  Answer answer;
  answer.json["bytes"] = import->size().count;
  holdings.imports.insert_or_assign(command.at("import"), std::move(*import));
  return answer;
}

Answer usage(Holdings& holdings) {
  auto usage = holdings.session->usage();
  if (!usage) return failure(usage.error());
  Answer answer;
  for (const DeviceUsage& device : *usage) {
    answer.json["devices"].push_back({{"device", device.device},
                                      {"pool", device.pool.count},
                                      {"free", device.free.count},
                                      {"guarantee", device.guarantee.count},
                                      {"limit", device.limit.count},
                                      {"charged", device.charged.count},
                                      {"available", device.available.count},
                                      {"pressure", device.pressure.count}});
  }
  return answer;
}

// Several threads grow and shrink their own slices, and one that they share, at random.
Answer use_threads(const Json& command, Holdings& holdings) {
  auto shared = holdings.session->open_slice({{}, mebibytes(32), "shared"});
  if (!shared) return failure(shared.error());
  std::mutex mutex;
  std::optional<Error> first;
  const auto note = [&](Error error) {
    const std::scoped_lock lock(mutex);
    if (!first) first = std::move(error);
  };
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    auto own = holdings.session->open_slice({{}, mebibytes(16), "own"});
    if (!own) return note(own.error());
    for (int round = 0; round < command.at("rounds").get<int>(); ++round) {
      Slice& slice = random() % 2 == 0 ? *own : *shared;
      const Bytes target = mebibytes(random() % (slice.limit().count / mebibytes(1).count + 1));
      if (random() % 2 == 0) {
        if (auto grown = slice.grow(target, {milliseconds(30'000)}); !grown) return note(grown.error());
      } else if (auto left = slice.shrink(target); !left) {
        return note(left.error());
      }
    }
    if (auto left = own->shrink({}); !left || !left->is_zero())
      note({Code::kInternal, "does not shrink to nothing"});
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < command.at("threads").get<unsigned>(); ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  if (auto left = shared->shrink({}); !left) note(left.error());
  return first ? failure(*first) : Answer{};
}

}  // namespace

std::optional<Answer> session_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "connect") return connect(command, holdings);
  if (what == "begin_job") return begin_job(command, holdings);
  if (what == "reserve_for_job") return reserve_for_job(command, holdings);
  if (what == "job_account") return job_account(holdings);
  if (what == "open") return open(command, holdings);
  if (what == "grow") return grow(command, holdings);
  if (what == "grow_all") return grow_all(command, holdings);
  if (what == "shrink") return shrink(command, holdings);
  if (what == "in_use") return set_in_use(command, holdings);
  if (what == "committed") return committed(command, holdings);
  if (what == "charge") return charge(command, holdings);
  if (what == "write") return access(command, holdings, &fill);
  if (what == "check") return access(command, holdings, &compare);
  if (what == "export") return export_handle(command, holdings);
  if (what == "import") return import_handle(command, holdings);
  if (what == "close_import") {
    holdings.imports.erase(command.at("import"));
    return Answer{};
  }
  if (what == "usage") return usage(holdings);
  if (what == "threads") return use_threads(command, holdings);
  if (what == "ping") {
    auto answered = holdings.session->ping();
    return answered ? Answer{} : failure(answered.error());
  }
  if (what == "close") {
    holdings.slices.erase(command.at("slice"));
    return Answer{};
  }
  if (what == "disconnect") {
    holdings.slices.clear();
    holdings.imports.clear();
    holdings.allocator.reset();
    holdings.session.reset();
    return Answer{};
  }
  return std::nullopt;
}

[[noreturn]] static void end_storm(const Error& error) {
  if (error.code == Code::kUnavailable) ::_exit(3);
  std::fprintf(stderr, "storm: %s\n", to_string(error).c_str());
  ::_exit(4);
}

void storm(const std::string& runtime_folder, unsigned seed) {
  std::mt19937 random(seed);
  for (;;) {
    auto session = Session::connect({runtime_folder, "storm", std::chrono::seconds(5)});
    if (!session) end_storm(session.error());
    auto driver = cuda::Driver::open(session->driver_folder());
    std::vector<Slice> slices;
    for (int round = 0; round < 20; ++round) {
      if (slices.size() < 3 && random() % 3 == 0) {
        auto slice = session->open_slice();
        if (!slice) end_storm(slice.error());
        slices.push_back(std::move(*slice));
      }
      if (slices.empty()) continue;
      Slice& slice = slices[random() % slices.size()];
      const Bytes target = mebibytes(2 * (random() % 24));
      if (random() % 2 == 0)
        static_cast<void>(slice.grow(target, {milliseconds(random() % 20)}));
      else
        static_cast<void>(slice.shrink(target));
      if (driver && random() % 4 == 0) static_cast<void>(fill(**driver, memory_of(slice), 0xdd));
    }
  }
}

}  // namespace gpumem::test
