// Records which process the management library charges with shared memory.
#include "tests/contract/driver/management.h"
#include "tests/contract/driver/processes/probe.h"

namespace gpumem::contract {
namespace {

class AccountingProbe : public Probe {
 protected:
  // The library's figures for both processes, for all processes together, and for the device.
  void look(const std::string& stage, pid_t exporter, pid_t importer) {
    const Management management;
    std::string from = "is not listed", to = from;
    std::uint64_t sum = 0;
    for (const nvmlProcessInfo_t& one : management.processes_of(management.device(uuid_))) {
      const bool is_known = one.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
      if (is_known) sum += one.usedGpuMemory;
      const std::string bytes = is_known ? std::to_string(one.usedGpuMemory) : "bytes are not told";
      if (static_cast<pid_t>(one.pid) == exporter) from = bytes;
      if (static_cast<pid_t>(one.pid) == importer) to = bytes;
    }
    note(stage, "exporter " + from + ", importer " + to + ", all processes " + std::to_string(sum) +
                    ", device used " + std::to_string(used()));
  }

  void follow(bool has_context) {
    const Bytes size = budget();
    const std::string kind = has_context ? "with contexts, " : "without contexts, ";
    const auto enter = [=](std::optional<cuda::CurrentContext>& entered) {
      if (has_context) entered.emplace(context());
    };
    Process exporter([&](Channel& channel) {
      std::optional<cuda::CurrentContext> entered;
      enter(entered);
      const cuda::Allocation one = allocate(size);
      channel.send(exported(one).get());
      channel.await();
    });
    UniqueFd descriptor = exporter.channel().receive();
    Process importer([&](Channel& channel) {
      std::optional<cuda::CurrentContext> entered;
      enter(entered);
      std::vector<cuda::Allocation> handle;
      handle.push_back(import(channel.receive(), size));
      channel.signal_and_await();
      const cuda::Reservation range = reserve(size);
      auto mapping = cuda::Mapping::create(driver(), range.base(), handle, device().ordinal);
      EXPECT_TRUE(mapping) << mapping.error().message;
      channel.signal_and_await();
    });
    look(kind + "made", exporter.pid(), importer.pid());
    importer.channel().send(descriptor.get());
    importer.channel().await();
    descriptor.reset();
    look(kind + "imported", exporter.pid(), importer.pid());
    importer.channel().signal_and_await();
    look(kind + "mapped", exporter.pid(), importer.pid());
    const pid_t dead = exporter.pid();
    exporter.kill();
    expect_used_at_least(size.count);  // the importer keeps it
    look(kind + "exporter dead", dead, importer.pid());
    importer.signal_and_join();
    expect_used(0);
  }
};

TEST_F(AccountingProbe, OfExporterAndImporterWithoutContexts) { follow(false); }
TEST_F(AccountingProbe, OfExporterAndImporterWithContexts) { follow(true); }

TEST_F(AccountingProbe, OfMemoryThatOnlyADescriptorHolds) {
  const Bytes size = budget();
  Process exporter([&](Channel& channel) { channel.send(exported(allocate(size)).get()); });
  const UniqueFd descriptor = exporter.channel().receive();
  const pid_t dead = exporter.pid();
  exporter.join();
  look("only a descriptor is left", dead, 0);
}

}  // namespace
}  // namespace gpumem::contract
