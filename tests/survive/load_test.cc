// One broker under the steady load of many sessions: it grows no further than the load had made it when it
// was warm, and nothing is lost. How long operations take is printed; bench/load.py judges it.
//   GPUMEM_LOAD_SESSIONS   how many sessions the long form has; 2000
//   GPUMEM_LOAD_SECONDS    for how long; 600
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/broker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/resident.h"

namespace gpumem::test {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRate = 20;  // operations a second of each session
constexpr std::size_t kProcesses = 4;
constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;  // what a session grows by
/// Growth that is allowed beyond the warm point, because the C library's arenas do not fill up the same way
/// twice. The short form would find an operation that leaves 64 bytes behind.
constexpr std::uint64_t kSlack = std::uint64_t{1} << 20;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// A pipe to a program's standard input, and one from its output.
class LoadClient {
 public:
  LoadClient(const std::string& runtime_folder, std::size_t sessions) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    const UniqueFd child_in(in[0]), child_out(out[1]);
    input_.reset(in[1]);
    output_.reset(out[0]);
    child_ = std::make_unique<Child>(
        ChildOptions{.program = GPUMEM_TEST_LOAD_CLIENT,
                     .arguments = {runtime_folder, std::to_string(sessions), std::to_string(kRate)},
                     .input = child_in.get(),
                     .output = child_out.get()});
  }

  /// The next line that it prints; empty: it has ended.
  std::string line() {
    std::string text;
    for (char byte = 0; ::read(output_.get(), &byte, 1) == 1 && byte != '\n';) text += byte;
    return text;
  }
  void begin(milliseconds length) {
    const std::string text = std::to_string(length.count()) + "\n";
    EXPECT_EQ(::write(input_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int end() {
    input_.reset();
    return child_->wait();
  }

 private:
  UniqueFd input_;
  UniqueFd output_;
  std::unique_ptr<Child> child_;
};

struct LoadForm {
  std::size_t sessions;
  seconds warming;
  seconds length;
};

class SteadyLoad : public testing::Test {
 protected:
  void bear(const LoadForm& form) {
    // A lane, a process, a doorbell and an extent each, on the broker's side, and room for what it keeps
    // free.
    const std::uint64_t needed = form.sessions * 8 + 2048;
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < needed) {
      GTEST_SKIP() << form.sessions << " sessions need a limit of " << needed
                   << " open files, and no more than " << limit.rlim_max
                   << " are allowed: raise it (ulimit -Hn)";
    }
    start(form);
    await_ready();
    run("warm", form.warming);
    const Size warm = size();
    run("load", form.length);
    const Size after = size();
    report("resident_kib_warm", warm.resident / 1024);
    report("resident_kib", after.resident / 1024);
    report("descriptors", after.descriptors);
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
    EXPECT_LE(after.resident, warm.resident + kSlack);
#endif
    EXPECT_LE(after.descriptors, warm.descriptors);
    end();
  }

 private:
  struct Size {
    std::uint64_t resident;
    std::size_t descriptors;
  };

  void start(const LoadForm& form) {
    const std::uint64_t pool = std::max<std::uint64_t>(2 * form.sessions * kPiece, 512ULL << 20);
    broker_ = std::make_unique<BrokerProcess>(BrokerOptions{
        .simulate = "1x" + std::to_string((pool >> 20) + 64) + "MiB",
        .config = "[broker]\nreserve = \"all-but 64MiB\"\ncontext_overhead = \"0B\"\nmax_sessions = 10000\n"
                  "max_sessions_per_tenant = 10000\n"});
    for (std::size_t i = 0; i < kProcesses; ++i)
      clients_.push_back(std::make_unique<LoadClient>(broker_->folder(), form.sessions / kProcesses));
  }

  void await_ready() {
    for (const auto& client : clients_) ASSERT_EQ(client->line(), "ready");
  }

  // All clients work at once; then what they hold is what the broker has lent, and what the driver has.
  void run(const std::string& name, seconds length) {
    std::uint64_t held = 0, operations = 0;
    double p50 = 0, p99 = 0, longest = 0, rate = 0;
    for (const auto& client : clients_) client->begin(length);
    for (const auto& client : clients_) {
      const Json figures = Json::parse(client->line(), nullptr, false);
      ASSERT_TRUE(figures.is_object()) << "a client has ended";
      held += figures["held"].get<std::uint64_t>();
      operations += figures["operations"].get<std::uint64_t>();
      rate += figures["operations"].get<double>() / figures["seconds"].get<double>();
      p50 = std::max(p50, figures["p50_us"].get<double>());
      p99 = std::max(p99, figures["p99_us"].get<double>());
      longest = std::max(longest, figures["max_us"].get<double>());
    }
    EXPECT_GT(operations, 0U);
    report(name + "_operations", operations);
    report(name + "_per_second", static_cast<std::uint64_t>(rate));
    report(name + "_p50_us", static_cast<std::uint64_t>(p50));
    report(name + "_p99_us", static_cast<std::uint64_t>(p99));
    report(name + "_max_us", static_cast<std::uint64_t>(longest));
    expect_nothing_lost(held);
  }

  void expect_nothing_lost(std::uint64_t held) {
    EXPECT_TRUE(eventually([&] {
      const v1::DeviceStatus device = broker_->device();
      return device.offered() == 0 && device.returning() == 0 && device.missing() == 0;
    })) << broker_->unrest();
    const v1::DeviceStatus device = broker_->device();
    EXPECT_EQ(device.active(), held) << "what clients hold is what is lent";
    EXPECT_EQ(device.quarantined(), 0U);
    EXPECT_EQ(device.free() + held, device.pool());
    EXPECT_EQ(broker_->used_of_driver(), device.pool());
  }

  void end() {
    for (const auto& client : clients_) EXPECT_EQ(client->end(), 0);
    EXPECT_TRUE(eventually([&] { return broker_->at_rest(); })) << broker_->unrest();
    EXPECT_EQ(broker_->used_of_driver(), broker_->device().pool());
  }

  Size size() const { return {resident_bytes(broker_->pid()), broker_->open_descriptors().size()}; }

  static void report(const std::string& name, std::uint64_t value) {
    RecordProperty(name, std::to_string(value));
    std::cout << name << " " << value << std::endl;
  }

  std::unique_ptr<BrokerProcess> broker_;
  std::vector<std::unique_ptr<LoadClient>> clients_;
};

using LongSteadyLoad = SteadyLoad;

TEST_F(SteadyLoad, OfAHundredSessionsIsBorneWithoutGrowth) { bear({100, seconds(8), seconds(10)}); }

TEST_F(LongSteadyLoad, OfTwoThousandSessionsIsBorneWithoutGrowth) {
  bear({setting("GPUMEM_LOAD_SESSIONS", 2000), seconds(30), seconds(setting("GPUMEM_LOAD_SECONDS", 600))});
}

}  // namespace
}  // namespace gpumem::test
