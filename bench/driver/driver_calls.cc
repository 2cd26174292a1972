// gpumem_driver_calls: how long every driver call that the project makes takes, by size. One JSON object:
//   driver, kernel_driver, device{uuid,name,total,granularity}, budget
//   context{first_ns,device_bytes}   the first primary context of this process, and what the device pays for
//   it calls[]                          call_times.h failed[]{call,size,extents,context,error}
//   left_out[]{size,why}
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/driver/call_times.h"
#include "bench/driver/driver_calls.h"
#include "bench/must.h"
#include "cuda/nvml.h"

namespace gpumem::bench {
namespace {

using nlohmann::json;

constexpr Bytes kSizes[] = {mebibytes(2), mebibytes(64), gibibytes(1), gibibytes(4)};
constexpr std::size_t kBatch = 64;

struct Options {
  std::string driver_folder;
  std::uint64_t budget = 0;
  double seconds = 2;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app{"Times every call of the NVIDIA driver that gpumem makes; prints JSON."};
  app.add_option("--driver-dir", options.driver_folder, "Folder of libcuda.so.1 and libnvidia-ml.so.1");
  app.add_option("--budget", options.budget, "Bytes of the device that may be taken at once (default: half)");
  app.add_option("--seconds", options.seconds, "Time for each size (default 2)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

json describe(const cuda::Device& device) {
  return {{"uuid", to_string(device.uuid)},
          {"name", device.name},
          {"total", device.total.count},
          {"granularity", device.granularity.count}};
}

void time_nvml(CallTimes& times, const cuda::Nvml& nvml, const cuda::DeviceUuid& uuid) {
  for (int i = 0; i < 200; ++i) {
    static_cast<void>(times.time({"nvmlDeviceGetMemoryInfo", {}}, [&] { return nvml.memory(uuid); }));
    static_cast<void>(
        times.time({"nvmlDeviceGetComputeRunningProcesses", {}}, [&] { return nvml.processes(uuid); }));
    static_cast<void>(times.time({"nvmlSystemGetDriverVersion", {}}, [&] { return nvml.driver_version(); }));
  }
}

/// Every size that the budget allows, then many extents of the smallest at once.
void time_memory(MemoryCalls& calls, const Options& options, json& out) {
  const Clock::duration patience = std::chrono::milliseconds(static_cast<int>(options.seconds * 1000));
  for (const Bytes size : kSizes) {
    if (size.count <= options.budget) {
      calls.run({size, 1}, patience);
    } else if (!calls.with_context()) {
      out["left_out"].push_back({{"size", size.count}, {"why", "past the budget"}});
    }
  }
  if (kSizes[0].count * kBatch <= options.budget) calls.run({kSizes[0], kBatch}, patience);
}

/// Enters the first context of this process, and notes its time and what it costs the device.
cuda::CurrentContext first_context(const cuda::Driver& driver, const cuda::Device& device,
                                   const cuda::Nvml& nvml, json& out) {
  const auto used = [&] { return must(nvml.memory(device.uuid), "nvmlDeviceGetMemoryInfo").used.count; };
  const std::uint64_t before = used();
  const auto start = Clock::now();
  auto context = must(cuda::CurrentContext::enter(driver, device.ordinal), "context");
  const std::chrono::nanoseconds took = Clock::now() - start;
  const std::uint64_t after = used();
  out["context"] = {{"first_ns", took.count()}, {"device_bytes", after > before ? after - before : 0}};
  return context;
}

int run(Options options) {
  CallTimes times;
  const auto* driver =
      must(times.time({"load and cuInit", {}}, [&] { return cuda::Driver::open(options.driver_folder); }),
           "driver");
  const auto nvml =
      must(times.time({"nvmlInit", {}}, [&] { return cuda::Nvml::open(options.driver_folder); }), "NVML");
  const cuda::Device& device = driver->devices().front();
  if (options.budget == 0) options.budget = device.total.count / 2;

  json out{{"driver", driver->version()}, {"kernel_driver", must(nvml->driver_version(), "driver version")},
           {"device", describe(device)},  {"budget", options.budget},
           {"failed", json::array()},     {"left_out", json::array()}};
  time_device_calls(times, *driver, device);
  time_nvml(times, *nvml, device.uuid);
  // Without a context first, as the broker works; once there is one, this process has it for good.
  MemoryCalls without(*driver, device, times, out["failed"], false);
  time_memory(without, options, out);
  {
    const auto context = first_context(*driver, device, *nvml, out);
    time_context_calls(times, *driver, device);
    MemoryCalls with(*driver, device, times, out["failed"], true);
    time_memory(with, options, out);
  }
  out["calls"] = times.to_json();
  std::printf("%s\n", out.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_driver_calls",
                                [&] { return gpumem::bench::run(gpumem::bench::parse(argc, argv)); });
}
