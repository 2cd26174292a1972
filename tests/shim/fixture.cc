#include "tests/shim/fixture.h"

#include <dlfcn.h>

#include <cstdlib>

#include "sim/machine/machine.h"
#include "tests/contract/driver/processes/process.h"

namespace gpumem::shim::test {

Opened::Opened(const std::filesystem::path& file) : handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  const char* const words = handle_ == nullptr ? ::dlerror() : nullptr;
  EXPECT_NE(handle_, nullptr) << (words != nullptr ? words : "");
}

void* Opened::find(const char* name) const { return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr; }

void Opened::close() const { EXPECT_EQ(::dlclose(handle_), 0); }

std::filesystem::path shim_folder() { return SHIM_LIBRARIES; }

void copy_shim(const std::string& file, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(shim_folder() / file, folder / file);
}

void ShimTest::SetUp() {
  machine_ = folder_ / "gpus";
  const auto created = sim::create_machine(machine_, "1x64MiB", SIM_LIBRARIES);
  ASSERT_TRUE(created.has_value()) << created.error().message;
}

void ShimTest::TearDown() { EXPECT_TRUE(sim::remove_machine(machine_).has_value()); }

Environment ShimTest::without_broker() const {
  return {{"GPUMEM_OPTIONAL", "1"}, {"GPUMEM_RUNTIME_DIR", folder_ / "no-broker"}};
}

void ShimTest::in_process(const std::function<void()>& body) const {
  contract::in_process([&] {
    for (const char* name : {"GPUMEM_REAL_LIBCUDA", "GPUMEM_SHOW_DEVICE", "CUDA_VISIBLE_DEVICES"})
      ::unsetenv(name);
    for (const auto& [name, value] : without_broker()) ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv("LD_LIBRARY_PATH", machine_.c_str(), 1);
    body();
  });
}

void ShimTest::with_both(const std::function<void(const Opened& shim, const Opened& driver)>& body) const {
  in_process([&] {
    const Opened shim(shim_folder() / "libcuda.so.1");
    const Opened driver(machine_ / "libcuda.so.1");
    body(shim, driver);
  });
}

std::filesystem::path file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fname : "";
}

}  // namespace gpumem::shim::test
