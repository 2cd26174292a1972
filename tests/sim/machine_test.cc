// Machines as folders, and the table that their processes share.
#include "sim/machine/machine.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "sim/machine/table.h"
#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

using Machines = SimTest;

/// What a command prints, its errors too.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 256> part;
  while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

std::unique_ptr<Table> table_of(const std::filesystem::path& folder) {
  auto table = Table::open(load_machine(folder).value());
  EXPECT_TRUE(table.has_value());
  return std::move(*table);
}

TEST(Spec, IsCountTimesSize) {
  EXPECT_EQ(parse_spec("2x24GiB").value(), (std::vector<Bytes>{gibibytes(24), gibibytes(24)}));
  EXPECT_EQ(parse_spec("1x8GiB,16GiB").value(), (std::vector<Bytes>{gibibytes(8), gibibytes(16)}));
  EXPECT_EQ(parse_spec("1x8GiB,16GiB+fabric").value(), (std::vector<Bytes>{gibibytes(8), gibibytes(16)}));
  for (const char* bad : {"", "x", "2x", "0x8GiB", "17x8GiB", "9x1GiB,8x1GiB", "ax8GiB", "1x3MiB", "1x0",
                          "1x8GiB,", "-1x8GiB", "1x8Gibble", "+fabric", "1x8GiB+fabrics"}) {
    EXPECT_FALSE(parse_spec(bad).has_value()) << bad;
  }
}

TEST_F(Machines, ProgramFindsItsMachineByTheFolderOfTheLibrary) {
  const std::string run = "env -u GPUMEM_SIM_MACHINE LD_LIBRARY_PATH=";
  EXPECT_EQ(output_of(run + folder_.string() + " " SIM_PROBE), "init 0 total 67108864 nvml 0\n");
}

TEST_F(Machines, ProgramWithoutAMachineIsToldHowToMakeOne) {
  const std::string text =
      output_of("env GPUMEM_SIM_MACHINE=/nowhere LD_LIBRARY_PATH=" SIM_LIBRARIES " " SIM_PROBE);
  EXPECT_NE(text.find("gpumem-sim create"), std::string::npos) << text;
  EXPECT_NE(text.find("init 100 total 0 nvml 9"), std::string::npos) << text;
}

TEST_F(Machines, CreatingTheSameMachineAgainChangesNothing) {
  const std::string id = load_machine(folder_).value().id;
  ASSERT_TRUE(create_machine(folder_, spec_, SIM_LIBRARIES).has_value());
  EXPECT_EQ(load_machine(folder_).value().id, id);
  ASSERT_TRUE(create_machine(folder_, "1x32MiB", SIM_LIBRARIES).has_value());
  EXPECT_NE(load_machine(folder_).value().id, id);
  EXPECT_FALSE(create_machine(folder_, "nonsense", SIM_LIBRARIES).has_value());
  EXPECT_EQ(load_machine(folder_).value().spec, "1x32MiB");
}

TEST_F(Machines, DevicesKeepTheirUuidsWhenTheSameMachineIsMadeAnew) {
  const auto uuids = [](const std::filesystem::path& folder) {
    const Machine machine = load_machine(folder).value();
    return std::vector<Uuid>{machine.device_uuid(0), machine.device_uuid(1)};
  };
  ASSERT_TRUE(create_machine(folder_, "2x32MiB", SIM_LIBRARIES).has_value());
  const auto before = uuids(folder_);
  EXPECT_NE(before[0], before[1]);
  ASSERT_TRUE(remove_machine(folder_).has_value());
  ASSERT_TRUE(create_machine(folder_, "2x32MiB", SIM_LIBRARIES).has_value());
  EXPECT_EQ(uuids(folder_), before);
  ASSERT_TRUE(create_machine(folder_, "2x16MiB", SIM_LIBRARIES).has_value());
  EXPECT_NE(uuids(folder_), before) << "another machine";
  const auto other = folder_ / "other";
  ASSERT_TRUE(create_machine(other, "2x32MiB", SIM_LIBRARIES).has_value());
  EXPECT_NE(uuids(other), before) << "of another folder";
  ASSERT_TRUE(remove_machine(other).has_value());
}

TEST_F(Machines, LargeMachineCostsNothingUntilTouched) {
  ASSERT_TRUE(create_machine(folder_, "2x64GiB", SIM_LIBRARIES).has_value());
  in_process([] {
    ASSERT_CU(cuInit(0));
    const std::uint64_t size = std::uint64_t{64} << 30;
    *bytes_at(mapped(create(size), size) + size - 1) = 1;
  });
}

TEST_F(Machines, RemovedMachineLeavesNothing) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    create(kPage);
  });
  const auto data = load_machine(folder_).value().data_folder();
  EXPECT_TRUE(std::filesystem::exists(data));
  ASSERT_TRUE(remove_machine(folder_).has_value());
  EXPECT_FALSE(std::filesystem::exists(data));
  ASSERT_TRUE(create_machine(folder_, spec_, SIM_LIBRARIES).has_value());
}

TEST_F(Machines, OwnerKilledHoldingTheMutexLeavesAConsistentTable) {
  Process holder([](Channel& channel) {
    ASSERT_CU(cuInit(0));
    create(10 * kMiB);
    channel.signal_and_await();
  });
  holder.channel().await();
  Process breaker([&](Channel&) {
    const auto table = table_of(folder_);
    const Table::Lock lock(*table);
    table->raw().devices[0].used = 77;     // in the middle of a change
    table->raw().first_free = 0xffffffff;  // and of the list
    ::raise(SIGKILL);
  });
  breaker.wait();
  in_process([] {
    ASSERT_CU(cuInit(0));
    create(4 * kMiB);
    EXPECT_EQ(used(), 14 * kMiB);
    create(50 * kMiB);
  });
  EXPECT_EQ(used(), 10 * kMiB);
}

TEST_F(Machines, WhatIsWithheldIsFreeForNobodyAndWhatIsInUseStays) {
  const auto table = table_of(folder_);
  in_process([&] {
    ASSERT_CU(cuInit(0));
    const auto held = create(40 * kMiB);
    ASSERT_TRUE(table->withhold(0, 16 * kMiB).has_value());
    EXPECT_EQ(table->free(0), 8 * kMiB);
    EXPECT_EQ(used(), 56 * kMiB);
    const auto prop = properties();
    CUmemGenericAllocationHandle refused = 0;
    EXPECT_EQ(cuMemCreate(&refused, 10 * kMiB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemRelease(create(8 * kMiB)));
    ASSERT_TRUE(table->withhold(0, 48 * kMiB).has_value());
    EXPECT_EQ(table->free(0), 0U);
    EXPECT_EQ(table->used(0), 40 * kMiB);
    EXPECT_EQ(cuMemCreate(&refused, kPage, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemRelease(held));
    EXPECT_EQ(table->free(0), 16 * kMiB);
  });
  EXPECT_EQ(table->total(0), 64 * kMiB);
  ASSERT_TRUE(table->withhold(0, 0).has_value());
  EXPECT_EQ(table->free(0), 64 * kMiB);
  EXPECT_FALSE(table->withhold(0, 65 * kMiB).has_value());
  EXPECT_FALSE(table->withhold(1, 0).has_value());
}

TEST_IN_PROCESS(Machines, SlotsAreUsedAgain) {
  ASSERT_CU(cuInit(0));
  for (int i = 0; i < 100; ++i) EXPECT_CU(cuMemRelease(create(kPage)));
  EXPECT_LE(table_of(folder_)->raw().slot_end, 2U);
}

TEST_F(Machines, ManyProcessesAndThreadsNeverExceedTheDevice) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int p = 0; p < 4; ++p) {
    processes.push_back(std::make_unique<Process>([](Channel&) {
      ASSERT_CU(cuInit(0));
      const auto work = [] {
        const auto prop = properties();
        for (int i = 0; i < 200; ++i) {
          CUmemGenericAllocationHandle handle = 0;
          const CUresult result = cuMemCreate(&handle, 16 * kMiB, &prop, 0);
          EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
          EXPECT_LE(used(), 64 * kMiB);
          if (result != CUDA_SUCCESS) continue;
          if (i % 2 == 0) exported(handle).reset();
          EXPECT_CU(cuMemRelease(handle));
        }
      };
      std::thread other(work);
      work();
      other.join();
    }));
  }
  for (auto& process : processes) process->join();
  EXPECT_EQ(used(), 0U);
}

TEST_F(Machines, ProcessesKilledAtAnyInstantLeaveNothing) {
  const auto data = load_machine(folder_).value().data_folder();
  for (int round = 0; round < 40; ++round) {
    Process process([&](Channel& channel) {
      ASSERT_CU(cuInit(0));
      const CUdeviceptr address = reserve(kPage);
      for (int i = 0;; ++i) {
        const auto handle = create(kPage);
        if (i % 3 == 0) exported(handle).reset();
        EXPECT_CU(cuMemMap(address, kPage, 0, handle, 0));
        if (i == round % 7) channel.signal();
        EXPECT_CU(cuMemUnmap(address, kPage));
        EXPECT_CU(cuMemRelease(handle));
      }
    });
    process.channel().await();
    process.kill();
    ASSERT_EQ(used(), 0U) << "round " << round;
    for (const auto& entry : std::filesystem::directory_iterator(data)) {
      const auto name = entry.path().filename();
      ASSERT_TRUE(name == "table" || name == "control") << name << " is left in round " << round;
    }
  }
}

}  // namespace
}  // namespace gpumem::sim::test
